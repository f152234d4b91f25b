"""Totals of the input from a sample of windows, each with a band that holds most true values.

The windows vary, and so does what any other choice of them would give: the band comes from samples
drawn from the sample itself (the bootstrap; Efron, 1979, doi 10.1214/aos/1176344552), window by
window, since the records of one window are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.run.forecast.encoded_sample import EncodedSample
    from tokmill.run.forecast.sample import InputSample

    Floats = npt.NDArray[np.float64]

HEADS_ERROR = 1.0
"""How far a prediction from the heads of compressed files is off, as measured: a long zstd file
packs 1.4 times as tightly as its head."""

_DRAWS = 200
_FEWEST_WINDOWS = 4
"""Fewer windows say too little of how much they vary."""

_LEAST_ERROR = 0.015
"""What no draw shows: cut words at the edges of fragments, records longer than a window."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with the band that holds it; of what was counted, all three are one."""

    value: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """Return the half width e: the band is the value divided and multiplied by 1 + e."""
        if not self.value:
            return 0.0
        return max(self.high / self.value, self.value / max(1, self.low)) - 1


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of a run: its tokens, its documents, and their bytes on disk at given bytes for each."""

    tokens: Estimate
    documents: Estimate
    data_bytes: Estimate


@dataclass(frozen=True, slots=True)
class Fragments:
    """Fragments of raw input, and the same of the windows: their tokens by the run's engine.

    `tokens`, `n_bytes`, `line_ends`: (m,), of each fragment. `raw_tokens`, `raw_bytes`: (n,), of
    each window. Without fragments m is 0.
    """

    tokens: Floats
    n_bytes: Floats
    line_ends: Floats
    raw_tokens: Floats
    raw_bytes: Floats


def counted(sampled: EncodedSample, bytes_per: tuple[float, float]) -> Estimates:
    """Return what is known of an input that was read whole."""
    tokens, documents = int(sampled.tokens.sum()), int(sampled.documents.sum())
    data = round(bytes_per[0] * tokens + bytes_per[1] * documents)
    return Estimates(*(Estimate(n, n, n) for n in (tokens, documents, data)))


def estimated(
    input_bytes: int,
    found: InputSample,
    sampled: EncodedSample,
    fragments: Fragments,
    bytes_per: tuple[float, float],
) -> Estimates:
    """Estimate the totals of an input.

    Args:
        input_bytes: all of it.
        found: the sample.
        sampled: what a run makes of it.
        fragments: what shows the mix of the input more evenly than the windows.
        bytes_per: bytes on disk of a token, and of a document.
    """
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
    """Return how often each window and each fragment is drawn: (draws, n) and (draws, m)."""
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
    """Return tokens and documents of the input by each of some draws: (draws,) each."""
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
    """Return the 97.5 % quantile of Student's distribution, within 1 % from 3 degrees on."""
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2
