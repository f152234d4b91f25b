from __future__ import annotations

import dataclasses

import numpy as np
import psutil
import pyarrow as pa
import pytest

import tokmill.engines.trial.candidate as candidate
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.candidate import Candidate, Loading, Parity, Texts, Timing
from tokmill.engines.trial.fingerprints import fingerprints

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


def loading(tokenizer, name=REFERENCE) -> Loading:
    return Loading(name, tokenizer, "text", 1)


def parity(tokenizer, *, skew=0) -> Parity:
    texts = ["hello", "the cat"]
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    batch = reference.encode(pa.array(texts, pa.large_string()))
    ids = [batch.ids[a:b] + skew for a, b in zip(batch.offsets, batch.offsets[1:], strict=False)]
    return Parity(texts, ids)


def test_an_equal_engine_answers_nothing_and_then_its_speed(tokenizer):
    with Candidate(loading(tokenizer)) as found:
        found.begin(parity(tokenizer))
        assert found.result() == {}
        found.begin(Timing(["hello world"] * 500))
        assert set(found.result()) == {"first", "second", "again"}
    assert found.refused == ""


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_every_text_with_wrong_ids_is_told(tokenizer, name):
    with Candidate(loading(tokenizer, name)) as found:
        found.begin(parity(tokenizer, skew=1))
        lines = found.result()["differences"]
        line = "its ids differ from the reference's at token 0 "
        assert [lines[i].startswith(line) for i in (0, 1)] == [True, True]
        assert found.refused == ""


def test_a_child_that_dies_is_a_refusal_and_not_a_crash(tokenizer):
    with Candidate(loading(tokenizer)) as found:
        found.begin(Parity([3], [np.zeros(1, np.uint32)]))
        found.result()
        assert found.refused.startswith("died with status 1: ")
        found.begin(parity(tokenizer))  # writes to nobody


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    model = dataclasses.replace(tokenizer, name="m.model", json="")
    with Candidate(loading(model, name)) as found:
        found.begin(parity(tokenizer))
        found.result()
        why = f"engine {name} cannot take the tokenizer: no tokenizer.json says the same"
        assert found.refused == why


def test_a_child_that_does_not_answer_in_time_is_a_refusal(tokenizer, monkeypatch):
    monkeypatch.setattr(candidate, "PROBE_TIMEOUT_S", 0.001)
    with Candidate(loading(tokenizer)) as found:
        found.begin(parity(tokenizer))
        found.result()
        assert found.refused == "did not finish within 0.001 s"


def test_an_engine_that_is_not_installed_starts_no_child(tokenizer, monkeypatch):
    monkeypatch.setattr(candidate, "is_installed", lambda name: False)
    with Candidate(loading(tokenizer)) as found:
        found.begin(parity(tokenizer))
        assert (found.result(), found.refused) == ({}, "not installed")


def test_nothing_is_left_of_a_candidate(tokenizer):
    process = psutil.Process()
    before = process.num_fds()
    with Candidate(loading(tokenizer)):
        assert len(process.children()) == 1
    assert process.children() == []
    assert process.num_fds() == before


def test_a_child_tells_fingerprints_of_ids(tokenizer):
    texts = ["hello", "", "the cat"]
    with Candidate(loading(tokenizer)) as found:
        found.begin(Texts(texts))
        told = found.fingerprints()
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    assert told.tolist() == fingerprints(reference, texts).tolist()
    assert len(set(told.tolist())) == 3


def test_a_child_that_dies_tells_no_fingerprints(tokenizer):
    with Candidate(loading(tokenizer)) as found:
        found.begin(Texts([3]))
        assert len(found.fingerprints()) == 0
        assert found.refused.startswith("died with status 1: ")
