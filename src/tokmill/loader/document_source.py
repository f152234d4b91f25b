"""The documents of a split as samples: each with its own length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.loader.source import Source

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.loader.source import Arrays, OpenDataset

NAMES: dict[str, tuple[str, Any]] = {
    "bin": ("input_ids", np.int64),
    "mask": ("mask", np.uint8),
    "weight": ("weights", np.float32),
}


class DocumentSource(Source):
    """The documents of a split by number, in the order of the dataset; see `documents`."""

    def __init__(
        self, dataset: str | os.PathLike[str] | OpenDataset, *, split: str = "train"
    ) -> None:
        super().__init__(dataset, split, {})

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def __getitems__(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> list[Arrays]:
        """Return several documents, read together; see `documents`."""
        spans = self._files.document_spans(self.numbers(numbers))
        samples: list[Arrays] = [{} for _ in range(len(spans.lengths))]
        ends = np.cumsum(spans.lengths)[:-1]
        for ending, dtype in self._files.dtypes.items():
            read = np.empty(int(spans.lengths.sum()), dtype)
            self._files.read(spans, ending, read)
            name, given = NAMES[ending]
            for sample, values in zip(samples, np.split(read.astype(given), ends), strict=False):
                sample[name] = values
        return samples


def documents(
    dataset: str | os.PathLike[str] | OpenDataset, split: str = "train"
) -> DocumentSource:
    """Return the documents of a split as samples for a training loop.

    A sample has `input_ids`: (n,) int64, eos included. In SFT also `mask`: (n,) uint8, 1 for a
    token that is trained; and `weights`: (n,) float32, if the dataset has them.

    Args:
        dataset: a directory, or an open `tokmill.Dataset`.
        split: `train` or `val`.

    Raises:
        UsageError: there is no dataset, or the split has no documents.
        TokmillError: the manifest is damaged or cannot be read.

    Example:
        >>> source = tokmill.loader.documents("out")
        >>> len(source), source[0]["input_ids"]
    """
    return DocumentSource(dataset, split=split)
