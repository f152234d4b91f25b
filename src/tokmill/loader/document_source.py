"""The documents of a split as samples: each with its own length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.loader.fim import FillInTheMiddle, fill_in_the_middle
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
        self,
        dataset: str | os.PathLike[str] | OpenDataset,
        *,
        split: str = "train",
        fim: FillInTheMiddle | None = None,
    ) -> None:
        options = {} if fim is None else {"fim": fim}
        super().__init__(dataset, split, options, tuple(options))
        self._fim = fim

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def __getitems__(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> list[Arrays]:
        """Return several documents, read together; see `documents`."""
        asked = self.numbers(numbers)
        spans = self._files.document_spans(asked)
        samples: list[Arrays] = [{} for _ in range(len(spans.lengths))]
        ends = np.cumsum(spans.lengths)[:-1]
        for ending, dtype in self._files.dtypes.items():
            read = np.empty(int(spans.lengths.sum()), dtype)
            self._files.read(spans, ending, read)
            name, given = NAMES[ending]
            for sample, values in zip(samples, np.split(read.astype(given), ends), strict=False):
                sample[name] = values
        if self._fim is not None:
            for sample, chances in zip(samples, self._fim.chances(asked), strict=True):
                sample["input_ids"] = self._fim.permuted(sample["input_ids"], chances)
        return samples


def documents(
    dataset: str | os.PathLike[str] | OpenDataset,
    split: str = "train",
    *,
    fim_rate: float = 0.0,
    fim_spm_rate: float = 0.5,
    fim_tokens: Sequence[int | str] | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> DocumentSource:
    """Return the documents of a split as samples for a training loop.

    A sample has `input_ids`: (n,) int64, eos included. In SFT also `mask`: (n,) uint8, 1 for a
    token that is trained; and `weights`: (n,) float32, if the dataset has them.

    Args:
        dataset: a directory, or an open `tokmill.Dataset`.
        split: `train` or `val`.
        fim_rate: share of the documents, from 0 to 1, whose middle is moved to their end behind
            three control tokens, for a model that fills in the middle of code.
        fim_spm_rate: share of these, from 0 to 1, in the order suffix-prefix-middle; the others are
            in the order prefix-suffix-middle.
        fim_tokens: the control tokens of prefix, suffix and middle, as ids or strings; None: those
            of the tokenizer, such as `<fim_prefix>`, `<fim_suffix>` and `<fim_middle>`.
        seed: 0 to 2^64 - 1; with the epoch and the number of a document, it decides whether the
            document is permuted, its order, and its cuts.
        epoch: from 0; each has other choices and cuts.

    Raises:
        UsageError: there is no dataset, the split has no documents, or an argument is wrong.
        TokmillError: the manifest is damaged or cannot be read.

    Example:
        >>> source = tokmill.loader.documents("out")
        >>> len(source), source[0]["input_ids"]
    """
    source = DocumentSource(dataset, split=split)
    if not fim_rate:
        return source
    fim = fill_in_the_middle(
        source._manifest, fim_rate, fim_spm_rate, fim_tokens, seed=seed, epoch=epoch
    )
    return DocumentSource(dataset, split=split, fim=fim)
