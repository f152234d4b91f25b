from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import tokmill.encode.choose as choose
from tokmill.config import TokenizerSettings
from tokmill.encode.choose import EngineChoice, ProbeTask, choose_engine, probe
from tokmill.encode.engine import FAST_ENGINES, REFERENCE, engine_version, is_installed, load_engine
from tokmill.encode.tokenizer import load_tokenizer
from tokmill.errors import TokenizerError

SAMPLE = ["hello world", "the cat, the hat", "猫猫 狗狗"] * 20

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


def chosen(tokenizer, asked="auto", control_in_text="text", *, timed=False, sample=SAMPLE):
    reference = load_engine(REFERENCE, tokenizer, control_in_text=control_in_text, n_threads=1)
    return choose_engine(
        tokenizer,
        reference,
        sample,
        asked=asked,
        control_in_text=control_in_text,
        n_threads=1,
        timed=timed,
    )


def changed(tokenizer_dir: Path, directory: Path, change) -> object:
    """Load the tiny tokenizer after `change` on its JSON."""
    data = json.loads((tokenizer_dir / "tokenizer.json").read_text())
    change(data)
    (directory / "tokenizer.json").write_text(json.dumps(data))
    return load_tokenizer(TokenizerSettings(path=str(directory), eos_token="<eos>"))


@pytest.fixture
def refused_everywhere(tokenizer_dir, tmp_path):
    """The tiny tokenizer with a normalizer that no fast engine knows."""
    strip = {"type": "Strip", "strip_left": True, "strip_right": False}
    return changed(tokenizer_dir, tmp_path, lambda data: data.update(normalizer=strip))


@pytest.fixture
def whole_words(tokenizer_dir, tmp_path):
    """With an added token that matches whole words only, which gigatoken does not heed."""
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))


@needs_fast_engines
def test_without_timing_the_first_exact_engine_is_taken(tokenizer):
    choice = chosen(tokenizer)
    assert choice.name == FAST_ENGINES[0]
    assert choice.version == engine_version(FAST_ENGINES[0], tokenizer)
    assert choice.reason == "first exact"
    assert choice.n_checked > 150
    assert (choice.mb_per_s, choice.refused) == ({}, {})


@needs_fast_engines
def test_with_timing_the_fastest_exact_engine_is_taken(tokenizer):
    choice = chosen(tokenizer, timed=True)
    assert choice.reason == "fastest on a sample"
    assert set(choice.mb_per_s) == set(FAST_ENGINES)
    assert choice.mb_per_s[choice.name] == max(choice.mb_per_s.values())


@needs_fast_engines
@pytest.mark.parametrize("sample", [[], ["one text"]])
def test_a_sample_too_small_to_time_does_not_stop_the_choice(tokenizer, sample):
    assert chosen(tokenizer, timed=True, sample=sample).name in FAST_ENGINES


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_asked_for_proves_itself(tokenizer, name):
    choice = chosen(tokenizer, name, "parse")
    assert (choice.name, choice.reason) == (name, "asked for")
    assert choice.n_checked > 150


def test_the_reference_needs_no_proof(tokenizer):
    version = engine_version(REFERENCE, tokenizer)
    assert chosen(tokenizer, REFERENCE) == EngineChoice(REFERENCE, version, "asked for")


@needs_fast_engines
def test_where_every_engine_refuses_the_reference_encodes(refused_everywhere):
    choice = chosen(refused_everywhere, timed=True)
    assert choice.name == REFERENCE
    assert choice.reason == "no fast engine gives its ids here"
    assert set(choice.refused) == set(FAST_ENGINES)
    assert all(f"engine {name} refuses" in choice.refused[name] for name in FAST_ENGINES)


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_asked_for_that_refuses_is_an_error(refused_everywhere, name):
    with pytest.raises(TokenizerError, match=f": engine {name} cannot be used: engine {name} ref"):
        chosen(refused_everywhere, name)


@needs_fast_engines
def test_an_engine_that_gives_other_ids_is_not_taken(whole_words):
    choice = chosen(whole_words)
    assert choice.name == "fastokens"
    assert "the engine's ids differ from the reference's" in choice.refused["gigatoken"]


@needs_fast_engines
def test_an_engine_asked_for_that_gives_other_ids_is_an_error(whole_words):
    with pytest.raises(TokenizerError, match="gigatoken cannot be used: gigatoken: the engine's "):
        chosen(whole_words, "gigatoken")


def task(tokenizer, engine: str, ids: list[int]) -> ProbeTask:
    return ProbeTask(engine, tokenizer, "text", 1, ["hello"], [np.array(ids, np.uint32)], ())


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_one_wrong_id_in_a_child_process_refuses_an_engine(tokenizer, name):
    assert probe(task(tokenizer, name, [5]))["refused"].startswith(
        f"{name}: the engine's ids differ from the reference's at token 0 "
    )


@needs_fast_engines
def test_where_every_engine_gives_other_ids_the_reference_encodes(tokenizer, whole_words):
    # The reference of another tokenizer: what it expects, no engine can give.
    other = load_engine(REFERENCE, whole_words, control_in_text="text", n_threads=1)
    choice = choose_engine(
        tokenizer,
        other,
        ["hel hel"],
        asked="auto",
        control_in_text="text",
        n_threads=1,
        timed=False,
    )
    assert choice.name == REFERENCE
    assert all("ids differ" in reason for reason in choice.refused.values())
    assert len(choice.refused) == 2


def test_a_child_that_dies_is_a_refusal_and_not_a_crash(tokenizer):
    broken = task(tokenizer, "tokenizers", [5])
    answer = probe(ProbeTask(**{**fields(broken), "parity_texts": [3]}))
    assert answer["refused"].startswith("died with status 1: ")


def test_a_child_that_does_not_answer_in_time_is_a_refusal(tokenizer, monkeypatch):
    monkeypatch.setattr(choose, "PROBE_TIMEOUT_S", 0.001)
    assert probe(task(tokenizer, "tokenizers", [5])) == {"refused": "did not finish within 0.001 s"}


def test_an_engine_that_is_not_installed_is_a_refusal(tokenizer, monkeypatch):
    for name in FAST_ENGINES:
        monkeypatch.setitem(sys.modules, name, None)  # as where there is no wheel
    choice = chosen(tokenizer)
    assert choice.name == REFERENCE
    assert dict(choice.refused) == dict.fromkeys(FAST_ENGINES, "not installed")
    with pytest.raises(TokenizerError, match="engine fastokens cannot be used: not installed"):
        chosen(tokenizer, "fastokens")


def fields(value: ProbeTask) -> dict[str, object]:
    return {name: getattr(value, name) for name in ProbeTask.__slots__}


def test_a_choice_survives_json_and_the_way_between_processes():
    choice = EngineChoice("gigatoken", "0.10.0", "asked for", 3, {"gigatoken": 1.5}, {"x": "no"})
    assert EngineChoice.from_json(json.loads(json.dumps(choice.as_json()))) == choice
    assert pickle.loads(pickle.dumps(choice)) == choice


def test_parity_texts_are_spread_over_a_large_sample():
    sample = [f"{i:07d}" for i in range(10_000)]
    some = choose._up_to(sample, 7000)
    assert some[0] == sample[0]
    assert sum(map(len, some)) <= 7000
    assert int(some[-1]) > 9900
    assert choose._up_to(sample[:10], 7000) == sample[:10]
    assert choose._up_to([], 7000) == []
