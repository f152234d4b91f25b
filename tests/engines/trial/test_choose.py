from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import (
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
    load_engine,
)
from tokmill.engines.trial.candidates import (
    FASTEST,
    ONLY_ONE,
    Candidates,
    EngineRequest,
)
from tokmill.engines.trial.choose import fastest, find_exact_engine
from tokmill.engines.trial.compare import CorpusSample, Trial
from tokmill.engines.trial.contexts import Context, Group
from tokmill.engines.trial.speeds import KeptSpeeds
from tokmill.engines.trial.tasks import Speed
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

SOME = [Group("é中ſ\u0301😀", (Context("a", "'s"), Context(" ", "")))]
"""Compared instead of all characters, which `test_scan` compares."""

SAMPLE = ["hello world", "the cat, the hat", "猫猫 狗狗"] * 20


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    """Keep what is measured out of other tests."""
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


def some(sample=SAMPLE, names=FAST_ENGINES, *, timed=False) -> Candidates:
    """Return candidates: each in turn for the reason `expected`, or timed side by side."""
    corpus = CorpusSample(sample, sum(map(len, sample)))
    return Candidates(names, lambda: corpus, FASTEST if timed else "expected", timed=timed)


def chosen(tokenizer, asked="auto", control_in_text="text", *, timed=False, sample=SAMPLE):
    reference = load_engine(REFERENCE, tokenizer, control_in_text=control_in_text, n_threads=1)
    return find_exact_engine(
        EngineRequest(tokenizer, lambda: reference, asked, control_in_text, 1),
        some(sample, FAST_ENGINES if asked == "auto" else [asked], timed=timed),
        groups=SOME,
    )


def changed(tokenizer_dir: Path, directory: Path, change) -> object:
    """Load the tiny tokenizer after `change` on its JSON."""
    data = json.loads((tokenizer_dir / "tokenizer.json").read_text())
    change(data)
    (directory / "tokenizer.json").write_text(json.dumps(data))
    return load_tokenizer(TokenizerSettings(path=str(directory), eos_token="<eos>"))


@pytest.fixture
def refused_everywhere(tokenizer_dir, tmp_path):
    """The tiny tokenizer with a normalizer that no fast engine supports."""
    strip = {"type": "Strip", "strip_left": True, "strip_right": False}
    return changed(tokenizer_dir, tmp_path, lambda data: data.update(normalizer=strip))


@pytest.fixture
def whole_words(tokenizer_dir, tmp_path):
    """With an added token that matches complete words only, which gigatoken ignores."""
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))


@needs_fast_engines
def test_without_timing_the_first_exact_engine_is_taken(tokenizer):
    choice = chosen(tokenizer)
    assert choice.name == FAST_ENGINES[0]
    assert choice.version == engine_version(FAST_ENGINES[0], tokenizer)
    assert choice.reason == "expected"
    assert choice.n_checked > 150
    assert (choice.mb_per_s, choice.refused) == ({}, {})


@needs_fast_engines
def test_no_answer_is_awaited_while_the_corpus_is_sampled(tokenizer):
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    waiting = []

    def sample() -> CorpusSample:
        waiting.extend(frame for frame in inspect.stack() if frame.function == "result")
        return CorpusSample(SAMPLE)

    choice = find_exact_engine(
        EngineRequest(tokenizer, lambda: reference, "auto", "text", 1),
        dataclasses.replace(some(), sample=sample),
        groups=SOME,
    )
    assert (waiting, choice.name) == ([], FAST_ENGINES[0])


@needs_fast_engines
def test_with_timing_the_fastest_exact_engine_is_taken(tokenizer):
    choice = chosen(tokenizer, timed=True)
    assert choice.reason == "fastest on a sample"
    assert set(choice.mb_per_s) == set(FAST_ENGINES)


@pytest.mark.parametrize(
    ("corpus_bytes", "new_share", "best"),
    [
        (10**6, 1.0, "gigatoken"),  # loads faster
        (10**9, 1.0, "fastokens"),
        (10**9, 0.1, "gigatoken"),  # faster on repeated text
    ],
)
def test_loading_speed_and_repeated_text_decide_who_is_fastest(
    tokenizer, corpus_bytes, new_share, best
):
    speeds = {"gigatoken": Speed(0.1, 20e-9, 5e-9), "fastokens": Speed(0.5, 10e-9, 10e-9)}
    trial = Trial(proven=list(FAST_ENGINES), speeds=speeds)
    request = EngineRequest(tokenizer, lambda: pytest.fail("loaded"), "auto", "text", 2)
    sample = CorpusSample(SAMPLE, corpus_bytes, new_share)
    name, reason, mb_per_s = fastest(request, sample, trial, some(timed=True))
    assert (name, reason) == (best, "fastest on a sample")
    if new_share == 1:
        assert mb_per_s == {"gigatoken": 100.0, "fastokens": 200.0}
    kept = KeptSpeeds(tokenizer, "text").rank(FAST_ENGINES, 0.0, 10**9, 2)
    assert kept.costs == {"gigatoken": (0.1, 20e-9), "fastokens": (0.5, 10e-9)}


def test_the_only_exact_engine_is_not_called_the_fastest(tokenizer):
    trial = Trial(proven=["fastokens"], speeds={"fastokens": Speed(0.5, 10e-9, 10e-9)})
    request = EngineRequest(tokenizer, lambda: pytest.fail("loaded"), "auto", "text", 2)
    found = fastest(request, CorpusSample(SAMPLE, 10**9), trial, some(timed=True))
    assert found == ("fastokens", ONLY_ONE, {"fastokens": 200.0})


@needs_fast_engines
@pytest.mark.parametrize("sample", [[], ["one text"]])
def test_a_sample_too_small_to_time_does_not_stop_the_choice(tokenizer, sample):
    assert chosen(tokenizer, timed=True, sample=sample).name in FAST_ENGINES


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_asked_for_is_compared_too(tokenizer, name):
    choice = chosen(tokenizer, name, "parse")
    assert (choice.name, choice.reason) == (name, "expected")
    assert choice.n_checked > 150


def test_the_reference_is_not_compared(tokenizer):
    version = engine_version(REFERENCE, tokenizer)
    choice = EngineChoice(REFERENCE, version, "expected", reference=version)
    assert chosen(tokenizer, REFERENCE) == choice


@needs_fast_engines
def test_if_every_engine_refuses_the_reference_is_chosen(refused_everywhere):
    choice = chosen(refused_everywhere, timed=True)
    assert choice.name == REFERENCE
    assert choice.reason == "no fast engine gives its ids here"
    assert set(choice.refused) == set(FAST_ENGINES)
    assert all(f"engine {name} refuses" in reason for name, reason in choice.refused.items())


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_asked_for_that_refuses_is_an_error(refused_everywhere, name):
    with pytest.raises(TokenizerError, match=f": engine {name} cannot be used: engine {name} ref"):
        chosen(refused_everywhere, name)


@needs_fast_engines
def test_an_engine_that_gives_other_ids_is_not_chosen(whole_words):
    choice = chosen(whole_words)
    assert choice.name == "fastokens"
    assert "its ids differ from the reference's" in choice.refused["gigatoken"]


@needs_fast_engines
def test_an_engine_asked_for_that_gives_other_ids_is_an_error(whole_words):
    with pytest.raises(TokenizerError, match="gigatoken cannot be used: its ids differ "):
        chosen(whole_words, "gigatoken")


@needs_fast_engines
def test_if_every_engine_gives_other_ids_the_reference_is_chosen(tokenizer, whole_words):
    # The reference of another tokenizer: no engine has its ids.
    other = load_engine(REFERENCE, whole_words, control_in_text="text", n_threads=1)
    choice = find_exact_engine(
        EngineRequest(tokenizer, lambda: other, "auto", "text", 1),
        some(["hel hel"]),
        groups=SOME,
    )
    assert choice.name == REFERENCE
    assert all("ids differ" in choice.refused[name] for name in FAST_ENGINES)


def test_an_engine_that_is_not_installed_is_refused(tokenizer, monkeypatch):
    for name in FAST_ENGINES:
        monkeypatch.setitem(sys.modules, name, None)  # as where there is no wheel
    choice = chosen(tokenizer)
    assert choice.name == REFERENCE
    assert all(choice.refused[name] == "not installed" for name in FAST_ENGINES)
    with pytest.raises(TokenizerError, match="engine fastokens cannot be used: not installed"):
        chosen(tokenizer, "fastokens")


@needs_fast_engines
def test_the_engines_of_a_large_corpus_load_side_by_side(tokenizer):
    begun = []

    def reference():
        begun.append("reference")
        return load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)

    def sample():
        begun.append("sample")
        return CorpusSample(SAMPLE, 1000)

    find_exact_engine(
        EngineRequest(tokenizer, reference, "auto", "text", 1),
        dataclasses.replace(some(timed=True), sample=sample),
        groups=SOME,
    )
    assert begun == ["reference", "sample"]  # once for both engines
