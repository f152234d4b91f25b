"""Encode a sample as the run would, and estimate the totals of the input with an error band.

The band comes from samples drawn from the sample (the bootstrap; Efron, 1979,
doi 10.1214/aos/1176344552). Windows are drawn, not records: the records of one window are alike.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.table import Recipe
    from tokmill.run.forecast.sample import InputSample
    from tokmill.sources.blocks import Block
    from tokmill.sources.slices import SourceFile

    Floats = npt.NDArray[np.float64]

HEADS_ERROR = 1.0
"""Error of a prediction from the heads of compressed files, measured: a long zstd file is
compressed 1.4 times as well as its head."""

_DRAWS = 200
_FEWEST_WINDOWS = 4
"""Fewer windows do not show how much they vary."""

_LEAST_ERROR = 0.015
"""Error that the draws do not show: words cut by fragments, records longer than a window."""


_ENCODED_TOGETHER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """The n windows of a sample, encoded.

    `records`, `documents`, `tokens`, `text_bytes`: (n,) int64, by window. `lengths`, `is_val`: the
    tokens of each document, and whether it is validation. `drops`, `rejects`: records by reason.
    """

    records: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    text_bytes: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    is_val: npt.NDArray[np.bool_]
    drops: Counter[str]
    rejects: Counter[str]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its band; an exact number equals both ends."""

    value: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """Return e: the band is the value divided and multiplied by 1 + e."""
        if not self.value:
            return 0.0
        return max(self.high / self.value, self.value / max(1, self.low)) - 1


@dataclass(frozen=True, slots=True)
class Estimates:
    """Tokens and documents of a run, and their bytes on disk."""

    tokens: Estimate
    documents: Estimate
    data_bytes: Estimate


@dataclass(frozen=True, slots=True)
class Fragments:
    """Tokens of the m fragments of raw input, and of the raw input of the n windows.

    `tokens`, `n_bytes`, `line_ends`: (m,), of each fragment. `raw_tokens`, `raw_bytes`: (n,), of
    each window. m can be 0.
    """

    tokens: Floats
    n_bytes: Floats
    line_ends: Floats
    raw_tokens: Floats
    raw_bytes: Floats


def encode_sample(recipe_of: Callable[[SourceFile], Recipe], found: InputSample) -> EncodedSample:
    """Encode the blocks that a sample kept, each by the recipe of its file."""
    n_windows = len(found.window_read)
    sums = np.zeros((4, n_windows), np.int64)
    lengths: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    is_val: list[npt.NDArray[np.bool_]] = [np.zeros(0, bool)]
    drops: Counter[str] = Counter()
    rejects: Counter[str] = Counter()
    for window, block in _encoded(recipe_of, found.blocks):
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
    recipe_of: Callable[[SourceFile], Recipe], blocks: Sequence[tuple[int, SourceFile, Block]]
) -> Iterator[tuple[int, EncodedBlock]]:
    """Yield window and encoded block; small blocks of one recipe are encoded together."""
    ends = np.cumsum([block.n_bytes for *_, block in blocks], dtype=np.int64)
    numbers = (ends // _ENCODED_TOGETHER_BYTES).tolist()
    recipes = [recipe_of(file) for _, file, _ in blocks]
    items = zip(numbers, recipes, blocks, strict=True)
    for (_, recipe), group in groupby(items, lambda item: item[:2]):
        chosen = [item[2] for item in group]
        encoded = recipe.process([block for *_, block in chosen])
        yield from zip([window for window, *_ in chosen], encoded, strict=True)


def exact_totals(sampled: EncodedSample, bytes_per: tuple[float, float]) -> Estimates:
    """Return the exact totals of an input that was read completely."""
    tokens, documents = int(sampled.tokens.sum()), int(sampled.documents.sum())
    data = round(bytes_per[0] * tokens + bytes_per[1] * documents)
    return Estimates(*(Estimate(n, n, n) for n in (tokens, documents, data)))


def estimate_totals(
    input_bytes: int,
    found: InputSample,
    sampled: EncodedSample,
    fragments: Fragments,
    bytes_per: tuple[float, float],
) -> Estimates:
    """Return estimated totals of an input; `bytes_per`: bytes on disk of a token, of a document."""
    n, m = len(sampled.tokens), len(fragments.tokens)
    drawn = _totals(input_bytes, found, sampled, fragments, *_draws(n, m))
    value = _totals(input_bytes, found, sampled, fragments, np.ones((1, n)), np.ones((1, m)))
    is_known = not found.heads_only and n >= _FEWEST_WINDOWS
    both = [np.array(bytes_per) @ np.stack(pair) for pair in (value, drawn)]
    return Estimates(
        _banded(value[0], drawn[0], n, is_known=is_known),
        _banded(value[1], drawn[1], n, is_known=is_known),
        _banded(both[0], both[1], n, is_known=is_known),
    )


def _draws(n: int, m: int) -> tuple[Floats, Floats]:
    """Return the times that each window and each fragment is drawn: (draws, n), (draws, m)."""
    random = np.random.default_rng(0)
    drawn = [
        random.multinomial(size, np.full(size, 1 / size), _DRAWS) if size else np.zeros((_DRAWS, 0))
        for size in (n, m)
    ]
    return drawn[0].astype(np.float64), drawn[1].astype(np.float64)


def _totals(
    input_bytes: int,
    found: InputSample,
    sampled: EncodedSample,
    fragments: Fragments,
    windows: Floats,
    others: Floats,
) -> tuple[Floats, Floats]:
    """Return tokens and documents of the input by each draw: (draws,) each."""
    read, ranges = np.array(found.window_read, float), np.array(found.window_ranges, float)
    scale = found.input_bytes / max(1, found.stored_bytes)
    tokens = _ratio(windows @ sampled.tokens, windows @ read * scale)
    records, kept = windows @ sampled.records, windows @ sampled.documents
    if others.shape[1]:
        here = _ratio(windows @ fragments.raw_tokens, windows @ fragments.raw_bytes)
        everywhere = _ratio(others @ fragments.tokens, others @ fragments.n_bytes)
        tokens = tokens * _ratio(everywhere, here)
    starts = records + others @ fragments.line_ends
    spans = windows @ ranges + others @ fragments.n_bytes
    if not found.window_bytes:
        starts, spans = records, windows @ read * scale
    documents = _ratio(starts, spans) * _ratio(kept, records)
    return tokens * input_bytes, documents * input_bytes


def _ratio(above: Floats, below: Floats) -> Floats:
    ratio: Floats = np.divide(above, below, out=np.zeros_like(above, float), where=below > 0)
    return ratio


def _banded(value: Floats, drawn: Floats, n_windows: int, *, is_known: bool) -> Estimate:
    middle = float(value[0])
    error = HEADS_ERROR
    used = drawn[drawn > 0]
    if is_known and middle > 0 and len(used) > _DRAWS // 2:
        spread = float(np.log(used / middle).std()) * math.sqrt(n_windows / (n_windows - 1))
        error = math.exp(_quantile(n_windows - 1) * spread) - 1
        error = max(error, _LEAST_ERROR)
    return Estimate(round(middle), round(middle / (1 + error)), round(middle * (1 + error)))


def _quantile(freedom: int) -> float:
    """Return the 97.5% quantile of Student's distribution, within 1% from 3 degrees on."""
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2
