"""Ratios: pair by pair, against the best, and only for equal work."""

from __future__ import annotations

import pytest

from bench.contenders import FIRST, Comparison
from bench.ratios import Spread, bytes_per_s, compare, others_cores, token_difference
from bench.values import Sample, Timing


def timing(seconds: float, *, text_bytes: int = 100, tokens: int = 50, own_s: float = 0) -> Timing:
    return Timing(seconds, own_s or seconds, text_bytes, tokens, 1)


def samples(**seconds: list[float]) -> list[Sample]:
    return [
        Sample("en", "gpt2", name, i, timing(value))
        for name, values in seconds.items()
        for i, value in enumerate(values, 1)
    ]


def test_throughput_is_text_bytes_by_seconds_of_either_clock():
    assert bytes_per_s(timing(4, own_s=2)) == 25
    assert bytes_per_s(timing(4, own_s=2), own_clock=True) == 50


def test_a_ratio_is_taken_in_each_round_and_its_median_given():
    ratio = compare(Comparison("s", "a : b", "a", ["b"]), samples(a=[1, 2, 1], b=[3, 4, 5]))
    assert ratio is not None
    assert ratio.pairs == (3, 2, 5)
    assert ratio.spread == Spread(3, 2, 5)


def test_the_best_of_several_is_the_one_with_the_highest_median():
    found = samples(a=[1, 1, 1], b=[2, 2, 9], c=[1, 4, 4])
    ratio = compare(Comparison("s", "a : best", "a", ["b", "c"]), found)
    assert ratio is not None
    assert (ratio.under, ratio.pairs) == ("b", (2, 2, 9))


def test_a_contender_that_was_left_out_gives_no_ratio():
    assert compare(Comparison("s", "a : b", "a", ["b"]), samples(a=[1])) is None
    assert compare(Comparison("s", "a : b", "a", ["b"]), samples(b=[1])) is None


def test_the_rest_is_compared_when_one_of_several_was_left_out():
    ratio = compare(Comparison("s", "a : best", "a", ["b", "c"]), samples(a=[1], c=[2]))
    assert ratio is not None
    assert ratio.under == "c"


def test_a_very_first_run_is_held_against_every_round():
    first = Sample("en", "gpt2", "a" + FIRST, 0, timing(4))
    found = [first, *samples(a=[1, 2])]
    ratio = compare(Comparison("s", "first", "a" + FIRST, ["a"]), found)
    assert ratio is not None
    assert ratio.pairs == (0.25, 0.5)


def test_a_slow_peer_that_ran_once_is_held_against_every_round():
    ratio = compare(Comparison("s", "a : b", "a", ["b"]), samples(a=[1, 2, 4], b=[8]))
    assert ratio is not None
    assert ratio.pairs == (8, 4, 2)


def test_without_start_up_both_sides_have_their_own_clock():
    found = [
        Sample("en", "gpt2", "a", 1, timing(4, own_s=2)),
        Sample("en", "gpt2", "b", 1, timing(1)),
    ]
    ratio = compare(Comparison("s", "a : b", "a", ["b"], own_clock=True), found)
    assert ratio is not None
    assert ratio.pairs == (0.5,)


@pytest.mark.parametrize(("goal", "holds"), [(None, None), (2.0, True), (2.1, False)])
def test_a_goal_holds_when_the_median_reaches_it(goal, holds):
    ratio = compare(Comparison("s", "a : b", "a", ["b"], goal), samples(a=[1], b=[2]))
    assert ratio is not None
    assert ratio.holds is holds


def test_tokens_are_compared_by_byte_of_text():
    ours = timing(1, text_bytes=1000, tokens=500)
    assert token_difference(timing(1, text_bytes=100, tokens=50), ours) == 0
    assert token_difference(timing(1, text_bytes=100, tokens=51), ours) == pytest.approx(0.02)


def test_what_others_took_is_the_mean_over_the_timings_that_know():
    notes = ({"others_cores": 0.2}, {}, {"others_cores": 0.4})
    found = [
        Sample("en", "gpt2", "a", 1, Timing(1, 1, 1, 1, 1, notes=dict(note))) for note in notes
    ]
    assert others_cores(found) == pytest.approx(0.3)
    assert others_cores(found[1:2]) == 0
