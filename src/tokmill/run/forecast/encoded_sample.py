"""A sample of the input as the run itself would encode it, window by window."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.table import Recipe
    from tokmill.sources.blocks import Block

_TOGETHER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """What a run makes of the n windows of a sample.

    `records`, `documents`, `tokens`, `text_bytes`: (n,) int64, by window. `lengths`: tokens of each
    document, `is_val`: whether it is validation. `drops`, `rejects`: records by reason.
    """

    records: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    text_bytes: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    is_val: npt.NDArray[np.bool_]
    drops: Counter[str]
    rejects: Counter[str]


def encode_sample(
    recipe: Recipe, blocks: Sequence[tuple[int, Block]], n_windows: int
) -> EncodedSample:
    """Encode the blocks of a sample's windows, each with the number of its window, in order."""
    sums = np.zeros((4, n_windows), np.int64)
    lengths: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    is_val: list[npt.NDArray[np.bool_]] = [np.zeros(0, bool)]
    drops: Counter[str] = Counter()
    rejects: Counter[str] = Counter()
    for window, block in _encoded(recipe, blocks):
        lengths.append(np.diff(block.offsets).astype(np.int64))
        is_val.append(block.is_val)
        drops.update({reason: len(rows) for reason, rows in block.drops.items()})
        rejects.update(reject.reason for reject in block.rejects)
        outcomes = np.concatenate([block.rows, *block.drops.values()])
        sums[:, window] += (
            len(np.unique(outcomes)) + len(block.rejects),
            block.n_documents,
            int(block.offsets[-1]),
            int(block.text_bytes.sum()),
        )
    records, documents, tokens, text_bytes = sums
    return EncodedSample(
        records,
        documents,
        tokens,
        text_bytes,
        np.concatenate(lengths),
        np.concatenate(is_val),
        drops,
        rejects,
    )


def _encoded(
    recipe: Recipe, blocks: Sequence[tuple[int, Block]]
) -> Iterator[tuple[int, EncodedBlock]]:
    """Yield the encoded blocks; many small ones are encoded together."""
    ends = np.cumsum([block.n_bytes for _, block in blocks], dtype=np.int64)
    numbers = (ends // _TOGETHER_BYTES).tolist()
    for _, group in groupby(zip(numbers, blocks, strict=True), lambda item: item[0]):
        chosen = [item for _, item in group]
        encoded = recipe.process([block for _, block in chosen])
        yield from zip([window for window, _ in chosen], encoded, strict=True)
