"""Megatron's `PREFIX.bin` and `PREFIX.idx`, of any integer type, with any number of sequences.

A document of several sequences becomes one document. See `dataset/idx_file.py` for the bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.idx_file import HEADER, MAGIC
from tokmill.errors import UsageError, VerifyError
from tokmill.storage import read_errors
from tokmill.trainers.importing.blocks import (
    BLOCK_TOKENS,
    TokenFile,
    files_below,
    joined,
    read_array,
)
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.trainers.importing.blocks import Block

_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS = (6, 7)


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
        return [_pair(index, split) for index in found]

    def read(self, file: TokenFile, eos_id: int) -> Iterator[Block]:
        """Yield the documents; see `Importer.read`."""
        del eos_id
        lengths, pointers, documents = _arrays(file.index or file.path)
        return joined(_tokens(file, lengths, pointers), _ends(file, lengths, documents))


def _pair(index: Path, split: str) -> TokenFile:
    code, n_sequences, _ = _header(index)
    if code not in _DTYPES:
        kind = "floats" if code in _FLOATS else f"values of type {code}"
        raise UsageError(f"{index}: holds {kind}, expected ids of tokens")
    path = index.with_suffix(".bin")
    if not path.is_file():
        raise UsageError(f"{path}: expected beside {index.name}, found nothing")
    twin = index.with_name(f"{index.stem}_mask.idx")
    if twin.is_file():
        raise UsageError(
            f"{twin}: a mask of {index.stem}, which cannot be imported: export the chats to "
            "datatrove and import that; or move the mask away to import the tokens as text"
        )
    lengths, _, _ = _arrays(index)
    steps = range(0, n_sequences, BLOCK_TOKENS)
    n_tokens = sum(int(lengths[at : at + BLOCK_TOKENS].sum(dtype=np.int64)) for at in steps)
    return TokenFile(path, split, np.dtype(_DTYPES[code]), n_tokens, index)


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
