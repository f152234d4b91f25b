"""The bill is scored on GPU memory that others measured; docs/memory.md shows the table."""

from __future__ import annotations

from dataclasses import replace

from bench.gpu_measured import RECIPES, runs, score, scored, scores


def test_every_stored_run_is_scored() -> None:
    found = scores()
    assert len(found) == len(list(runs())) >= 180
    assert {one.run.metric for one in found} == {"allocated", "reserved", "used"}
    assert scored(found).count("\n") >= len(RECIPES) - 4


def test_a_run_that_needs_more_than_the_upper_bound_is_outside_and_above() -> None:
    run = next(runs())
    assert score(run).inside
    above = score(replace(run, used_bytes=10 * run.used_bytes))
    assert (above.inside, above.below_high) == (False, False)
    below = score(replace(run, used_bytes=run.used_bytes / 10))
    assert (below.inside, below.below_high) == (False, True)
    assert abs(score(replace(run, n_bytes=run.n_bytes / 2)).error - 1) < 0.01
