"""Files of tokens that another program wrote, and their documents in batches of bounded size.

What the layouts of `token_layouts.py` have in common. An index says where documents stand, or eos
ends them. Where eos does, a document may begin in one file and end in the next one of its stream:
it belongs to the file in which it begins, so that each file can be read alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.contents import parse_export_record
from tokmill.dataset.layout import EXPORT_RECORD
from tokmill.dataset.reader import read_intact_manifest, surrounding_dataset
from tokmill.dataset.sidecars import MAX_LENGTH
from tokmill.errors import UsageError, VerifyError
from tokmill.opening import open_regular, read_named
from tokmill.storage import read_errors, storage_errors
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

BLOCK_TOKENS = 1 << 20
"""Tokens, and entries of an index, that are read at once; a longer document is read alone."""

_MOST_HELD = 1 << 27
"""Tokens of a document that eos ends, which is held in memory: a longer one is a wrong eos."""

_LOOKED_AT, _TELLING = 1 << 16, 64
"""Ids at the start of a stream that are looked at, and fewer that say nothing of their dtype."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole documents, end to end.

    `tokens`: (n,) of the file's dtype. `mask`: (n,), 1 = trained; None without masks. `lengths`:
    (n_documents,) in tokens, which sum to n. `n_skipped`: tokens before them that are of no
    document of this file.
    """

    tokens: npt.NDArray[Any]
    mask: npt.NDArray[np.uint8] | None
    lengths: Numbers
    n_skipped: int = 0


class Body(NamedTuple):
    """The tokens of a file: how many, and the byte at which they begin."""

    path: Path
    n_tokens: int
    first_byte: int = 0


@dataclass(frozen=True, slots=True)
class TokenFile:
    """One file of tokens with what stands beside it.

    Attributes:
        path: of the tokens.
        split: `train` or `val`.
        dtype: of a token on disk.
        n_tokens: number of tokens in the file.
        index: the file with the ends of documents; None if eos ends them.
        mask: the file with a byte for each token, 1 = trained; None without masks.
        first_byte: where the tokens begin.
        header: another file that says how this one is read; None if there is none.
        stream: the files of which this one is `number`, if documents run on from file to file.
        number: see `stream`.
        eos_first: whether eos stands before each document of the stream, and not behind it.
    """

    path: Path
    split: str
    dtype: np.dtype[Any]
    n_tokens: int
    index: Path | None = None
    mask: Path | None = None
    first_byte: int = 0
    header: Path | None = None
    stream: Sequence[Body] = ()
    number: int = 0
    eos_first: bool = False

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the tokens."""
        return self.n_tokens * self.dtype.itemsize

    @property
    def paths(self) -> list[Path]:
        """Return all files that are read, but for others of the stream."""
        paths = (self.path, self.index, self.mask, self.header)
        return [path for path in paths if path is not None]

    @property
    def stamp(self) -> str:
        """Return what changes whenever a file beside it is written; '' if there is none.

        Raises:
            StorageError: one cannot be read.
        """
        neighbours = [*self.stream[max(self.number - 1, 0) : self.number + 2]]
        beside = [*self.paths[1:], *(one.path for one in neighbours if one.path != self.path)]
        stamps = []
        for path in beside:
            with storage_errors(path):
                status = path.stat()
            stamps.append(f"{path.suffix} {status.st_size} {status.st_mtime_ns}")
        return ", ".join(stamps)

    def documents(self, starts: Numbers, lengths: Numbers, bounds: Numbers) -> Iterator[Batch]:
        """Yield documents that an index describes, about `BLOCK_TOKENS` at a time.

        Args:
            starts: (n,) where sequences begin in the file, in tokens.
            lengths: (n,) in tokens.
            bounds: (n_documents + 1,): document i has the sequences `bounds[i]:bounds[i + 1]`.

        Raises:
            VerifyError: a document is too long, a flag of the mask is neither 0 nor 1, or a file is
                shorter than its index says, or cannot be read.
        """
        ends = np.append(0, np.cumsum(lengths))[bounds]
        of_documents = np.diff(ends)
        if int(of_documents.max(initial=0)) > MAX_LENGTH:
            raise VerifyError(f"{self.path}: a document of more than {MAX_LENGTH:,} tokens")
        first = 0
        while first < len(of_documents):
            last = int(np.searchsorted(ends, ends[first] + BLOCK_TOKENS, "right")) - 1
            last = max(last, first + 1)
            own = slice(int(bounds[first]), int(bounds[last]))
            tokens, mask = self._read(_spans(starts[own], lengths[own]))
            yield Batch(tokens, mask, of_documents[first:last])
            first = last

    def documents_ending(self, ends: npt.NDArray[Any], origin: int = 0) -> Iterator[Batch]:
        """Yield documents that stand one behind the other; see `documents`.

        `ends`: (n_documents,) in tokens, mapped; `origin` is the first token of the file. Raises
        `VerifyError` if they do not rise, too.
        """
        begin = 0
        for some in blocks_of(len(ends)):
            own = np.asarray(ends[some]).astype(np.int64) - origin
            lengths = np.diff(own, prepend=begin)
            if int(lengths.min()) < 0:
                raise VerifyError(f"{self.index}: the ends of documents do not rise")
            yield from self.documents(own - lengths, lengths, np.arange(len(own) + 1))
            begin = int(own[-1])

    def documents_at_eos(self, eos_id: int) -> Iterator[Batch]:
        """Yield the documents that begin in the file, and that eos ends; the last may lack it.

        A block in which none ends is read again, twice as long.

        Raises:
            VerifyError: a document is too long; or see `documents`.
        """
        first = self._first_start(eos_id)
        start, n = first, BLOCK_TOKENS
        while start < self.n_tokens:
            n = min(n, self.n_tokens - start)
            tokens, mask = self._read([(start, n)])
            ends = np.flatnonzero(tokens == eos_id) + 1
            if start + n == self.n_tokens and tokens[-1] != eos_id:
                tokens = np.concatenate([tokens, *self._tail(eos_id)])
                ends = np.append(ends, len(tokens))
            lengths = np.diff(ends, prepend=0)
            self._check_held(int(lengths.max() if len(ends) else n))
            if len(ends):
                stop = int(ends[-1])
                mask = None if mask is None else mask[:stop]
                yield Batch(tokens[:stop], mask, lengths, first)
                start, n, first = start + stop, BLOCK_TOKENS, 0
            else:
                n = min(2 * n, _MOST_HELD + 1)

    def _first_start(self, eos_id: int) -> int:
        """Return where the first document begins that the file before does not own."""
        before = [one for one in self.stream[: self.number] if one.n_tokens]
        if not before:
            begins_with_eos = self.n_tokens > 0 and int(self._own([(0, 1)])[0]) == eos_id
            return 1 if self.eos_first and begins_with_eos else 0
        last = read(
            before[-1].path, self.dtype, [(before[-1].n_tokens - 1, 1)], before[-1].first_byte
        )
        if last[0] == eos_id:
            return 0
        for some in blocks_of(self.n_tokens):
            ends = np.flatnonzero(self._own([(some.start, some.stop - some.start)]) == eos_id)
            if len(ends):
                return int(some.start + ends[0] + 1)
        return self.n_tokens

    def _tail(self, eos_id: int) -> Iterator[npt.NDArray[Any]]:
        """Yield what the last document has in the next files of the stream, with its eos."""
        n_read = 0
        for body in self.stream[self.number + 1 :]:
            for some in blocks_of(body.n_tokens):
                span = (some.start, some.stop - some.start)
                tokens = read(body.path, self.dtype, [span], body.first_byte)
                ends = np.flatnonzero(tokens == eos_id)
                if len(ends):
                    yield tokens[: ends[0] + 1]
                    return
                yield tokens
                n_read += len(tokens)
                self._check_held(n_read)

    def _own(self, spans: Sequence[tuple[int, int]]) -> npt.NDArray[Any]:
        return read(self.path, self.dtype, spans, self.first_byte)

    def _read(
        self, spans: Sequence[tuple[int, int]]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None]:
        """Return tokens of the file, and their mask."""
        return self._own(spans), None if self.mask is None else _flags(self.mask, spans)

    def _check_held(self, n_tokens: int) -> None:
        """Check the length of a document without an end so far; raises `VerifyError`."""
        most = min(MAX_LENGTH, _MOST_HELD)
        if n_tokens > most:
            raise VerifyError(
                f"{self.path}: a document of more than {plural(most, 'token')}: name the token "
                "that ends documents with --eos-token"
            )


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads the files of a trainer.

    `title`: the trainer's name as its users write it. `find`: returns the files that a path of the
    command line names, in their order; it takes the path, the split, and the dtype if the user
    named it, else ''. `read`: yields the documents of a file in their order; it takes the id of eos
    too. Both raise `UsageError` for files of another layout, `VerifyError` for damaged ones.
    `takes_dtype`: whether its files may not say the dtype. `runs_on`: whether documents run on from
    file to file.
    """

    title: str
    find: Callable[[Path, str, str], list[TokenFile]]
    read: Callable[[TokenFile, int], Iterator[Batch]]
    takes_dtype: bool = False
    runs_on: bool = False


def read(
    path: Path, dtype: np.dtype[Any], spans: Sequence[tuple[int, int]], first_byte: int = 0
) -> npt.NDArray[Any]:
    """Return the values of spans of a file, end to end; each is its start and its length.

    Raises:
        VerifyError: the file is shorter, or cannot be read.
    """
    found = [np.empty(0, dtype)]
    with read_errors(path), open_regular(path, follow_links=True) as file:
        for start, n in spans:
            file.seek(first_byte + start * dtype.itemsize)
            found.append(np.fromfile(file, dtype, n))
            if len(found[-1]) < n:
                raise ValueError("shorter than its index says")
    return np.concatenate(found)


def blocks_of(n: int) -> Iterator[slice]:
    """Yield the spans of n entries that are read at once."""
    for start in range(0, n, BLOCK_TOKENS):
        yield slice(start, min(start + BLOCK_TOKENS, n))


def _spans(starts: Numbers, lengths: Numbers) -> list[tuple[int, int]]:
    """Return the spans of sequences; those that stand one behind the other are one."""
    jumps = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
    bounds = pairwise([0, *jumps.tolist(), len(starts)])
    return [(int(starts[i]), int(lengths[i:j].sum())) for i, j in bounds if i < j]


def _flags(path: Path, spans: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint8]:
    flags = read(path, np.dtype("u1"), spans)
    if int(flags.max(initial=0)) > 1:
        raise VerifyError(f"{path}: holds {int(flags.max())}, expected 0 or 1")
    return flags


def checked_files(paths: Sequence[Path]) -> CheckedFiles:
    """Return files with the sums of the export or the dataset that the first one is in."""
    path = paths[0].resolve()
    exports = (folder for folder in path.parents if (folder / EXPORT_RECORD).is_file())
    directory = next(exports, surrounding_dataset(path))
    if directory is None:
        return CheckedFiles(None, {})
    record = directory / EXPORT_RECORD
    if record.is_file():
        with storage_errors(record):
            content = read_named(record)
        files = parse_export_record(content, str(record))["files"]
        entries = [FileEntry.from_json(file) for file in files]
    else:
        entries = list(read_intact_manifest(directory).files)
    listed = CheckedFiles.of(directory, entries).entries
    found = {one: listed[one.resolve()] for one in paths if one.resolve() in listed}
    return CheckedFiles(directory, found)


def files_below(path: Path, pattern: str, wanted: str) -> Sequence[Path]:
    """Return the file itself, or the files of a pattern below a directory, sorted.

    Raises:
        UsageError: there are none; `wanted` says what was expected.
    """
    paths = sorted(path.rglob(pattern)) if path.is_dir() else [path]
    found = [one for one in paths if one.is_file()]
    if not found:
        raise UsageError(f"{path}: expected {wanted}, found nothing")
    return found


def check_not_wide(path: Path, first_byte: int = 0) -> None:
    """Check that a stream read as uint16 is not one of uint32; raises `UsageError`.

    The upper halves of ids below 2^18 are 0 to 3, which no text has as every second id.
    """
    n = (path.stat().st_size - first_byte) // 2
    first = read(path, np.dtype("<u2"), [(0, min(_LOOKED_AT, n))], first_byte)
    if len(first) >= _TELLING and first[1::2].max() < 4 <= first[::2].max():
        raise UsageError(
            f"{path}: every second id is below 4, as in a file of uint32: --dtype uint32 reads it"
        )
