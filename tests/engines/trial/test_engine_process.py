from __future__ import annotations

import dataclasses

import numpy as np
import psutil
import pyarrow as pa
import pytest

import tokmill.engines.trial.engine_process as module
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.store import EngineStore
from tokmill.engines.trial.engine_process import EngineProcess, InProcessEngine
from tokmill.engines.trial.tasks import EngineToLoad, Speed, fingerprints

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


def loading(tokenizer, name=REFERENCE) -> EngineToLoad:
    return EngineToLoad(name, tokenizer, "text", 1)


def parity(tokenizer, *, skew=0) -> tuple[str, list[str], list[np.ndarray]]:
    texts = ["hello", "the cat"]
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    batch = reference.encode(pa.array(texts, pa.large_string()))
    ids = [batch.ids[a:b] + skew for a, b in zip(batch.offsets, batch.offsets[1:], strict=False)]
    return "differences", texts, ids


def test_an_equal_engine_answers_no_difference_and_then_its_speed(tokenizer):
    with EngineProcess(loading(tokenizer)) as found:
        found.begin(*parity(tokenizer))
        assert found.result() == {}
        found.begin("speed", ["hello world"] * 500, False)
        assert isinstance(found.result(), Speed)
    assert found.refused == ""


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_every_text_with_wrong_ids_is_reported(tokenizer, name):
    with EngineProcess(loading(tokenizer, name)) as found:
        found.begin(*parity(tokenizer, skew=1))
        lines = found.result()
        line = "its ids differ from the reference's at token 0 "
        assert [lines[i].startswith(line) for i in (0, 1)] == [True, True]
        assert found.refused == ""


def test_a_child_that_dies_refuses_the_engine(tokenizer):
    with EngineProcess(loading(tokenizer)) as found:
        found.begin("differences", [3], [np.zeros(1, np.uint32)])
        found.result()
        assert found.refused.startswith("died with status 1: ")
        found.begin(*parity(tokenizer))  # writes to nobody


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    model = dataclasses.replace(tokenizer, name="m.model", json="")
    with EngineProcess(loading(model, name)) as found:
        found.begin(*parity(tokenizer))
        found.result()
        why = f"engine {name} cannot take the tokenizer: no tokenizer.json says the same"
        assert found.refused == why


def test_a_child_that_does_not_answer_in_time_refuses_the_engine(tokenizer):
    with EngineProcess(loading(tokenizer)) as found:
        found.begin(*parity(tokenizer))
        found.result(timeout_s=0.001)
        assert found.refused == "did not finish within 0.001 s"


def test_an_engine_that_is_not_installed_starts_no_child(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    with EngineProcess(loading(tokenizer)) as found:
        found.begin(*parity(tokenizer))
        assert (found.result(), found.refused) == (None, "not installed")


def test_nothing_is_left_of_a_closed_engine(tokenizer):
    process = psutil.Process()
    before, others = process.num_fds(), set(process.children())
    with EngineProcess(loading(tokenizer)):
        assert len(set(process.children()) - others) == 1
    assert set(process.children()) == others
    assert process.num_fds() == before


def test_a_child_answers_with_fingerprints_of_ids(tokenizer):
    texts = ["hello", "", "the cat"]
    with EngineProcess(loading(tokenizer)) as found:
        found.begin("fingerprints", texts)
        told = found.result()
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    assert told.tolist() == fingerprints(reference, texts).tolist()
    assert len(set(told.tolist())) == 3


def test_a_child_that_dies_has_no_fingerprints(tokenizer):
    with EngineProcess(loading(tokenizer)) as found:
        found.begin("fingerprints", [3])
        assert found.result() is None
        assert found.refused.startswith("died with status 1: ")


def test_an_engine_in_this_process_answers_as_a_child_does(tokenizer):
    with InProcessEngine(EngineToLoad(REFERENCE, tokenizer, "text", 1), EngineStore()) as found:
        found.begin(*parity(tokenizer))
        assert found.result() == {}
        found.begin(*parity(tokenizer, skew=1))
        assert list(found.result()) == [0, 1]
        found.begin("fingerprints", ["hello"])
        reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
        assert found.result().tolist() == fingerprints(reference, ["hello"]).tolist()
    assert found.refused == ""


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_in_this_process_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    if not is_installed(name):
        pytest.skip(f"{name} has no wheel here")
    model = dataclasses.replace(tokenizer, json="")
    with InProcessEngine(EngineToLoad(name, model, "text", 1), EngineStore()) as found:
        found.begin(*parity(tokenizer))
        assert found.result() is None
        assert found.refused.endswith("no tokenizer.json says the same")


def test_an_error_that_is_no_native_panic_is_raised(tokenizer):
    with (
        InProcessEngine(EngineToLoad(REFERENCE, tokenizer, "text", 1), EngineStore()) as found,
        pytest.raises(TypeError),
    ):
        found.begin("differences", [object()], [np.zeros(1, np.uint32)])
