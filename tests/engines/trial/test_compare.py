from __future__ import annotations

import pytest

from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.trial.compare import (
    PARITY_BYTES,
    CorpusSample,
    encode_expected,
    expected_speed,
    parity_stride,
    timing_texts,
)
from tokmill.engines.trial.tasks import Speed


def speed(ns, *, corpus=0, new_share=1.0, measured=2_000_000):
    return expected_speed(
        Speed(*(n * 1e-9 for n in ns)), measured, CorpusSample([], corpus, new_share)
    )


def test_an_engine_without_a_cache_is_expected_to_be_as_fast_as_measured():
    assert speed((10, 10, 10), corpus=10**12) == pytest.approx(100)


def test_words_that_never_repeat_cost_the_same_in_the_corpus():
    # As much above a known byte in the second half as in the first: the price does not fall.
    assert speed((20, 20, 10), corpus=10**12) == pytest.approx(50)


def test_the_cost_of_new_text_falls_as_words_become_known():
    # 16 ns above the known in the first million bytes, 8 in the second: 12 over both, a fall by
    # 3/4 with each doubling.
    assert speed((20, 12, 4), corpus=2_000_000) == pytest.approx(1e3 / (4 + 16 * 0.75))
    assert speed((20, 12, 4), corpus=8_000_000) == pytest.approx(1e3 / (4 + 16 * 0.75**3))


def test_repeated_text_costs_as_much_as_known_text():
    assert speed((20, 20, 10), corpus=10**9, new_share=0.1) == pytest.approx(1e3 / 11)


@pytest.mark.parametrize("ns", [(9, 12, 10), (12, 9, 10), (0, 0, 0)])
def test_timing_noise_gives_a_finite_speed(ns):
    assert 1e3 / 12 <= speed(ns, corpus=10**9) <= 1e6


def test_texts_for_parity_are_spread_and_the_others_are_timed():
    sample = [f"{i:07d}" for i in range(200_000)]
    step = parity_stride(sample)
    parity, timing = sample[::step], timing_texts(CorpusSample(sample))
    assert sum(map(len, parity)) <= PARITY_BYTES
    assert int(parity[-1]) > 199_900
    assert sorted([*parity, *timing]) == sample
    assert parity_stride(sample[:10]) == 1
    assert timing_texts(CorpusSample(sample[:10])) == sample[:10]
    assert parity_stride([]) == 1


def test_the_reference_is_timed_on_a_sample_that_is_large_enough(tokenizer):
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    few, many = (
        encode_expected(tokenizer, reference, CorpusSample(["hello world"] * n)) for n in (3, 3000)
    )
    assert few.mb_per_s == 0
    assert many.mb_per_s > 0
    assert len(many.texts) == len(many.ids) == len(few.texts) + 2997
