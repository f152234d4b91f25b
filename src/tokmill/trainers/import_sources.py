"""Files of tokens to import, and their documents in blocks of bounded size.

Megatron's `PREFIX.bin` and `PREFIX.idx` (see `dataset/sidecars.py`) may be of any integer type,
with any number of sequences; a document of several sequences becomes one document. A mask stands
beside the tokens as `PREFIX.mask`, a byte for each token of `PREFIX.bin`. datatrove's bytes are
those of `trainers/datatrove.py`. nanoGPT's stream has no boundaries but eos: an eos inside a
document divides it, and documents that were written without eos are one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import DATASET_FILE
from tokmill.dataset.sidecars import HEADER, MAGIC
from tokmill.errors import UsageError, VerifyError
from tokmill.storage import open_regular, read_errors
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    Flagged = tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None]
    """Tokens, and their mask: (n,) each."""

    Part = tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None, npt.NDArray[np.int64]]
    """Tokens, their mask, and the ends of documents among them, from 0 to n: (n_documents,)."""

    Arrays = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]
    """Of Megatron's index: lengths and byte pointers of sequences, first sequences of documents."""

BLOCK_TOKENS = 4 << 20
"""Tokens that are read at once."""

_END = np.dtype("<u8")
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS, _FLAGS = (6, 7), 1

_TWIN = "_mask"
"""End of the prefix of masks that `tokmill export` writes beside the prefix of tokens."""

_LOOKED_AT, _TELLING = 1 << 16, 64
"""Ids at the start of a stream that are looked at, and fewer that say nothing of their dtype."""


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


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads the files of a trainer.

    `title`: the trainer's name as its users write it. `find`: returns the files that a path of the
    command line names, in their order; it takes the path, the split, and the dtype if the user
    named it, else ''. `read`: yields the tokens of a file in their order, with the ends of
    documents; it takes the id of eos too. Both raise `UsageError` for files of another layout,
    `VerifyError` for damaged ones.
    """

    title: str
    find: Callable[[Path, str, str], list[TokenFile]]
    read: Callable[[TokenFile, int], Iterator[Part]]


def read_array(
    path: Path, dtype: np.dtype[Any], count: int, start: int = 0
) -> Iterator[npt.NDArray[Any]]:
    """Yield `count` values of a file from value `start` on, `BLOCK_TOKENS` at most at a time.

    Raises:
        VerifyError: the file is shorter, or cannot be read.
    """
    with read_errors(path), open_regular(path, follow_links=True) as file:
        file.seek(start * dtype.itemsize)
        while count:
            wanted = min(count, BLOCK_TOKENS)
            data = file.read(wanted * dtype.itemsize)
            if len(data) != wanted * dtype.itemsize:
                raise ValueError("shorter than its index says")
            count -= wanted
            yield np.frombuffer(data, dtype)


def read_tokens(file: TokenFile, count: int, start: int = 0) -> Iterator[Flagged]:
    """Yield `count` tokens of a file from token `start` on, with their mask, some at a time.

    Raises:
        VerifyError: a flag is neither 0 nor 1, or a file is shorter, or cannot be read.
    """
    masks = repeat(None) if file.mask is None else _flags(file.mask, count, start)
    return zip(read_array(file.path, file.dtype, count, start), masks, strict=False)


def _flags(path: Path, count: int, start: int) -> Iterator[npt.NDArray[np.uint8]]:
    for flags in read_array(path, np.dtype("u1"), count, start):
        if int(flags.max()) > 1:
            raise VerifyError(f"{path}: holds {int(flags.max())}, expected 0 or 1")
        yield flags


def with_ends(parts: Iterable[Flagged], ends: Iterator[npt.NDArray[np.int64]]) -> Iterator[Part]:
    """Yield the parts of a stream, each with the ends of documents that lie in it.

    `ends`: rising or equal, in tokens from the start of the stream.
    """
    position = 0
    known = np.empty(0, np.int64)
    for tokens, mask in parts:
        stop = position + len(tokens)
        while not len(known) or known[-1] <= stop:
            if (more := next(ends, None)) is None:
                break
            known = np.concatenate([known, more])
        n = int(np.searchsorted(known, stop, side="right"))
        yield tokens, mask, known[:n] - position
        known, position = known[n:], stop


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
    if not path.is_dir() and path.suffix not in (".bin", ".idx"):
        path = path.with_name(f"{path.name}.idx")
    elif path.suffix == ".bin":
        path = path.with_suffix(".idx")
    found = files_below(path, "*.idx", "PREFIX.bin and PREFIX.idx, or a directory of them")
    if not path.is_dir():
        return [_pair(path, split)]
    pairs = []
    for index in found:
        is_shard = DATASET_FILE.fullmatch(index.name) is not None
        # A dataset's own packed rows are its samples a second time.
        if not (is_shard and index.name.startswith("packed-")):
            is_val = is_shard and index.name.startswith("val-")
            pairs.append(_pair(index, "val" if is_val else split))
    return pairs


def _pair(index: Path, split: str) -> TokenFile:
    code, _, _ = _header(index)
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
    n_tokens, dtype = int(_arrays(index)[0].sum(dtype=np.int64)), np.dtype(_DTYPES[code])
    if not mask.is_file():
        return TokenFile(path, split, dtype, n_tokens, index)
    n_flags, n_values = mask.stat().st_size, path.stat().st_size // dtype.itemsize
    if n_flags != n_values:
        raise VerifyError(
            f"{mask}: {plural(n_flags, 'byte')}, expected one for each of the "
            f"{plural(n_values, 'token')} of {path.name}"
        )
    return TokenFile(path, split, dtype, n_tokens, index, mask)


def _header(index: Path) -> tuple[int, int, int]:
    """Return the code of the type, the sequences, and the entries of the document index."""
    with read_errors(index), index.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or header[:9] != MAGIC:
        raise UsageError(f"{index}: not an index of Megatron (it does not begin with MMIDIDX)")
    version, code, n_sequences, n_entries = struct.unpack("<QBQQ", header[9:])
    if version != 1:
        raise UsageError(f"{index}: version {version}, expected 1")
    expected = HEADER.size + 12 * n_sequences + 8 * n_entries
    if index.stat().st_size == expected + n_sequences:
        raise UsageError(f"{index}: has modes of sequences: multimodal data cannot be imported")
    if index.stat().st_size != expected or not n_entries:
        raise VerifyError(
            f"{index}: {plural(index.stat().st_size, 'byte')}, expected {expected:,} for "
            f"{plural(n_sequences, 'sequence')} and {n_entries:,} document indices"
        )
    return code, n_sequences, n_entries


def _arrays(index: Path) -> Arrays:
    """Return the arrays of an index, mapped."""
    _, n, n_entries = _header(index)
    body = np.memmap(index, np.uint8, "r", offset=HEADER.size)
    lengths = body[: 4 * n].view("<i4")
    pointers = body[4 * n : 12 * n].view("<i8")
    documents = body[12 * n : 12 * n + 8 * n_entries].view("<i8")
    if int(documents[0]) != 0 or int(documents[-1]) != n:
        raise VerifyError(
            f"{index}: documents begin with sequence {documents[0]} and end with {documents[-1]}, "
            f"expected 0 and {n}"
        )
    return lengths, pointers, documents


def _read_megatron(file: TokenFile, eos_id: int) -> Iterator[Part]:
    lengths, pointers, documents = _arrays(file.index or file.path)
    return with_ends(
        _tokens_megatron(file, lengths, pointers), _ends_megatron(file, lengths, documents)
    )


def _ends_megatron(
    file: TokenFile, lengths: npt.NDArray[np.int32], documents: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the ends of documents in tokens, in the order of the sequences."""
    position = 0
    for at in range(0, len(documents) - 1, BLOCK_TOKENS):
        bounds = np.asarray(documents[at : at + BLOCK_TOKENS + 1])
        if int(np.diff(bounds).min(initial=0)) < 0:
            raise VerifyError(f"{file.index}: the sequences of documents do not rise")
        first, last = int(bounds[0]), int(bounds[-1])
        sums = np.concatenate([[0], np.cumsum(lengths[first:last], dtype=np.int64)])
        ends = position + sums[bounds[1:] - first]
        position = int(ends[-1])
        yield ends


def _tokens_megatron(
    file: TokenFile, lengths: npt.NDArray[np.int32], pointers: npt.NDArray[np.int64]
) -> Iterator[Flagged]:
    """Yield the tokens of the sequences in their order, wherever they stand in the file.

    Sequences that stand one behind the other are read together.
    """
    item_bytes, n_bytes = file.dtype.itemsize, file.path.stat().st_size
    start = stop = 0
    for at in range(0, len(lengths), BLOCK_TOKENS):
        counts = lengths[at : at + BLOCK_TOKENS].astype(np.int64)
        begins = np.asarray(pointers[at : at + BLOCK_TOKENS])
        if int(counts.min()) < 0 or int(begins.min()) < 0 or (begins % item_bytes).any():
            raise VerifyError(f"{file.index}: negative length, or pointer to no token")
        if int(begins.max()) > n_bytes:
            raise VerifyError(f"{file.path}: shorter than its index says")
        begins = begins // item_bytes
        ends = begins + counts
        jumps = np.flatnonzero(begins[1:] != ends[:-1]) + 1
        for first, last in zip([0, *jumps], [*jumps, len(counts)], strict=True):
            if int(begins[first]) != stop:
                yield from read_tokens(file, stop - start, start)
                start = int(begins[first])
            stop = int(ends[last - 1])
    yield from read_tokens(file, stop - start, start)


def _find_datatrove(path: Path, split: str, dtype: str) -> list[TokenFile]:
    return [_with_index(one, split) for one in files_below(path, "*.ds", "X.ds files")]


def _with_index(path: Path, split: str) -> TokenFile:
    index, loss = path.with_name(f"{path.name}.index"), path.with_name(f"{path.name}.loss")
    if not index.is_file():
        raise UsageError(f"{index}: missing: without it, the ends of documents are unknown")
    if index.stat().st_size % _END.itemsize:
        raise VerifyError(
            f"{index}: {plural(index.stat().st_size, 'byte')} are no whole number of 8-byte ends "
            "of documents: it is damaged"
        )
    with index.open("rb") as file:
        file.seek(-_END.itemsize if index.stat().st_size else 0, 2)
        n_tokens = int.from_bytes(file.read(), "little")
    n_bytes = path.stat().st_size
    item_bytes = n_bytes // n_tokens if n_tokens else 2
    if item_bytes not in (2, 4) or item_bytes * n_tokens != n_bytes:
        raise VerifyError(
            f"{path}: {plural(n_bytes, 'byte')} for the {plural(n_tokens, 'token')} of its index, "
            "expected 2 or 4 each"
        )
    if loss.is_file() and loss.stat().st_size != n_tokens:
        raise VerifyError(f"{loss}: {plural(loss.stat().st_size, 'byte')}, expected {n_tokens:,}")
    mask = loss if loss.is_file() else None
    return TokenFile(path, split, np.dtype(f"<u{item_bytes}"), n_tokens, index, mask)


def _read_datatrove(file: TokenFile, eos_id: int) -> Iterator[Part]:
    return with_ends(read_tokens(file, file.n_tokens), _ends(file.index or file.path))


def _ends(index: Path) -> Iterator[npt.NDArray[np.int64]]:
    last = 0
    for ends in read_array(index, _END, index.stat().st_size // _END.itemsize):
        found = ends.astype(np.int64)
        if int(np.diff(found, prepend=last).min()) < 0:
            raise VerifyError(f"{index}: the ends of documents do not rise")
        last = int(found[-1])
        yield found


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
    first = next(read_array(path, np.dtype("<u2"), min(_LOOKED_AT, path.stat().st_size // 2)), None)
    if first is not None and len(first) >= _TELLING and first[1::2].max() < 4 <= first[::2].max():
        raise UsageError(
            f"{path}: every second id is below 4, as in a file of uint32: --dtype uint32 reads it"
        )


def _read_nanogpt(file: TokenFile, eos_id: int) -> Iterator[Part]:
    left = file.n_tokens
    for tokens, _ in read_tokens(file, file.n_tokens):
        left -= len(tokens)
        ends = np.flatnonzero(tokens == eos_id) + 1
        if not left and tokens[-1] != eos_id:
            ends = np.append(ends, len(tokens))
        yield tokens, None, ends


MEGATRON = Importer("Megatron-LM", _find_megatron, _read_megatron)
NANOGPT = Importer("nanoGPT", _find_nanogpt, _read_nanogpt)
DATATROVE = Importer("datatrove", _find_datatrove, _read_datatrove)
