from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

import tokmill.engines.trial.tasks as module
from tokmill.children import Child
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.hostile_texts import hostile_texts
from tokmill.engines.trial.tasks import (
    EngineTasks,
    EngineToLoad,
    fingerprints,
)
from tokmill.errors import TokenizerError
from tokmill.tokenizer.control_tokens import control_token_strings

TEXTS = ["hello world", "", "a<eos>b", "猫"]


def runner_of(tokenizer, engine=REFERENCE) -> EngineTasks:
    return EngineTasks(EngineToLoad(engine, tokenizer, "text", 1))


def parity(tokenizer, *, skew=0) -> tuple[list[str], list]:
    batch = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1).encode(
        pa.array(TEXTS, pa.large_string())
    )
    ids = [batch.ids[batch.offsets[i] : batch.offsets[i + 1]] + skew for i in range(len(TEXTS))]
    return TEXTS, ids


@pytest.mark.parametrize("name", [REFERENCE, *FAST_ENGINES])
def test_an_equal_engine_answers_no_difference(tokenizer, name):
    if not is_installed(name):
        pytest.skip(f"{name} has no wheel here")
    assert runner_of(tokenizer, name).differences(*parity(tokenizer)) == {}


def test_every_differing_text_is_named(tokenizer):
    answer = runner_of(tokenizer).differences(*parity(tokenizer, skew=1))
    assert list(answer) == [0, 2, 3]  # an empty text has no id
    assert answer[3].startswith("its ids differ from the reference's at token 0 (")


def test_the_tokenizer_is_read_once_for_all_texts_that_differ(tokenizer, monkeypatch):
    runner, task, read = runner_of(tokenizer), parity(tokenizer, skew=1), []
    monkeypatch.setattr(
        "tokmill.engines.trial.tasks.control_token_strings",
        lambda one: read.append(one) or control_token_strings(one),
    )
    assert len(runner.differences(*task)) == 3
    assert len(read) == 1


def test_answers_contain_neither_texts_of_the_corpus_nor_paths(tokenizer):
    text = hostile_texts([])[5]
    ids = [found + 1 for found in parity(tokenizer)[1]]
    answer = runner_of(tokenizer).differences([text, "mine"], ids[:2])
    lines = list(answer.values())
    assert lines[0].endswith(f" of the built-in text {text!r}")
    assert lines[1].endswith(" of a sampled document")
    elsewhere = dataclasses.replace(tokenizer, name="/home/somebody/tokenizer", json="")
    with pytest.raises(TokenizerError, match="cannot take the tokenizer: "):
        runner_of(elsewhere, FAST_ENGINES[0])


@pytest.mark.parametrize("texts", [["hello world"] * 500, ["a"], ["", ""]])
def test_loading_and_the_second_half_are_timed_and_the_half_again(tokenizer, texts):
    runner = runner_of(tokenizer)
    encoded = []
    runner._seconds_per_byte = lambda some: encoded.append(some) or 5.0 - len(encoded)
    found = runner.speed(texts, True)
    first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
    quarters = [
        some
        for some in (texts[len(first) : len(texts) * 3 // 4], texts[len(texts) * 3 // 4 :])
        if some
    ]
    assert encoded == [first, *quarters, *[second] * 4]
    assert (found.new_s, found.again_s) == (4.0 - len(quarters), -len(quarters))
    assert found.load_s > 0
    encoded.clear()
    assert runner.speed(texts, False)[1:] == (4.0 - len(quarters),) * 2
    assert encoded == [first, *quarters]


@pytest.mark.parametrize("texts", [["hello world"] * 500, ["a"], ["", ""]])
def test_speeds_are_seconds_of_the_processor(tokenizer, texts):
    found = runner_of(tokenizer).speed(texts, True)
    assert 0 <= found.again_s <= found.new_s


def test_a_child_process_answers_every_message(tokenizer):
    answers = []
    with Child("tokmill.engines.trial.tasks") as child:
        child.send(EngineToLoad(REFERENCE, tokenizer, "text", 1))
        for task in (parity(tokenizer), parity(tokenizer, skew=1)):
            child.send(("differences", task))
            answers.append(child.receive())
    assert answers[0] == {}
    assert "ids differ" in answers[1][0]


def test_fingerprints_are_equal_only_for_equal_ids(tokenizer, monkeypatch):
    engine = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    texts = ["hello", "", "the cat", "hello", "hell", "o", ""]
    found = fingerprints(engine, texts).tolist()
    assert found[0] == found[3]
    assert found[1] == found[6]
    assert len(set(found)) == 5
    monkeypatch.setattr(module, "_CALL_TEXTS", 2)
    assert fingerprints(engine, texts).tolist() == found
    assert fingerprints(engine, []).tolist() == []
