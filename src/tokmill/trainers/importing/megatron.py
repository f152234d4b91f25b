"""Megatron's `PREFIX.bin` and `PREFIX.idx`, of any integer type, with any number of sequences.

A document of several sequences becomes one document. A mask stands beside the tokens as a pair
`PREFIX_mask.bin`, `PREFIX_mask.idx`, or as `PREFIX.mask`, a byte for each token of `PREFIX.bin`.
See `dataset/idx_file.py` for the bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.idx_file import HEADER, MAGIC
from tokmill.dataset.layout import DATASET_FILE
from tokmill.errors import UsageError, VerifyError
from tokmill.storage import read_errors
from tokmill.trainers.importing.blocks import (
    BLOCK_TOKENS,
    TokenFile,
    files_below,
    joined,
    read_array,
    read_mask,
)
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.trainers.importing.blocks import Block

_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS = (6, 7)
_FLAGS = 1

_TWIN = "_mask"
"""End of the prefix of masks, which `tokmill export` writes beside the prefix of tokens."""


class Megatron:
    """Reads the files of Megatron-LM, NeMo and gpt-neox."""

    title = "Megatron-LM"

    def find(self, path: Path, split: str, dtype: str) -> list[TokenFile]:
        """Return the pairs of a prefix, a file of a pair or a directory; see `Importer.find`."""
        if dtype:
            raise UsageError("--dtype: Megatron's .idx names the type: leave it out")
        if not path.is_dir() and path.suffix not in (".bin", ".idx"):
            path = path.with_name(f"{path.name}.idx")
        elif path.suffix == ".bin":
            path = path.with_suffix(".idx")
        found = files_below(path, "*.idx", "PREFIX.bin and PREFIX.idx, or a directory of them")
        if path.is_dir():
            found = [one for one in found if not (_is_twin(one) or _is_packed(one))]
        elif _is_twin(path):
            raise UsageError(f"{path}: is a mask: name the tokens, {_tokens_of(path).stem}")
        return [_pair(index, _split(index, split) if path.is_dir() else split) for index in found]

    def read(self, file: TokenFile, eos_id: int) -> Iterator[Block]:
        """Yield the documents, and their masks; see `Importer.read`."""
        del eos_id
        lengths, pointers, documents = _arrays(file.index or file.path)
        masks = None if file.mask is None else _masks(file.mask, file, lengths, pointers)
        return joined(_tokens(file, lengths, pointers), _ends(file, lengths, documents), masks)


def _split(index: Path, split: str) -> str:
    """Return `val` for a shard of val among the files of a dataset, else `split`."""
    is_shard = DATASET_FILE.fullmatch(index.name) is not None
    return "val" if is_shard and index.name.startswith("val-") else split


def _is_packed(index: Path) -> bool:
    """Return whether a dataset's own packed rows stand there: its samples a second time."""
    return index.name.startswith("packed-") and DATASET_FILE.fullmatch(index.name) is not None


def _is_twin(index: Path) -> bool:
    return index.stem.endswith(_TWIN) and _tokens_of(index).is_file()


def _tokens_of(twin: Path) -> Path:
    return twin.with_name(f"{twin.stem.removesuffix(_TWIN)}.idx")


def _pair(index: Path, split: str) -> TokenFile:
    code, n_sequences, _ = _header(index)
    if code not in _DTYPES:
        kind = "floats" if code in _FLOATS else f"values of type {code}"
        raise UsageError(f"{index}: holds {kind}, expected ids of tokens")
    path = index.with_suffix(".bin")
    if not path.is_file():
        raise UsageError(f"{path}: expected beside {index.name}, found nothing")
    if code == _FLAGS and index.stem.endswith(_TWIN):
        raise UsageError(f"{index}: a mask, and its tokens {_tokens_of(index).name} are missing")
    lengths, _, _ = _arrays(index)
    steps = range(0, n_sequences, BLOCK_TOKENS)
    n_tokens = sum(int(lengths[at : at + BLOCK_TOKENS].sum(dtype=np.int64)) for at in steps)
    dtype = np.dtype(_DTYPES[code])
    return TokenFile(path, split, dtype, n_tokens, index, _mask_of(index, path, dtype.itemsize))


def _mask_of(index: Path, tokens: Path, item_bytes: int) -> Path | None:
    """Return the flags beside the tokens of a pair, one for each; None if there are none."""
    twin, sidecar = index.with_name(f"{index.stem}{_TWIN}.idx"), index.with_suffix(".mask")
    found = [one for one in (twin, sidecar) if one.is_file()]
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(f"{twin}: {index.stem} has another mask, {sidecar.name}: move one away")
    flags = twin.with_suffix(".bin") if found == [twin] else sidecar
    _check_places(index, twin if found == [twin] else None, item_bytes)
    if not flags.is_file():
        raise UsageError(f"{flags}: expected beside {twin.name}, found nothing")
    with read_errors(flags):
        n_flags, n_bytes = flags.stat().st_size, tokens.stat().st_size
    if n_flags * item_bytes != n_bytes:
        raise VerifyError(
            f"{flags}: {plural(n_flags, 'byte')}, expected one for each of the "
            f"{plural(n_bytes // item_bytes, 'token')} of {tokens.name}"
        )
    return flags


def _check_places(index: Path, twin: Path | None, item_bytes: int) -> None:
    """Check that flag i belongs to token i of the file; raises `UsageError`, `VerifyError`."""
    ours: tuple[npt.NDArray[Any], ...] = _arrays(index)
    theirs: tuple[npt.NDArray[Any], ...] | None = None
    if twin is not None:
        if _header(twin)[0] != _FLAGS:
            raise UsageError(
                f"{twin}: holds no bytes, so it is no mask of {index.stem}: move one of them away"
            )
        theirs = _arrays(twin)
    if theirs is not None and [*map(len, ours)] != [*map(len, theirs)]:
        raise VerifyError(f"{twin}: has other sequences than {index.name}")
    for at in range(0, max(map(len, ours)), BLOCK_TOKENS):
        lengths, pointers, documents = (array[at : at + BLOCK_TOKENS] for array in ours)
        wanted = [lengths, pointers // item_bytes, documents]
        found = wanted if theirs is None else [array[at : at + BLOCK_TOKENS] for array in theirs]
        is_same = all(map(np.array_equal, wanted, found))
        if not is_same or np.any(pointers % item_bytes):
            raise VerifyError(f"{twin or index}: a sequence stands elsewhere than its mask")


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


def _arrays(
    index: Path,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return lengths, byte pointers and first sequences of documents, mapped."""
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


def _ends(
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


def _tokens(
    file: TokenFile, lengths: npt.NDArray[np.int32], pointers: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.generic]]:
    """Yield the tokens of the sequences in their order, wherever they stand in the file."""
    item_bytes = file.dtype.itemsize
    for start, stop in _runs(file, lengths, pointers):
        yield from read_array(file.path, file.dtype, (stop - start) // item_bytes, start)


def _masks(
    path: Path, file: TokenFile, lengths: npt.NDArray[np.int32], pointers: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the flags of the tokens, which stand where the tokens stand in their file."""
    item_bytes = file.dtype.itemsize
    for start, stop in _runs(file, lengths, pointers):
        yield from read_mask(path, (stop - start) // item_bytes, start // item_bytes)


def _runs(
    file: TokenFile, lengths: npt.NDArray[np.int32], pointers: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Yield spans of bytes whose sequences stand one behind the other."""
    start = stop = 0
    n_bytes = file.path.stat().st_size
    for at in range(0, len(lengths), BLOCK_TOKENS):
        counts = lengths[at : at + BLOCK_TOKENS].astype(np.int64)
        begins = np.asarray(pointers[at : at + BLOCK_TOKENS])
        if int(counts.min()) < 0 or int(begins.min()) < 0:
            raise VerifyError(f"{file.index}: negative length or pointer")
        if int(begins.max()) > n_bytes:
            raise VerifyError(f"{file.path}: shorter than its index says")
        ends = begins + counts * file.dtype.itemsize
        jumps = np.flatnonzero(begins[1:] != ends[:-1]) + 1
        for first, last in zip([0, *jumps], [*jumps, len(counts)], strict=True):
            if int(begins[first]) != stop:
                yield start, stop
                start = int(begins[first])
            stop = int(ends[last - 1])
    yield start, stop


IMPORTER = Megatron()
