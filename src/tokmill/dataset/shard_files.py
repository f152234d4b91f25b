"""Spans of the shards of a split, read by position; few files stay open, and none is mapped.

A span is read with `preadv`: a file that was cut gives an error instead of a signal, a network file
system is not read around each span, and memory does not grow with what was read. A memory map is 20
to 90% faster on a file in the page cache, but a training loop does not wait for such a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.edition import Edition
from tokmill.dataset.idx_file import read_index
from tokmill.dataset.layout import SIDECARS
from tokmill.dataset.reader import sidecars_of
from tokmill.errors import VerifyError
from tokmill.storage import open_regular, read_errors
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tokmill.dataset.documents import Documents, Spans

    Index = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]

FEWEST_OPEN = 16


class ShardFiles:
    """The files of the shards of a split. Safe to use from several threads, and after a fork.

    Attributes:
        dtypes: dtype of a token in each kind of file, by its ending: `bin`, and the sidecars.
        edition: whether the dataset is still the one that was opened; looked at every second.
    """

    def __init__(self, documents: Documents, manifest: Mapping[str, Any]) -> None:
        self._documents = documents
        self._root = str(documents.directory)
        self._sha256 = str(manifest["sha256"])
        self.edition = Edition(documents.directory, self._sha256)
        dtype: np.dtype[Any] = np.dtype(manifest["dtype"]).newbyteorder("<")
        self.dtypes = {"bin": dtype, **{one: SIDECARS[one] for one in sidecars_of(manifest)}}

    def read(self, spans: Spans, ending: str, into: npt.NDArray[Any]) -> None:
        """Read spans of the files with an ending into a flat, contiguous array of their dtype.

        Raises:
            VerifyError: a file is missing, or has another size than the manifest says; or the
                dataset was replaced after it was opened.
            StorageError: a file cannot be read, or too many files are open.
        """
        self.edition.check_now_and_then()
        entries, item = self._documents.entries, into.itemsize
        data = into.view(np.uint8).data
        opened, sha256 = _caches().file, self._sha256
        columns = (spans.starts * item, spans.targets * item, spans.lengths * item)
        shards = spans.shards.tolist()
        rows = zip(shards, *(column.tolist() for column in columns), strict=True)
        last, path = -1, self._root
        try:
            for shard, start, target, length in rows:
                if shard != last:
                    entry, last = entries[shard], shard
                    path = f"{self._root}/{entry['name']}.{ending}"
                    file = opened(path, entry["tokens"] * item, sha256)
                if os.preadv(file.fd, (data[target : target + length],), start) != length:
                    file.read(path, data[target : target + length], start)
        except OSError as error:
            with read_errors(Path(path)):
                raise error
        except VerifyError:
            self.edition.check()  # the reason may be another dataset
            raise

    def index(self, shard: int) -> Index:
        """Return lengths (D,) int32 in tokens and offsets (D,) int64 in bytes, both mapped.

        Raises:
            VerifyError: the index is missing or broken, or has other documents than its entry; or
                the dataset was replaced after it was opened.
            StorageError: it cannot be read, or too many files are open.
        """
        entry = self._documents.entries[shard]
        path = f"{self._root}/{entry['name']}.idx"
        item = self.dtypes["bin"].itemsize
        try:
            return _caches().index(path, entry["documents"], item, self._sha256)
        except VerifyError:
            self.edition.check()  # the reason may be another dataset
            raise

    def damaged_index(self, shard: int) -> VerifyError:
        """Return the error of an index whose offsets or lengths cannot be."""
        name = self._documents.entries[shard]["name"]
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
        self.edition.check_now_and_then()
        documents = self._documents
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(documents):
            raise IndexError(f"{self._root}: no such document; it holds {len(documents):,}")
        spans = documents.spans(numbers, self.index)
        damaged = np.flatnonzero((spans.starts < 0) | (spans.lengths < 0))
        if len(damaged):
            raise self.damaged_index(int(spans.shards[damaged[0]]))
        return spans


class _File:
    """A file open for reading; it is closed when nothing refers to it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

    def read(self, path: str, into: memoryview, start: int) -> None:
        """Read bytes of which one system call returned only a part, or none."""
        n_bytes, done = len(into), 0
        while done < n_bytes:
            n_read = os.preadv(self.fd, (into[done:],), start + done)
            if n_read <= 0:
                raise VerifyError(
                    f"{path}: it was cut while it was read: {done:,} of {n_bytes:,} bytes at "
                    f"{start:,}; see tokmill verify"
                )
            done += n_read


@dataclass(frozen=True, slots=True)
class _Caches:
    file: Callable[[str, int, str], _File]
    index: Callable[[str, int, int, str], Index]


@cache
def _caches() -> _Caches:
    """Return functions that open files; the files of the process that were used last stay open.

    They use at most half of the descriptors that the process may have. The sha256 of a manifest is
    part of the key, so that a new dataset at an old path is opened anew.
    """
    most_open = max(FEWEST_OPEN, _most_descriptors() // 4)
    return _Caches(lru_cache(most_open)(_opened), lru_cache(most_open)(_index))


def _most_descriptors() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 16_384 if limit == resource.RLIM_INFINITY else min(limit, 16_384)


def _opened(path: str, n_bytes: int, _sha256: str) -> _File:
    with read_errors(Path(path)), open_regular(Path(path), follow_links=True) as file:
        found = os.fstat(file.fileno()).st_size
        if found != n_bytes:
            raise VerifyError(
                f"{path}: {plural(found, 'byte')}, {n_bytes:,} by the manifest; see tokmill verify"
            )
        return _File(os.dup(file.fileno()))


def _index(path: str, n_documents: int, item_bytes: int, _sha256: str) -> Index:
    with read_errors(Path(path)):
        lengths, offsets, found_bytes = read_index(Path(path))
    if len(lengths) != n_documents or found_bytes != item_bytes:
        raise VerifyError(
            f"{path}: {plural(len(lengths), 'document')} of {plural(found_bytes, 'byte')} a token, "
            f"{n_documents:,} of {item_bytes} by the manifest; see tokmill verify"
        )
    return lengths.view(np.ndarray), offsets.view(np.ndarray)
