"""The documents of a dataset by number, read by position.

A span is read with `preadv`: a file that was cut gives an error instead of a signal, a network file
system is not read around each span, and memory does not grow with what was read. A memory map is 20
to 90% faster on a file in the page cache, but a training loop does not wait for such a file.

Indexes are mapped for a training loop; see `file_array`.
"""

from __future__ import annotations

import contextlib
import operator
import os
import secrets
import time
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import digest_of
from tokmill.dataset.file_array import OPENERS, MappedFile, open_file
from tokmill.dataset.identity import identity_of, replaced
from tokmill.dataset.layout import MANIFEST, PLAN, SIDECARS
from tokmill.dataset.reader import Shard, open_shard, read_manifest
from tokmill.dataset.sidecars import HEADER, METADATA, open_index, read_metadata
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.opening import open_regular
from tokmill.storage import read_errors, storage_errors
from tokmill.urls import shown_place, store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import SupportsIndex

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.dataset.file_array import DataFile, Opener
    from tokmill.dataset.manifest import Manifest

    Stamp = tuple[int | str, ...]
    Index = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]

MOST_OPEN = 32
"""Shards that stay open. Each takes two to four descriptors, of which a process has 1,024."""

FEWEST_OPEN = 16
"""Files that stay open to read spans, if the process may have few."""

LOOK_S, STORE_LOOK_S = 1.0, 60.0
"""Between two looks of `ShardFiles` at the manifest, on a disk and in a store."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of tokens, and their places in what is read: (n,) int64 each.

    `shards`: number of the shard in the split. `starts`: first token in the shard. `lengths`: in
    tokens. `targets`: place of the first token in the array that is filled.
    """

    shards: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]


class Documents:
    """The documents of a split, or of all splits (`split` is ''), numbered from 0.

    A shard is opened when one of its documents is looked up. Safe to use from several threads.

    Attributes:
        manifest: of the dataset.
        entries: the rows of the shards in the manifest, in the order of the dataset.
        firsts: (n_shards,) int64, documents before each shard.
        stops: (n_shards,) int64, documents up to the end of each shard.
    """

    def __init__(self, directory: Path, manifest: Manifest, split: str = "") -> None:
        # Shards are opened later, wherever we are then.
        directory = directory if store_url(directory) else directory.absolute()
        entries = manifest.of_split(split)
        self.directory, self.entries = directory, entries
        counts = np.array([entry.documents for entry in entries], np.int64)
        self.stops = np.cumsum(counts)
        self.firsts = self.stops - counts
        self.manifest = manifest
        self._opened = lru_cache(MOST_OPEN)(
            lambda index: open_shard(directory, manifest, entries[index])
        )

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self.stops[-1]) if len(self.stops) else 0

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens, eos included."""
        return sum(entry.tokens for entry in self.entries)

    def place(self, number: SupportsIndex) -> tuple[int, int]:
        """Return the index of a document's shard in `entries`, and its number in the shard.

        A negative number counts from the end.

        Raises:
            IndexError: there is no such document.
        """
        asked, total = operator.index(number), len(self)
        document = asked + total if asked < 0 else asked
        if not 0 <= document < total:
            raise IndexError(
                f"{shown_place(self.directory)}: no document {asked}; it holds {total:,}"
            )
        index = int(np.searchsorted(self.stops, document, side="right"))
        return index, document - int(self.firsts[index])

    def find(self, number: SupportsIndex) -> tuple[Shard, int]:
        """Return the shard of a document, and the document's number in it.

        Raises:
            IndexError: there is no such document.
            VerifyError: its shard is missing or damaged.
            StorageError: its shard cannot be read, or too many files are open.
        """
        index, place = self.place(number)
        return self.shard(index), place

    def metadata(self, start: SupportsIndex, n: int = 1) -> pa.Table:
        """Return the fields that were kept of `n` documents of one shard; raises as `find`."""
        index, place = self.place(start)
        path = self.directory / f"{self.entries[index].name}.{METADATA}"
        return read_metadata(path, self.manifest.keep, place, place + n)

    def shard(self, index: int) -> Shard:
        """Return shard `index` of `entries`; see `find`."""
        return self._opened(index)

    def shards(self) -> Iterator[Shard]:
        """Yield the shards in the order of the dataset, and check their indexes; see `find`."""
        for index in range(len(self.entries)):
            shard = self.shard(index)
            shard.check_index()
            yield shard

    def __iter__(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
        """Yield the ids of every document, eos included, in order: read-only arrays."""
        for index in range(len(self.entries)):
            yield from self.shard(index).documents()

    def close(self) -> None:
        """Close all shards; later reads open them again."""
        self._opened.cache_clear()


class ShardFiles:
    """The files of the shards of a split. Safe to use from several threads, and after a fork.

    Reads check once a second that the dataset is still the one that was opened, by its identity:
    another dataset at the same path has another one, even where its files have equal sizes; one
    that was packed, repaired, or made again with equal tokens has the same. The manifest is read
    again only when its file is not the same any more. A dataset that is being made has no sum, and
    is not checked.

    Attributes:
        dtypes: dtype of a token in each kind of file, by its ending: `bin`, and the sidecars.
    """

    def __init__(self, documents: Documents) -> None:
        manifest = documents.manifest
        self._documents = documents
        self._root = str(documents.directory)
        self._tokens = np.array([entry.tokens for entry in documents.entries], np.int64)
        self._is_finished = bool(manifest.sha256)
        self._is_stored = bool(store_url(documents.directory))
        self._checked_plan: Stamp | None = None
        self._seen: Stamp | None = None
        self._next_look_s = 0.0
        self.dtypes: dict[str, np.dtype[Any]] = {
            "bin": np.dtype(manifest.dtype).newbyteorder("<"),
            **{ending: SIDECARS[ending] for ending in manifest.sidecars},
        }

    @cached_property
    def identity(self) -> str:
        """Return what tells this dataset from others; see `identity_of`."""
        if self._is_finished:
            return identity_of(self._documents.manifest, self._documents.directory)
        # A dataset that is being made has no sum yet: nothing of another one may stay open.
        return secrets.token_hex()

    def check(self) -> None:
        """Check that the dataset at the path has the identity of the one that was opened.

        A run that makes a lost file again takes the manifest away until all files are there. They
        have the same bytes as long as the plan is the same.

        Raises:
            VerifyError: the dataset was replaced or removed.
            TokmillError: the manifest that is there now cannot be read.
        """
        if not self._is_finished:
            return
        directory = self._documents.directory
        seen = _stamp(directory / MANIFEST)
        if seen is None:
            if self._is_stored or not self._is_repaired():
                raise VerifyError(
                    f"{shown_place(directory)}: "
                    "the dataset was moved or removed after it was opened"
                )
        elif seen != self._seen:
            now = read_manifest(directory)
            is_same = now.sha256 == self._documents.manifest.sha256
            if not is_same and identity_of(now, directory) != self.identity:
                raise replaced(directory)
        look_s = STORE_LOOK_S if self._is_stored else LOOK_S
        self._seen, self._next_look_s = seen, time.monotonic() + look_s

    def _is_repaired(self) -> bool:
        """Return whether the plan that stands in the directory is still that of the dataset."""
        path = self._documents.directory / PLAN
        seen = _stamp(path)
        if seen is None or seen == self._checked_plan:
            return seen is not None
        listed = [file for file in self._documents.manifest.files if file.name == PLAN]
        if not listed:  # nothing makes a lost file of it again
            return False
        with read_errors(path), open_regular(path, follow_links=True) as file:
            found = digest_of(file, listed[0].algorithm).entry(PLAN)
        if found == listed[0]:
            self._checked_plan = seen
        return found == listed[0]

    def _check_now_and_then(self) -> None:
        """Check like `check` when the last time is a second ago; otherwise it costs 0.1 µs.

        In a store it is looked at once a minute, and one that does not answer, or has lost its
        manifest, is not waited for: whatever is fetched from it is compared with its sum.
        """
        if time.monotonic() < self._next_look_s:
            return
        if not self._is_stored:
            self.check()
        else:
            self._next_look_s = time.monotonic() + STORE_LOOK_S
            with contextlib.suppress(StorageError, UsageError):
                if _stamp(self._documents.directory / MANIFEST) is not None:
                    self.check()

    def read(self, spans: Spans, ending: str, into: npt.NDArray[Any]) -> None:
        """Read spans of the files with an ending into a flat, contiguous array of their dtype.

        Raises:
            VerifyError: a file is missing, or has another size than the manifest says; or the
                dataset was replaced after it was opened.
            StorageError: a file cannot be read, or too many files are open.
        """
        self._check_now_and_then()
        entries, item = self._documents.entries, into.itemsize
        data = into.view(np.uint8).data
        (opened, _), identity = _caches(), self.identity
        if self._is_stored:  # what is evicted must not stay open here
            opened = self._opened_in_store
        columns = (spans.starts * item, spans.targets * item, spans.lengths * item)
        shards = spans.shards.tolist()
        rows = zip(shards, *(column.tolist() for column in columns), strict=True)
        last, path = -1, self._root
        try:
            for shard, start, target, length in rows:
                if shard != last:
                    entry, last = entries[shard], shard
                    path = f"{self._root}/{entry.name}.{ending}"
                    file = opened(path, entry.tokens * item, identity)
                into_span = (data[target : target + length],)
                if file.fd < 0 or os.preadv(file.fd, into_span, start) != length:
                    file.read_into(data[target : target + length], start)
        except OSError as error:
            with read_errors(Path(path)):
                raise error
        except VerifyError:
            close_files()  # one that was cut and is repaired has another file at its path
            self.check()  # the reason may be another dataset
            raise

    def _opened_in_store(self, path: str, n_bytes: int, identity: str) -> DataFile:
        """Return a file of a store, which its cache keeps open."""
        opener = self._opener()
        if opener is None:
            return _opened(path, n_bytes, identity)
        with read_errors(Path(path)):
            return _of_size(opener.open(path.rpartition("/")[2]), n_bytes)

    def _opener(self) -> Opener | None:
        """Return what opens files through a cache; raises `VerifyError` if it has another dataset.

        It is that of the source that was opened last.
        """
        opener = OPENERS.get(self._documents.directory)
        if opener is not None and opener.identity != self.identity:
            raise replaced(self._documents.directory)
        return opener

    def index(self, shard: int) -> Index:
        """Return lengths (D,) int32 in tokens and offsets (D,) int64 in bytes, both mapped.

        They are to be read at once: see above.

        Raises:
            VerifyError: the index is missing, broken or cut, or has other documents than its entry;
                or the dataset was replaced after it was opened.
            StorageError: it cannot be read, or too many files are open.
        """
        entry = self._documents.entries[shard]
        path, item_bytes = f"{self._root}/{entry.name}.idx", self.dtypes["bin"].itemsize
        _, opened = _caches()
        if self._is_stored:
            self._opener()
        try:
            return opened(path, entry.documents, item_bytes, self.identity).checked()
        except VerifyError:
            close_files()  # one that was cut and is repaired has another file at its path
            self.check()  # the reason may be another dataset
            raise

    def damaged_index(self, shard: int) -> VerifyError:
        """Return the error of an index whose offsets or lengths cannot be."""
        name = self._documents.entries[shard].name
        return VerifyError(
            f"{self._root}/{name}.idx: documents that overlap or begin outside the shard; "
            "see tokmill verify"
        )

    def document_spans(self, numbers: npt.NDArray[np.int64]) -> Spans:
        """Return the spans of documents by their numbers in the split, from 0, end to end.

        Raises:
            IndexError: there is no such document.
            TokmillError: see `index`.
        """
        self._check_now_and_then()
        documents, item_bytes = self._documents, self.dtypes["bin"].itemsize
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(documents):
            raise IndexError(f"{self._root}: no such document; it holds {len(documents):,}")
        shards = np.searchsorted(documents.stops, numbers, side="right")
        places = numbers - documents.firsts[shards]
        starts, lengths = np.empty((2, len(numbers)), np.int64)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            of_shard, offsets = self.index(shard)
            starts[here] = offsets[places[here]] // item_bytes
            lengths[here] = of_shard[places[here]]
        is_outside = starts + lengths > self._tokens[shards]
        damaged = np.flatnonzero((starts < 0) | (lengths < 1) | is_outside)
        if len(damaged):
            raise self.damaged_index(int(shards[damaged[0]]))
        return Spans(shards, starts, lengths, np.cumsum(lengths) - lengths)


class _MappedIndex:
    """The lengths and offsets of an index, mapped."""

    def __init__(self, path: str, n_documents: int, item_bytes: int) -> None:
        open_index(Path(path), n_documents, item_bytes)  # checks its head
        with read_errors(Path(path)):
            self._file, n = MappedFile(path), n_documents
            lengths = self._file.array("<i4", HEADER.size, n)
            self._arrays = lengths, self._file.array("<i8", HEADER.size + 4 * n, n)

    def checked(self) -> Index:
        """Return lengths and offsets; raises `VerifyError` if the file is shorter by now."""
        self._file.check()
        return self._arrays


def close_files() -> None:
    """Close the files that stay open to read spans: the disk space of removed ones is free then."""
    _caches.cache_clear()


@cache
def _caches() -> tuple[
    Callable[[str, int, str], DataFile], Callable[[str, int, int, str], _MappedIndex]
]:
    """Return what opens a file, and an index; those of the process that were used last stay open.

    They use at most half of the descriptors that the process may have; an index takes two. The
    identity of the dataset is part of the key, so that a new one at an old path is opened anew.
    """
    most_open = max(FEWEST_OPEN, _most_descriptors() // 6)
    return lru_cache(most_open)(_opened), lru_cache(most_open)(_index)


def _stamp(path: Path) -> Stamp | None:
    """Return what differs when a file is another one, or was written to; None without a file."""
    if url := store_url(path):
        from tokmill.stores.objects import located  # few datasets are in a store

        store, name = located(url)
        entry = store.entry(name)
        return None if entry is None else (entry.stamp, entry.n_bytes)
    with storage_errors(path):
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _most_descriptors() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 16_384 if limit == resource.RLIM_INFINITY else min(limit, 16_384)


def _opened(path: str, n_bytes: int, _identity: str) -> DataFile:
    with read_errors(Path(path)):
        file = open_file(path)
    return _of_size(file, n_bytes)


def _of_size(file: DataFile, n_bytes: int) -> DataFile:
    """Return a file that has the size of the manifest; raises `VerifyError`."""
    if file.n_bytes != n_bytes:
        raise VerifyError(
            f"{file.path}: {plural(file.n_bytes, 'byte')}, {n_bytes:,} by the manifest; "
            "see tokmill verify"
        )
    return file


def _index(path: str, n_documents: int, item_bytes: int, _identity: str) -> _MappedIndex:
    return _MappedIndex(path, n_documents, item_bytes)
