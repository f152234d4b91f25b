"""Samples come back from rows of any layout, and no row changes what becomes of another one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokmill.recipes.row_columns import RowRules
from tokmill.recipes.row_samples import RowSamples, samples_of

IGNORED = -100
ENDS = ("position_ids", "seq_lengths", "cu_seqlens", "seq_start_id", "attention_mask")


@dataclass
class Sample:
    """Ids, and the weight of each."""

    ids: list[int]
    weights: list[float]

    @property
    def labels(self) -> list[int]:
        pairs = zip(self.ids, self.weights, strict=True)
        return [token if weight else IGNORED for token, weight in pairs]


def random_sample(numbers: np.random.Generator) -> Sample:
    """Return a sample; its first token is not trained."""
    n_tokens = int(numbers.integers(3, 9))
    weights = np.where(numbers.random(n_tokens) < 0.6, numbers.choice([0.5, 1, 2], n_tokens), 0)
    weights[0] = 0
    return Sample(numbers.integers(0, 50_000, n_tokens).tolist(), weights.tolist())


def row_of(
    samples: list[Sample], shift: str, ends: str, padding: tuple[int, int]
) -> dict[str, Any]:
    """Return a row of samples. `shift`: own; next; targets, which are next without the inputs' end.

    `ends`: the column that divides it. `padding`: tokens before and behind.
    """
    ids, labels, weights, lengths = [], [], [], []
    for sample in samples:
        if shift == "own":
            columns = sample.ids, sample.labels, sample.weights
        elif shift == "next":
            columns = sample.ids, [*sample.labels[1:], IGNORED], [*sample.weights[1:], 0.0]
        else:
            columns = sample.ids[:-1], sample.labels[1:], sample.weights[1:]
        ids += columns[0]
        labels += columns[1]
        weights += columns[2]
        lengths.append(len(columns[0]))
    before, behind = padding
    numbers = [n for n, length in enumerate(lengths, 1) for _ in range(length)]
    if ends != "attention_mask":
        numbers = [1] * len(numbers)
    row = {
        "input_ids": [7] * before + ids + [7] * behind,
        "labels": [IGNORED] * before + labels + [IGNORED] * behind,
        "weights": [0.0] * before + weights + [0.0] * behind,
        "attention_mask": [0] * before + numbers + [0] * behind,
    }
    of_tokens = [place for length in lengths for place in range(length)]
    of_rows = {
        "position_ids": [1] * before + of_tokens + [0] * behind,
        "seq_lengths": lengths,
        "cu_seqlens": list(accumulate(lengths, initial=0)),
        "seq_start_id": list(accumulate(lengths[:-1], initial=0)),
    }
    return row | {ends: of_rows[ends]} if ends in of_rows else row


def found(samples: RowSamples) -> dict[int, list[tuple[list[int], list[float]]]]:
    """Return ids and weights of the samples of each row."""
    by_row: dict[int, list[tuple[list[int], list[float]]]] = {}
    stops = np.cumsum(samples.lengths).tolist()
    for row, stop, length in zip(samples.rows.tolist(), stops, samples.lengths, strict=True):
        span = slice(stop - int(length), stop)
        of_sample = samples.ids[span].tolist(), samples.weights[span].tolist()
        by_row.setdefault(row, []).append(of_sample)
    return by_row


def rules_of(ends: str, shift: str) -> RowRules:
    dividing = (ends,) if ends != "attention_mask" else ()
    alignment = "own" if shift == "own" else "next"
    return RowRules(
        "jsonl", ("input_ids",), "labels", (), "weights", "attention_mask", dividing,
        alignment=alignment,
    )  # fmt: skip


@pytest.mark.parametrize("shift", ["own", "next", "targets"])
@pytest.mark.parametrize("ends", ENDS)
def test_samples_come_back_from_every_layout(ends: str, shift: str) -> None:
    numbers = np.random.default_rng(11)
    rules = rules_of(ends, shift)
    for _ in range(30):
        every = [[random_sample(numbers) for _ in range(numbers.integers(1, 4))] for _ in range(4)]
        rows = []
        for samples in every:
            before, behind = numbers.integers(0, 3, 2).tolist()
            if ends in ("cu_seqlens", "seq_start_id"):
                before = behind = 0  # these count the tokens of the whole row
            rows.append(row_of(samples, shift, ends, (before, behind)))
        made = samples_of(pa.RecordBatch.from_pylist(rows, rules.schema()), rules)
        assert made.refused == {}
        for number, samples in enumerate(every):
            expected = []
            for sample in samples:
                # An untrained last token stands neither among inputs nor among targets.
                is_lost = shift == "targets" and not sample.weights[-1]
                stop = len(sample.ids) - is_lost
                expected.append((sample.ids[:stop], sample.weights[:stop]))
            assert found(made)[number] == expected


def broken(row: dict[str, Any], numbers: np.random.Generator) -> dict[str, Any]:
    """Return a row with one value that is changed, doubled, left out or null."""
    name = str(numbers.choice(list(row)))
    values = list(row[name])
    place = int(numbers.integers(len(values)))
    how = int(numbers.integers(5))
    if how == 0:
        return row | {name: None}
    if how == 1:
        return row | {name: [*values[:place], None, *values[place + 1 :]]}
    if how == 2:
        return row | {name: values[:-1]}
    if how == 3:
        return row | {name: [*values, values[-1]]}
    other = type(values[place])(numbers.choice([-1, 0, 1, 3, 1000]))
    return row | {name: [*values[:place], other, *values[place + 1 :]]}


@pytest.mark.parametrize("shift", ["own", "next", "targets"])
@pytest.mark.parametrize("ends", ENDS)
def test_a_row_alone_is_read_as_among_others(ends: str, shift: str) -> None:
    numbers = np.random.default_rng(12)
    rules = rules_of(ends, shift)
    n_refused = 0
    for _ in range(30):
        rows = []
        for _ in range(4):
            samples = [random_sample(numbers) for _ in range(numbers.integers(1, 4))]
            row = row_of(samples, shift, ends, (0, 0))
            rows.append(broken(row, numbers) if numbers.random() < 0.5 else row)
        batch = pa.RecordBatch.from_pylist(rows, rules.schema())
        made = samples_of(batch, rules)
        n_refused += len(made.refused)
        for number in range(4):
            alone = samples_of(batch.slice(number, 1), rules)
            assert found(alone).get(0) == found(made).get(number)
            assert alone.refused.get(0) == made.refused.get(number)
    assert n_refused > 20


def test_a_mask_that_trains_the_token_behind_the_last_one_is_refused() -> None:
    rules = RowRules("jsonl", ("ids",), masks=("mask",), alignment="next")
    rows = [{"ids": [3, 4], "mask": [1, 1]}, {"ids": [5, 6], "mask": [1, 0]}]
    made = samples_of(pa.RecordBatch.from_pylist(rows, rules.schema()), rules)
    assert list(made.refused) == [0]
    assert "trains the one behind it" in made.refused[0][1]
    assert found(made) == {1: [([5, 6], [0.0, 1.0])]}
