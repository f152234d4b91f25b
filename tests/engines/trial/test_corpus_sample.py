from __future__ import annotations

from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.trial.corpus_sample import PARITY_BYTES, Sample, step_of, take, timing_texts


def test_texts_for_parity_are_spread_and_those_to_time_are_the_others():
    sample = [f"{i:07d}" for i in range(200_000)]
    step = step_of(sample)
    parity, timing = sample[::step], timing_texts(Sample(sample)).texts
    assert sum(map(len, parity)) <= PARITY_BYTES
    assert int(parity[-1]) > 199_900
    assert sorted([*parity, *timing]) == sample
    assert step_of(sample[:10]) == 1
    assert timing_texts(Sample(sample[:10])).texts == sample[:10]
    assert step_of([]) == 1


def test_the_reference_is_timed_on_a_sample_that_is_large_enough(tokenizer):
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    few, many = (take(tokenizer, reference, Sample(["hello world"] * n)) for n in (3, 3000))
    assert few.mb_per_s == 0
    assert many.mb_per_s > 0
    assert len(many.parity.texts) == len(many.parity.ids) == len(few.parity.texts) + 2997
