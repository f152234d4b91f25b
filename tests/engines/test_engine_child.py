from __future__ import annotations

import dataclasses

import psutil
import pytest

from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.engine_child import EngineChild, fingerprints

TEXTS = ["hello", "", "the cat"]


def test_a_child_answers_with_fingerprints_of_ids(tokenizer):
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    with EngineChild(REFERENCE, tokenizer, 1) as child:
        for texts in (TEXTS, TEXTS[:1]):
            child.begin(texts)
            assert child.result().tolist() == fingerprints(reference, texts).tolist()
    assert child.refused == ""
    assert len(set(fingerprints(reference, TEXTS).tolist())) == 3


def test_a_child_that_dies_refuses_the_engine(tokenizer):
    with EngineChild(REFERENCE, tokenizer, 1) as child:
        child.begin([3])
        assert child.result().tolist() == [0]
        assert child.refused.startswith("died with status 1: ")
        child.begin(TEXTS)  # writes to nobody
        assert child.result().tolist() == [0, 0, 0]
        assert not child.timed_out


def test_a_child_that_does_not_answer_in_time_refuses_the_engine(tokenizer):
    with EngineChild(REFERENCE, tokenizer, 1) as child:
        child.begin(["hello " * 10**6])
        child.result(timeout_s=0.001)
        assert child.refused == "did not finish within 0.001 s"
        assert child.timed_out


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    if not is_installed(name):
        pytest.skip(f"{name} has no wheel here")
    model = dataclasses.replace(tokenizer, name="m.model", json="")
    with EngineChild(name, model, 1) as child:
        child.begin(TEXTS)
        child.result()
        why = f"engine {name} cannot take the tokenizer: no tokenizer.json says the same"
        assert child.refused == why


def test_nothing_is_left_of_a_closed_engine(tokenizer):
    process = psutil.Process()
    before, others = process.num_fds(), set(process.children())
    with EngineChild(REFERENCE, tokenizer, 1):
        assert len(set(process.children()) - others) == 1
    assert set(process.children()) == others
    assert process.num_fds() == before
