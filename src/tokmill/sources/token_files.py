"""Files of tokens that another program wrote, and their documents in batches of bounded size.

Megatron's `PREFIX.bin` and `PREFIX.idx` (see `dataset/sidecars.py`) may be of any integer type,
with any number of sequences; a document of several sequences becomes one document. A mask stands
beside the tokens as `PREFIX.mask`, a byte for each token of `PREFIX.bin`. datatrove's bytes are
those of `trainers/datatrove.py`. nanoGPT's stream has no boundaries but eos: an eos inside a
document divides it, and documents that were written without eos are one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.contents import parse_export_record
from tokmill.dataset.layout import DATASET_FILE, EXPORT_RECORD
from tokmill.dataset.mapped import map_file
from tokmill.dataset.reader import read_intact_manifest, surrounding_dataset
from tokmill.dataset.sidecars import HEADER, MAGIC, MAX_LENGTH
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.opening import open_regular, read_named
from tokmill.storage import read_errors, storage_errors
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.dataset.plan_file import TokenRulesEntry
    from tokmill.sources.slices import SourceFile

    Numbers = npt.NDArray[np.int64]

BLOCK_TOKENS = 1 << 20
"""Tokens, and entries of an index, that are read at once; a longer document is read alone."""

_END = np.dtype("<u8")
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS, _FLAGS = (6, 7), 1

_TWIN = "_mask"
"""End of the prefix of masks that `tokmill export` writes beside the prefix of tokens."""

_LOOKED_AT, _TELLING = 1 << 16, 64
"""Ids at the start of a stream that are looked at, and fewer that say nothing of their dtype."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole documents, end to end.

    `tokens`: (n,) of the file's dtype. `mask`: (n,), 1 = trained; None without masks. `lengths`:
    (n_documents,) in tokens, which sum to n.
    """

    tokens: npt.NDArray[Any]
    mask: npt.NDArray[np.uint8] | None
    lengths: Numbers


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
    """

    path: Path
    split: str
    dtype: np.dtype[Any]
    n_tokens: int
    index: Path | None = None
    mask: Path | None = None

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the tokens."""
        return self.n_tokens * self.dtype.itemsize

    @property
    def paths(self) -> list[Path]:
        """Return all files that are read."""
        return [path for path in (self.path, self.index, self.mask) if path is not None]

    @property
    def stamp(self) -> str:
        """Return what changes whenever the index or the mask is written; '' without them.

        Raises:
            StorageError: one cannot be read.
        """
        stamps = []
        for path in self.paths[1:]:
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
            raise self.too_long()
        first = 0
        while first < len(of_documents):
            last = int(np.searchsorted(ends, ends[first] + BLOCK_TOKENS, "right")) - 1
            last = max(last, first + 1)
            own = slice(int(bounds[first]), int(bounds[last]))
            spans = _spans(starts[own], lengths[own])
            mask = None if self.mask is None else _flags(self.mask, spans)
            yield Batch(read(self.path, self.dtype, spans), mask, of_documents[first:last])
            first = last

    def too_long(self) -> VerifyError:
        """Return the error of a document that no index can describe."""
        return VerifyError(
            f"{self.path}: a document of more than {MAX_LENGTH:,} tokens: name the token that "
            "ends documents with --eos-token"
        )


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads the files of a trainer.

    `title`: the trainer's name as its users write it. `find`: returns the files that a path of the
    command line names, in their order; it takes the path, the split, and the dtype if the user
    named it, else ''. `read`: yields the documents of a file in their order; it takes the id of eos
    too. Both raise `UsageError` for files of another layout, `VerifyError` for damaged ones.
    """

    title: str
    find: Callable[[Path, str, str], list[TokenFile]]
    read: Callable[[TokenFile, int], Iterator[Batch]]


def read(path: Path, dtype: np.dtype[Any], spans: Sequence[tuple[int, int]]) -> npt.NDArray[Any]:
    """Return the values of spans of a file, end to end; each is its start and its length.

    Raises:
        VerifyError: the file is shorter, or cannot be read.
    """
    found = [np.empty(0, dtype)]
    with read_errors(path), open_regular(path, follow_links=True) as file:
        for start, n in spans:
            file.seek(start * dtype.itemsize)
            found.append(np.fromfile(file, dtype, n))
            if len(found[-1]) < n:
                raise ValueError("shorter than its index says")
    return np.concatenate(found)


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


def _find_megatron(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return the pairs of a prefix, a file of a pair or a directory."""
    if not path.is_dir():
        is_file = path.suffix in (".bin", ".idx")
        path = path.with_suffix(".idx") if is_file else path.with_name(f"{path.name}.idx")
    pairs = []
    for index in files_below(path, "*.idx", "PREFIX.bin and PREFIX.idx, or a directory of them"):
        is_shard = path.is_dir() and DATASET_FILE.fullmatch(index.name) is not None
        # A dataset's own packed rows are its samples a second time.
        if not (is_shard and index.name.startswith("packed-")):
            is_val = is_shard and index.name.startswith("val-")
            pairs.append(_pair(index, "val" if is_val else split))
    return pairs


def _pair(index: Path, split: str) -> TokenFile:
    code, lengths, _, _ = _megatron_index(index)
    if code == _FLAGS and index.stem.endswith(_TWIN):
        new = f"{index.stem.removesuffix(_TWIN)}.mask"
        raise UsageError(
            f"{index}: a mask: rename {index.stem}.bin to {new}, and move {index.name} away"
        )
    if code not in _DTYPES:
        kind = "floats" if code in _FLOATS else f"values of type {code}"
        raise UsageError(f"{index}: holds {kind}, expected ids of tokens")
    path, mask = index.with_suffix(".bin"), index.with_suffix(".mask")
    if not path.is_file():
        raise UsageError(f"{path}: expected beside {index.name}, found nothing")
    file = TokenFile(path, split, np.dtype(_DTYPES[code]), int(lengths.sum(dtype=np.int64)), index)
    if not mask.exists():
        return file
    n_flags, n_values = mask.stat().st_size, path.stat().st_size // file.dtype.itemsize
    if n_flags != n_values:
        raise VerifyError(
            f"{mask}: {plural(n_flags, 'byte')}, expected one for each of the "
            f"{plural(n_values, 'token')} of {path.name}"
        )
    return replace(file, mask=mask)


def _megatron_index(index: Path) -> tuple[int, npt.NDArray[np.int32], Numbers, Numbers]:
    """Return the code of the type, and the arrays of an index, mapped.

    These are the lengths of sequences in tokens, their places in bytes, and the first sequence of
    each document, with the number of sequences at the end.
    """
    with read_errors(index), open_regular(index, follow_links=True) as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise UsageError(f"{index}: not an index of Megatron (it does not begin with MMIDIDX)")
    _, version, code, n, n_entries = HEADER.unpack(header)
    if version != 1:
        raise UsageError(f"{index}: version {version}, expected 1")
    n_bytes, expected = index.stat().st_size, HEADER.size + 12 * n + 8 * n_entries
    if n_bytes == expected + n:
        raise UsageError(f"{index}: has modes of sequences: multimodal data cannot be imported")
    if n_bytes != expected or not n_entries:
        raise VerifyError(
            f"{index}: {plural(n_bytes, 'byte')}, expected {expected:,} for "
            f"{plural(n, 'sequence')} and {n_entries:,} document indices"
        )
    with read_errors(index):
        body = map_file(index, offset=HEADER.size)
    lengths, pointers = body[: 4 * n].view("<i4"), body[4 * n : 12 * n].view("<i8")
    documents = body[12 * n :].view("<i8")
    if int(documents[0]) != 0 or int(documents[-1]) != n:
        raise VerifyError(
            f"{index}: documents begin with sequence {documents[0]} and end with {documents[-1]}, "
            f"expected 0 and {n}"
        )
    return code, lengths, pointers, documents


def _read_megatron(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    """Yield documents in the order of the index, wherever their sequences stand in the file."""
    _, lengths, pointers, documents = _megatron_index(file.index or file.path)
    item_bytes, n_bytes = file.dtype.itemsize, file.path.stat().st_size
    for at in range(0, len(documents) - 1, BLOCK_TOKENS):
        bounds = np.array(documents[at : at + BLOCK_TOKENS + 1])
        if int(np.diff(bounds).min()) < 0 or int(bounds[-1]) > len(lengths):
            raise VerifyError(f"{file.index}: the sequences of documents do not rise")
        own = slice(int(bounds[0]), int(bounds[-1]))
        counts, begins = lengths[own].astype(np.int64), np.array(pointers[own])
        lowest = min(int(counts.min(initial=0)), int(begins.min(initial=0)))
        if lowest < 0 or (begins % item_bytes).any():
            raise VerifyError(f"{file.index}: negative length, or pointer to no token")
        if int(begins.max(initial=0)) > n_bytes:
            raise VerifyError(f"{file.path}: shorter than its index says")
        yield from file.documents(begins // item_bytes, counts, bounds - bounds[0])


def _find_datatrove(path: Path, split: str, dtype: str) -> list[TokenFile]:
    return [_with_index(one, split) for one in files_below(path, "*.ds", "X.ds files")]


def _with_index(path: Path, split: str) -> TokenFile:
    index, loss = path.with_name(f"{path.name}.index"), path.with_name(f"{path.name}.loss")
    if not index.is_file():
        raise UsageError(f"{index}: missing: without it, the ends of documents are unknown")
    n_ends, rest = divmod(index.stat().st_size, _END.itemsize)
    if rest:
        raise VerifyError(
            f"{index}: {plural(index.stat().st_size, 'byte')} are no whole number of 8-byte ends "
            "of documents: it is damaged"
        )
    n_tokens = int(read(index, _END, [(n_ends - 1, 1)])[0]) if n_ends else 0
    n_bytes = path.stat().st_size
    item_bytes = n_bytes // n_tokens if n_tokens else 2
    if item_bytes not in (2, 4) or item_bytes * n_tokens != n_bytes:
        raise VerifyError(
            f"{path}: {plural(n_bytes, 'byte')} for the {plural(n_tokens, 'token')} of its index, "
            "expected 2 or 4 each"
        )
    if loss.exists() and loss.stat().st_size != n_tokens:
        raise VerifyError(f"{loss}: {plural(loss.stat().st_size, 'byte')}, expected {n_tokens:,}")
    mask = loss if loss.exists() else None
    return TokenFile(path, split, np.dtype(f"<u{item_bytes}"), n_tokens, index, mask)


def _read_datatrove(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    index = file.index or file.path
    n_ends, begin = index.stat().st_size // _END.itemsize, 0
    for at in range(0, n_ends, BLOCK_TOKENS):
        ends = read(index, _END, [(at, min(BLOCK_TOKENS, n_ends - at))]).astype(np.int64)
        lengths = np.diff(ends, prepend=begin)
        if int(lengths.min()) < 0:
            raise VerifyError(f"{index}: the ends of documents do not rise")
        yield from file.documents(ends - lengths, lengths, np.arange(len(ends) + 1))
        begin = int(ends[-1])


def _find_nanogpt(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return a file, or `train.bin` and `val.bin` of a directory."""
    places = [(path, split)]
    if path.is_dir():
        splits = ("train", "val") if split == "train" else ("val",)
        places = [(path / f"{one}.bin", one) for one in splits]
        places = [(one, name) for one, name in places if one.is_file()]
    if not places or not places[0][0].is_file():
        raise UsageError(f"{path}: expected a .bin file, or a directory with train.bin")
    kind = np.dtype("<u4") if dtype == "uint32" else np.dtype("<u2")
    if kind.itemsize == 2:
        _check_not_wide(places[0][0])
    found = []
    for one, name in places:
        n_bytes = one.stat().st_size
        if n_bytes % kind.itemsize:
            raise UsageError(
                f"{one}: {n_bytes:,} bytes are no whole number of {kind.itemsize}-byte tokens: "
                "choose another --dtype"
            )
        found.append(TokenFile(one, name, kind, n_bytes // kind.itemsize))
    return found


def _check_not_wide(path: Path) -> None:
    """Check that a stream read as uint16 is not one of uint32; raises `UsageError`.

    The upper halves of ids below 2^18 are 0 to 3, which no text has as every second id.
    """
    first = read(path, np.dtype("<u2"), [(0, min(_LOOKED_AT, path.stat().st_size // 2))])
    if len(first) >= _TELLING and first[1::2].max() < 4 <= first[::2].max():
        raise UsageError(
            f"{path}: every second id is below 4, as in a file of uint32: --dtype uint32 reads it"
        )


def _read_nanogpt(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    """Yield the documents that end in a block; where none does, a block twice as long is read."""
    start, n = 0, BLOCK_TOKENS
    while start < file.n_tokens:
        tokens = read(file.path, file.dtype, [(start, min(n, file.n_tokens - start))])
        ends = np.flatnonzero(tokens == eos_id) + 1
        if start + len(tokens) == file.n_tokens and tokens[-1] != eos_id:
            ends = np.append(ends, len(tokens))
        lengths = np.diff(ends, prepend=0)
        if int(lengths.max() if len(ends) else len(tokens)) > MAX_LENGTH:
            raise file.too_long()
        if len(ends):
            yield Batch(tokens[: ends[-1]], None, lengths)
            start, n = start + int(ends[-1]), BLOCK_TOKENS
        else:
            n *= 2


MEGATRON = Importer("Megatron-LM", _find_megatron, _read_megatron)
NANOGPT = Importer("nanoGPT", _find_nanogpt, _read_nanogpt)
DATATROVE = Importer("datatrove", _find_datatrove, _read_datatrove)

IMPORTERS: dict[str, Importer] = {"megatron": MEGATRON, "datatrove": DATATROVE, "nanogpt": NANOGPT}
"""The programs whose files can be read, by the name in `tokmill import --from`."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """How the files of an import are read.

    Attributes:
        trainer: the program that wrote them, a key of `IMPORTERS`.
        adds_eos: whether eos is added to documents that do not end with it.
        dtype: of ids, if the layout does not record it; ''.
        val: the paths of the files that are of the val split.
    """

    trainer: str
    adds_eos: bool = False
    dtype: str = ""
    val: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "trainer": self.trainer,
            "adds_eos": self.adds_eos,
            "dtype": self.dtype,
            "val": list(self.val),
        }

    @classmethod
    def of(cls, entry: TokenRulesEntry) -> TokenRules:
        """Return the rules that a plan states; raises `ValueError` for another trainer."""
        if entry.trainer not in IMPORTERS:
            raise ValueError(f"trainer {entry.trainer!r}")
        return cls(entry.trainer, entry.adds_eos, entry.dtype, entry.val)

    def open(self, file: SourceFile) -> TokenFile:
        """Return a file of the plan, with what stands beside it.

        Raises:
            TokmillError: it is damaged, or gone.
            StorageError: its index or its mask is not the one of the plan.
        """
        split = "val" if file.path in self.val else "train"
        opened = IMPORTERS[self.trainer].find(Path(file.path), split, self.dtype)[0]
        if opened.stamp != file.stamp:
            raise StorageError(
                f"{file.path}: its index or its mask was changed since the run was planned: plan "
                "the run again, into another output or with --overwrite"
            )
        return opened
