"""Encode a sample as the run would, and estimate the totals of the input with a band.

The band comes from the differences between neighbouring pieces (the successive difference estimator
of systematic samples; Wolter, 1984, doi 10.1080/01621459.1984.10477095): input that is sorted by
length or by language has alike neighbours, and evenly spread pieces show all of its kinds.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.fields import add_fields
from tokmill.interrupts import DelayedInterrupts
from tokmill.run.block_pool import encode_ahead
from tokmill.run.reject_limits import describe_unread

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import RunSpec
    from tokmill.recipes.table import Recipe
    from tokmill.run.input_sample import InputSample, SampledPiece
    from tokmill.sources.slices import SourceFile

    Floats = npt.NDArray[np.float64]

_DEVIATIONS = 3.0
"""Half the width of a band, in standard deviations."""

_LEAST_ERROR = 0.01

_FEWEST_UNITS = 4
"""Fewer pieces do not show how much they vary."""

_WIDER = 6
"""With n pieces a band is wider by this share of 1 / n: few show their deviation badly."""

UNREAD_ERROR = 1.0
"""Error of what is concluded from the head of a slice for the rest of it, measured: a long zstd
file is compressed 1.4 times as well as its head."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its band; an exact number equals both ends."""

    value: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """Return e: the band is the value divided and multiplied by 1 + e."""
        return max(self.high / self.value, self.value / max(1, self.low)) - 1 if self.value else 0.0


@dataclass(slots=True)
class EncodedSample:
    """The n pieces of a sample, encoded.

    `tokens`, `documents`, `records`, `text_bytes`: (n,). `lengths`, `is_val`: the tokens of each
    document, and whether it is validation. `drops`, `rejects`: records by reason. `unread`: a line
    for each break. `fields`: by file, the bytes of its fields, see `Counts`.
    `bytes_per_s`: of text, on all threads.
    """

    sample: InputSample
    tokens: Floats
    documents: Floats
    records: Floats
    text_bytes: Floats
    lengths: npt.NDArray[np.int64]
    is_val: npt.NDArray[np.bool_]
    drops: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)
    first_reject: str = ""
    unread: list[str] = field(default_factory=list)
    fields: dict[str, Counter[str]] = field(default_factory=dict)
    bytes_per_s: float = 1.0

    @property
    def n_records(self) -> int:
        """Return the number of sampled records."""
        return int(self.records.sum())

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Return the sampled files whose fields were weighed, as rows of a manifest."""
        return [{"path": path, "fields": counts} for path, counts in sorted(self.fields.items())]

    def total(self, amounts: Floats, *, of_records: bool = False) -> Estimate:
        """Return the sum over the input of an amount, (n,) by piece, of text or of records."""
        pieces = self.sample.pieces
        if self.sample.is_complete:
            return Estimate(*[round(float(amounts.sum()))] * 3)
        scales = [piece.record_scale if of_records else piece.scale for piece in pieces]
        ranges = [piece.span if of_records else piece.n_bytes for piece in pieces]
        stands_for = np.array(scales) * np.array(ranges)
        expected = np.array(scales) * amounts
        value = float(expected.sum())
        if not value:
            return Estimate(0, 0, 0)
        unread = float(expected @ np.array([piece.unread for piece in pieces]))
        error = (_spread(expected, stands_for, pieces) + UNREAD_ERROR * unread) / value
        error = max(error, _LEAST_ERROR)
        return Estimate(round(value), round(value / (1 + error)), round(value * (1 + error)))


def _spread(expected: Floats, stands_for: Floats, pieces: list[SampledPiece]) -> float:
    """Return half the width of the band of the sum of `expected` (n,) amounts.

    `stands_for`: (n,) the bytes of input that each amount is for.
    """
    _, units = np.unique([piece.unit for piece in pieces], return_index=True)
    starts = np.sort(units)
    of_unit, bytes_of_unit = (np.add.reduceat(one, starts) for one in (expected, stands_for))
    n = len(starts)
    if n < _FEWEST_UNITS:
        return float(expected.sum())
    residuals = of_unit - of_unit.sum() / bytes_of_unit.sum() * bytes_of_unit
    variance = float((np.diff(residuals) ** 2).sum()) / 2 * n / (n - 1)
    return _DEVIATIONS * (1 + _WIDER / n) * math.sqrt(variance)


def encode_sample(
    recipe_of: Callable[[SourceFile], Recipe], sample: InputSample, spec: RunSpec
) -> EncodedSample:
    """Encode the blocks of a sample on threads, each by the recipe of its file."""
    tokens, documents, records, text_bytes = np.zeros((4, len(sample.pieces)))
    nothing = np.zeros(0, np.int64), np.zeros(0, bool)
    result = EncodedSample(sample, tokens, documents, records, text_bytes, *nothing)
    lengths, is_val = [result.lengths], [result.is_val]
    blocks = [(number, block) for number, p in enumerate(sample.pieces) for block in p.blocks]
    of_recipe = groupby(blocks, lambda numbered: recipe_of(sample.pieces[numbered[0]].file))
    rates: list[tuple[float, float]] = []
    with DelayedInterrupts() as interrupts:
        for recipe, numbered in of_recipe:
            own = list(numbered)
            if not rates:
                recipe.process([own[0][1]])  # what loads late is not speed
            for number, block in encode_ahead(spec, recipe, own, interrupts):
                if block is None:
                    continue
                _add(result, number, block)
                lengths.append(np.diff(block.offsets).astype(np.int64))
                is_val.append(block.is_val)
                if block.stage_s:  # the first of those that were encoded together
                    rates.append((0.0, sum(stage.wall_s for stage in block.stage_s.values())))
                n_bytes, taken_s = rates[-1]
                rates[-1] = (n_bytes + int(block.text_bytes.sum()), taken_s)
    # The median: few bundles weigh fields, which takes far longer for short records.
    if rates:
        speeds = [(n_bytes or 1) / (taken_s or 1e-9) for n_bytes, taken_s in rates]
        result.bytes_per_s = spec.n_threads * float(np.median(speeds))
    result.lengths, result.is_val = np.concatenate(lengths), np.concatenate(is_val)
    return result


def _add(result: EncodedSample, number: int, block: EncodedBlock) -> None:
    """Add an encoded block to its piece."""
    path = result.sample.pieces[number].file.path
    result.records[number] += block.n_records
    result.documents[number] += block.n_documents
    result.tokens[number] += int(block.offsets[-1])
    result.text_bytes[number] += int(block.text_bytes.sum())
    result.drops.update({reason: len(rows) for reason, rows in block.drops.items()})
    result.rejects.update(reject.reason for reject in block.rejects)
    if block.rejects and not result.first_reject:
        first = block.rejects[0]
        result.first_reject = f"{path}: {first.reason}: {first.message}"
    if block.unread is not None:
        result.unread.append(describe_unread(path, block.unread))
    for _, counts in block.fields:
        add_fields(result.fields.setdefault(path, Counter()), counts)
