"""Equal documents, found by hashes of their ids, and of their masks, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import document_hash
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

_KEPT_DOCUMENTS = 1 << 20
"""Documents whose hashes are in memory: 32 MiB, and about four times as much to sort them."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Documents whose ids (in SFT also the mask) are those of an earlier one.

    Attributes:
        documents: how many there are, without the first of each.
        tokens: their tokens.
        most: documents that are equal, of the text that is repeated most; 1 if nothing is.
        example: the number of the first of them in the dataset.
        in_both_splits: documents of val that are in train, too.
    """

    documents: int = 0
    tokens: int = 0
    most: int = 1
    example: int = 0
    in_both_splits: int = 0


def hashes_of(
    ids: npt.NDArray[Any], mask: npt.NDArray[np.uint8] | None, lengths: npt.NDArray[np.int64]
) -> list[bytes]:
    """Return the hash of each of some documents, which stand end to end."""
    item = ids.itemsize
    data = ids.view(np.uint8).data
    flags = None if mask is None else mask.data
    hashes: list[bytes] = []
    first = 0
    for end in np.cumsum(lengths).tolist():
        own = None if flags is None else flags[first:end]
        hashes.append(document_hash(data[first * item : end * item], own))
        first = end
    return hashes


class DocumentHashes:
    """BLAKE3 hashes of 128 bits of documents; equal ones are counted, in bounded memory.

    A row has four uint64: the hash, 2 x tokens + (1 if in val), and the number of the document.
    Rows go to files by their hash, so that equal documents are in one file, in their order; one
    file after the other is sorted.
    """

    def __init__(self, folder: Path, n_documents: int) -> None:
        self._folder, self._n_files = folder, max(1, -(-n_documents // _KEPT_DOCUMENTS))
        self._kept: list[npt.NDArray[np.uint64]] = []
        self._n_kept = self._n_documents = 0

    def add(self, hashes: Sequence[bytes], lengths: npt.NDArray[np.int64], split: str) -> None:
        """Add the next documents of a split by their hashes; `lengths`: in tokens."""
        rows = np.empty((len(hashes), 4), np.uint64)
        rows[:, :2] = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)
        rows[:, 2] = 2 * lengths + (split == "val")
        rows[:, 3] = np.arange(self._n_documents, self._n_documents + len(rows))
        self._n_documents += len(rows)
        self._kept.append(rows)
        self._n_kept += len(rows)
        if self._n_kept >= _KEPT_DOCUMENTS:
            self._write()

    def _write(self) -> None:
        """Append the rows in memory to their files."""
        if not self._kept:
            return
        rows = np.concatenate(self._kept)
        files = rows[:, 0] % np.uint64(self._n_files)
        order = np.argsort(files, kind="stable")
        bounds = np.searchsorted(files[order], np.arange(self._n_files + 1))
        with storage_errors(self._folder):
            for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
                with (self._folder / f"{number}").open("ab") as file:
                    file.write(rows[order[start:stop]].data)
        self._kept, self._n_kept = [], 0

    def duplicates(self) -> Duplicates:
        """Return what is equal among the documents that were added."""
        documents = tokens = in_both = 0
        largest = (1, 0)
        self._write()
        for number in range(self._n_files if self._n_documents else 0):
            rows = np.fromfile(self._folder / f"{number}", np.uint64).reshape(-1, 4)
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))].view(np.int64)
            if not len(rows):
                continue
            is_first = np.append(True, (rows[1:, :2] != rows[:-1, :2]).any(axis=1))
            starts = np.flatnonzero(is_first)
            sizes = np.diff(starts, append=len(rows))
            documents += len(rows) - len(starts)
            tokens += int((sizes - 1) @ (rows[starts, 2] >> 1))
            n_val = np.add.reduceat(rows[:, 2] & 1, starts)
            in_both += int(n_val[n_val < sizes].sum())
            most = int(sizes.max())
            largest = max(largest, (most, -int(rows[starts[sizes == most], 3].min())))
        return Duplicates(documents, tokens, largest[0], -largest[1], in_both)
