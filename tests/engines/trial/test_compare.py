from __future__ import annotations

from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.trial.compare import (
    PARITY_BYTES,
    CorpusSample,
    encode_expected,
    parity_stride,
    timing_texts,
)


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
