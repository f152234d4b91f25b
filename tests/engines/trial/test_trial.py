from __future__ import annotations

import pytest

from tokmill.engines.trial.candidate import Speed
from tokmill.engines.trial.corpus_sample import Sample
from tokmill.engines.trial.trial import expected_speed


def speed(ns, *, corpus=0, new_share=1.0, measured=2_000_000):
    return expected_speed(Speed(*(n * 1e-9 for n in ns)), measured, Sample([], corpus, new_share))


def test_an_engine_that_keeps_nothing_is_expected_as_fast_as_measured():
    assert speed((10, 10, 10), corpus=10**12) == pytest.approx(100)


def test_words_that_never_come_again_are_as_dear_in_all_of_a_corpus():
    # As much above a known byte in the second half as in the first: the price does not fall.
    assert speed((20, 20, 10), corpus=10**12) == pytest.approx(50)


def test_the_price_of_new_text_falls_as_words_become_known():
    # 16 ns above the known in the first million bytes, 8 in the second: 12 over both, a fall by
    # 3/4 with each doubling.
    assert speed((20, 12, 4), corpus=2_000_000) == pytest.approx(1e3 / (4 + 16 * 0.75))
    assert speed((20, 12, 4), corpus=8_000_000) == pytest.approx(1e3 / (4 + 16 * 0.75**3))


def test_what_comes_again_costs_what_is_known():
    assert speed((20, 20, 10), corpus=10**9, new_share=0.1) == pytest.approx(1e3 / 11)


@pytest.mark.parametrize("ns", [(9, 12, 10), (12, 9, 10), (0, 0, 0)])
def test_noise_of_the_clock_gives_no_nonsense(ns):
    assert 1e3 / 12 <= speed(ns, corpus=10**9) <= 1e6
