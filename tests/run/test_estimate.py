from __future__ import annotations

import numpy as np
import pytest

from tokmill.dataset.counts import Counts
from tokmill.recipes.table import make_recipe
from tokmill.run.prepare import prepare
from tokmill.run.sample import (
    EncodedSample,
    Estimate,
    InputSample,
    SampledPiece,
    encode_sample,
    read_sample,
)
from tokmill.sources.slices import SourceFile

WINDOW = 16_384
FILE = SourceFile("a.jsonl", "jsonl", "", 0, 0, "")


def total_of(tokens, scale: float, *, unread: float = 0.0, **more) -> Estimate:
    """Return the total of pieces of one window each that stand for `scale` windows."""
    scales = (scale, scale, unread)
    pieces = [SampledPiece(FILE, [], i, WINDOW, WINDOW, *scales) for i in range(len(tokens))]
    counts, nothing = [Counts(tokens=n) for n in tokens], np.zeros(0)
    return EncodedSample(InputSample(pieces, **more), counts, nothing, nothing).total("tokens")


def test_what_was_read_whole_is_counted_and_has_no_band():
    found = total_of([10, 20], 1, is_complete=True)
    assert found == Estimate(30, 30, 30)
    assert found.error == 0


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_band_of_a_sample_holds_the_truth(n, spread):
    rng = np.random.default_rng(5)
    tokens = (4000 * rng.lognormal(0, spread, 4000)).astype(np.int64)
    held = 0
    for _ in range(300):
        band = total_of(tokens[rng.choice(len(tokens), n, replace=False)], len(tokens) / n)
        held += band.low <= tokens.sum() <= band.high
    assert held >= 0.98 * 300


def test_sorted_input_has_a_narrow_band_and_mixed_input_a_wide_one():
    kinds = [2000] * 64 + [6000] * 64
    mixed = np.random.default_rng(1).permutation(kinds)
    assert total_of(kinds, 10).error < 0.1 < total_of(mixed, 10).error
    assert total_of([4000] * 20, 10).error == pytest.approx(0.01, abs=1e-3)
    assert total_of([4000] * 3, 10).error == pytest.approx(1, abs=1e-3)


def test_what_was_not_looked_at_may_differ_by_a_factor_of_two():
    assert total_of([4000] * 20, 10, unread=0.5).error == pytest.approx(0.5, abs=1e-3)


def test_a_sample_is_encoded_as_the_run_would_piece_by_piece(
    tmp_path, configure, plan_of, write_rows
):
    first = write_rows(tmp_path / "a.jsonl", [{"text": "a" * 9}, {"text": "b"}, b"{bad"])
    second = write_rows(tmp_path / "b.jsonl", [{"text": "猫 is a cat"}])
    config = configure(tmp_path / "out", first, second, min_tokens=2)
    prepared = prepare(config)
    found = read_sample(prepared.parts, prepared.renderers(), 1 << 20)
    spec = plan_of(config).spec
    recipe = make_recipe(spec)
    encoded = encode_sample(lambda _: recipe, found, spec)
    counts, totals = encoded.counts, encoded.totals()
    assert [(c.records, c.documents, c.text_bytes) for c in counts] == [(3, 1, 9), (1, 1, 12)]
    assert totals.tokens == encoded.lengths.sum()
    assert (totals.drops.total(), totals.rejects.total()) == (1, 1)
    assert encoded.first_reject.startswith(f"{first}: ")
    assert not encoded.is_val.any()
