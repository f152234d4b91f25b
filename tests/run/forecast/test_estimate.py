from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tokmill.recipes.table import make_recipe
from tokmill.run.forecast.estimate import (
    EncodedSample,
    Estimate,
    Fragments,
    encode_sample,
    estimate_totals,
    exact_totals,
)
from tokmill.run.forecast.sample import InputSample
from tokmill.run.prepare import prepare, sample

WINDOW = 16_384
PER = (5.0, 20.0)


def sampled_of(records, tokens):
    records, tokens = np.array(records), np.array(tokens)
    lengths, is_val = np.zeros(0, np.int64), np.zeros(0, bool)
    return EncodedSample(records, records, tokens, tokens, lengths, is_val, Counter(), Counter())


def sample_of(n, *, heads_only=False):
    found = InputSample(heads_only=heads_only)
    found.window_read = found.window_ranges = [WINDOW] * n
    found.window_bytes = found.input_bytes = found.stored_bytes = WINDOW * n
    return found


def no_fragments(n):
    nothing = np.zeros(0)
    return Fragments(nothing, nothing, nothing, np.zeros(n), np.zeros(n))


def test_what_was_read_whole_is_counted_and_has_no_band():
    found = exact_totals(sampled_of([2, 3], [10, 20]), PER)
    assert found.tokens == Estimate(30, 30, 30)
    assert found.documents == Estimate(5, 5, 5)
    assert found.data_bytes == Estimate(250, 250, 250)
    assert found.data_bytes.error == 0


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_band_of_a_sample_holds_the_truth_in_nine_of_ten_samples(n, spread):
    rng = np.random.default_rng(5)
    tokens = (4000 * rng.lognormal(0, spread, 4000)).astype(np.int64)
    records = rng.poisson(20, len(tokens))
    truth = tokens.sum()
    held = []
    for _ in range(200):
        picked = rng.choice(len(tokens), n, replace=False)
        sampled = sampled_of(records[picked], tokens[picked])
        found = estimate_totals(WINDOW * len(tokens), sample_of(n), sampled, no_fragments(n), PER)
        pairs = ((found.tokens, truth), (found.documents, records.sum()))
        held.append([band.low <= true <= band.high for band, true in pairs])
    assert np.mean(held, axis=0).min() >= 0.9


def test_windows_that_are_alike_have_a_narrow_band_and_few_of_them_a_wide_one():
    def band(n, tokens, **how):
        found = sample_of(n, **how)
        return estimate_totals(
            WINDOW * 1000, found, sampled_of([9] * n, tokens), no_fragments(n), PER
        ).tokens

    alike = band(20, [4000] * 20)
    assert (alike.value, alike.error) == (4_000_000, pytest.approx(0.015, abs=1e-3))
    varied = band(20, [2000, 6000] * 10)
    assert varied.error > 0.2
    assert band(3, [4000] * 3).error == pytest.approx(1, abs=1e-3)
    assert band(20, [4000] * 20, heads_only=True).error == pytest.approx(1, abs=1e-3)
    assert band(20, [2000, 6000] * 10) == varied  # the same draws each time


def test_fragments_show_where_the_windows_are_not_like_the_rest():
    # The windows hold 4,000 tokens in 16 KiB, raw ones too; all over the input there are 8,000.
    n, m = 10, 200
    raw = np.full(n, 4000.0), np.full(n, float(WINDOW))
    fragments = Fragments(np.full(m, 500.0), np.full(m, 1024.0), np.ones(m), *raw)
    found = estimate_totals(
        WINDOW * 100, sample_of(n), sampled_of([10] * n, [3000] * n), fragments, PER
    )
    assert found.tokens.value == 2 * 3000 * 100
    starts = (10 * n + m) / (WINDOW * n + 1024 * m)
    assert found.documents.value == pytest.approx(starts * WINDOW * 100, abs=1)


def test_a_sample_is_encoded_as_the_run_would_window_by_window(
    tmp_path, configure, plan_of, write_rows
):
    first = write_rows(tmp_path / "a.jsonl", [{"text": "a" * 9}, {"text": "b"}, b"{bad"])
    second = write_rows(tmp_path / "b.jsonl", [{"text": "猫 is a cat"}])
    config = configure(tmp_path / "out", first, second, min_tokens=2)
    found = sample(prepare(config), 1 << 20, keep_blocks=True)
    assert found.is_complete
    recipe = make_recipe(plan_of(config).spec)
    sampled = encode_sample(lambda _: recipe, found)
    assert sampled.records.tolist() == [3, 1]
    assert sampled.documents.tolist() == [1, 1]
    assert sampled.text_bytes.tolist() == [9, 12]
    assert sampled.tokens.tolist() == sampled.lengths.tolist()
    assert (sampled.drops.total(), sampled.rejects.total()) == (1, 1)
    assert not sampled.is_val.any()


def test_blocks_are_kept_only_when_they_are_asked_for(tmp_path, configure, write_rows):
    config = configure(tmp_path / "out", write_rows(tmp_path / "a.jsonl", [{"text": "a"}]))
    assert sample(prepare(config), 1 << 20).blocks == []
