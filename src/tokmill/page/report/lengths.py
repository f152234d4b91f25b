"""Exact lengths of all documents against context sizes, read from the mapped indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.idx_file import open_index

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

CONTEXTS = (512, 2048, 4096, 8192, 32768)
N_BINS = 32
_CHUNK_DOCUMENTS = 1 << 20


@dataclass(slots=True)
class Lengths:
    """Documents and tokens by length.

    Attributes:
        documents: (32,) int64, entry i counts documents of 2^i to 2^(i + 1) - 1 tokens.
        tokens: (32,) int64, the tokens of these documents.
        longest: tokens of the longest document.
        longer: for each of `CONTEXTS`, the documents with more tokens.
        beyond: for each of `CONTEXTS`, the tokens of documents after so many.
    """

    documents: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(N_BINS, np.int64))
    tokens: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(N_BINS, np.int64))
    longest: int = 0
    longer: dict[int, int] = field(default_factory=lambda: dict.fromkeys(CONTEXTS, 0))
    beyond: dict[int, int] = field(default_factory=lambda: dict.fromkeys(CONTEXTS, 0))

    def add(self, lengths: npt.NDArray[np.int32]) -> None:
        """Add documents by their lengths in tokens."""
        found = lengths.astype(np.int64)
        bins = np.maximum(np.frexp(found)[1] - 1, 0)
        self.documents += np.bincount(bins, minlength=N_BINS)
        self.tokens += np.bincount(bins, weights=found, minlength=N_BINS).astype(np.int64)
        self.longest = max(self.longest, int(found.max(initial=0)))
        for context in CONTEXTS:
            over = found[found > context]
            self.longer[context] += len(over)
            self.beyond[context] += int(over.sum()) - context * len(over)


def read_lengths(directory: Path, manifest: Mapping[str, Any]) -> Lengths:
    """Return the lengths of all documents; memory does not grow with their number.

    Raises:
        VerifyError: an index is missing or damaged.
        StorageError: it cannot be read.
    """
    found = Lengths()
    for entry in manifest["shards"]:
        lengths, _ = open_index(directory / f"{entry['name']}.idx", entry["documents"])
        for start in range(0, len(lengths), _CHUNK_DOCUMENTS):
            found.add(lengths[start : start + _CHUNK_DOCUMENTS])
    return found
