"""Which engine is taken: exact first, then fastest, and never without saying what is compared."""

from __future__ import annotations

import dataclasses
import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import tokmill.engines.choose as module
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.choose import (
    FASTEST,
    FASTEST_BEFORE,
    FIRST,
    LITTLE,
    NO_ENGINE,
    NO_FAST_ENGINE,
    NO_WORDPIECE,
    EngineRequest,
    choose_engine,
    comparison_cost,
)
from tokmill.engines.engine import (
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
)
from tokmill.engines.loaded import EngineStore
from tokmill.engines.routing import CharacterSet
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

SAMPLE = ["hello world", "the cat, the hat", "猫猫 狗狗"] * 20
MB = 10**6

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture(autouse=True)
def known(monkeypatch, tmp_path) -> dict[str, CharacterComparison]:
    """What earlier comparisons on characters found, by engine: nothing is compared here."""
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    found = dict.fromkeys(FAST_ENGINES, CharacterComparison())
    monkeypatch.setattr(module, "known_comparison", lambda _, name: found.get(name))
    return found


@pytest.fixture
def chosen(tokenizer):
    """Choose an engine for a corpus of a size, with the sample `SAMPLE`."""

    def make(n_bytes=10 * MB, asked="auto", of=tokenizer, sample=SAMPLE, notes=None, **given):
        class Engines(EngineStore):
            def load(self, name, tokenizer, **settings):
                other = given.get("other", tokenizer) if name == REFERENCE else tokenizer
                return super().load(name, other, **settings)

        notes = [] if notes is None else notes
        request = EngineRequest(
            of, asked, "text", 1, n_bytes, lambda _: sample, Engines(), notes.append
        )
        return choose_engine(request, has_continuations=False)

    return make


def changed(tokenizer_dir: Path, directory: Path, change) -> object:
    """Load the tiny tokenizer after `change` on its JSON."""
    data = json.loads((tokenizer_dir / "tokenizer.json").read_text())
    change(data)
    (directory / "tokenizer.json").write_text(json.dumps(data))
    return load_tokenizer(TokenizerSettings(path=str(directory), eos_token="<eos>"))


@pytest.fixture
def refused_everywhere(tokenizer_dir, tmp_path):
    """The tiny tokenizer with a normalizer that no fast engine supports."""

    def change(data):
        data["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": False}
        for token in data["added_tokens"]:
            token["normalized"] = False

    return changed(tokenizer_dir, tmp_path, change)


@pytest.fixture
def whole_words(tokenizer_dir, tmp_path):
    """With an added token that matches complete words only, which engines ignore."""
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))


@needs_fast_engines
@pytest.mark.parametrize(
    ("n_bytes", "name", "reason"),
    [(8 * MB, REFERENCE, LITTLE), (9 * MB, FAST_ENGINES[0], FIRST), (34 * MB, None, FASTEST)],
)
def test_a_fast_engine_is_used_from_8_mib_on_and_timed_from_32(chosen, n_bytes, name, reason):
    choice = chosen(n_bytes)
    assert choice.reason == reason
    assert choice.name in ([name] if name else FAST_ENGINES)
    assert set(choice.mb_per_s) == (set(FAST_ENGINES) if reason == FASTEST else set())
    assert choice.fallback == ""


@needs_fast_engines
def test_it_is_said_what_is_compared(chosen, tokenizer):
    notes = []
    choice = chosen(notes=notes, sample=SAMPLE)
    assert notes == ["comparing gigatoken with the reference on this corpus"]
    assert choice.version == engine_version("gigatoken", tokenizer)
    assert choice.reference == engine_version(REFERENCE, tokenizer)
    assert choice.n_checked > 150
    assert choice.scan_kept


@needs_fast_engines
def test_a_later_run_on_such_text_takes_one_engine_without_timing_it(chosen):
    first, notes = chosen(40 * MB), []
    later = chosen(40 * MB, notes=notes)
    assert (first.reason, later.reason, later.mb_per_s) == (FASTEST, FASTEST_BEFORE, {})
    assert notes == [f"comparing {later.name} with the reference on this corpus"]
    assert chosen(10 * MB).reason == FASTEST_BEFORE
    assert chosen(40 * MB, sample=["猫猫 狗狗 猫", "狗狗"] * 20).reason == FASTEST


@needs_fast_engines
def test_an_engine_that_would_load_longer_than_it_saves_is_not_loaded(chosen, tokenizer):
    large = dataclasses.replace(tokenizer, vocab_size=10_000_000)  # 85 s
    first, notes = chosen(40 * MB, of=large), []
    assert (first.name, first.reason, {*first.mb_per_s}) == ("gigatoken", FIRST, {"gigatoken"})
    assert (chosen(40 * MB, of=large).reason, chosen(40 * MB, of=large).mb_per_s) == (FIRST, {})
    later = chosen(10**9 * MB, of=large, notes=notes)
    assert (later.reason, {*later.mb_per_s}) == (FASTEST, {*FAST_ENGINES})
    assert notes == [f"comparing {name} with the reference on this corpus" for name in FAST_ENGINES]


@needs_fast_engines
@pytest.mark.parametrize(
    ("n_bytes", "mb_per_s", "name"),
    [
        (40 * MB, 150.0, "gigatoken"),  # loads in less time
        (2000 * MB, 150.0, "fastokens"),
        (2000 * MB, 120.0, "gigatoken"),  # its caches are warm
    ],
)
def test_a_later_run_takes_the_engine_that_has_loaded_and_encoded_first(
    chosen, monkeypatch, n_bytes, mb_per_s, name
):
    times = {"gigatoken": (100.0, 0.5), "fastokens": (mb_per_s, 2.0)}
    monkeypatch.setattr(module, "kept", lambda key: times)
    assert chosen(n_bytes).name == name


@needs_fast_engines
def test_the_fastest_of_earlier_is_compared_again(chosen, known):
    first = chosen(40 * MB)
    known[first.name] = CharacterComparison(refused="of old")
    assert chosen(40 * MB).name not in (first.name, REFERENCE)


@needs_fast_engines
@pytest.mark.parametrize("sample", [[], ["one text"]])
def test_a_sample_too_small_to_time_does_not_stop_the_choice(chosen, sample):
    choice = chosen(40 * MB, sample=sample)
    assert (choice.name, choice.mb_per_s) == (FAST_ENGINES[0], {})


@needs_fast_engines
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_asked_for_is_compared_for_any_size(chosen, name):
    choice = chosen(10, name)
    assert (choice.name, choice.reason) == (name, "asked for")
    assert choice.n_checked > 150


def test_the_reference_is_not_compared(chosen):
    choice = chosen(40 * MB, REFERENCE)
    assert (choice.name, choice.reason, choice.n_checked) == (REFERENCE, "asked for", 0)


@needs_fast_engines
def test_if_every_engine_refuses_the_reference_is_chosen_with_reasons_and_speed(
    chosen, refused_everywhere
):
    for n_bytes in (10 * MB, 40 * MB):
        choice = chosen(n_bytes, of=refused_everywhere, sample=SAMPLE * 100)
        assert (choice.name, choice.reason) == (REFERENCE, NO_FAST_ENGINE)
        assert all(f"engine {name} refuses" in choice.refused[name] for name in FAST_ENGINES)
        assert f"MB/s, since {NO_FAST_ENGINE}: gigatoken: " in choice.fallback
    for name in FAST_ENGINES:
        with pytest.raises(TokenizerError, match=f": engine {name} cannot be used: engine {name} "):
            chosen(40 * MB, name, of=refused_everywhere)


@needs_fast_engines
def test_an_engine_with_other_ids_on_this_corpus_is_not_chosen(chosen, whole_words):
    # The reference of another tokenizer: no engine has its ids of these texts.
    for n_bytes in (10 * MB, 40 * MB):
        choice = chosen(n_bytes, sample=["hel hel"], other=whole_words)
        assert choice.name == REFERENCE
        assert all("ids differ" in choice.refused[name] for name in FAST_ENGINES)
    with pytest.raises(TokenizerError, match="gigatoken cannot be used: its ids differ "):
        chosen(40 * MB, "gigatoken", sample=["hel hel"], other=whole_words)


@needs_fast_engines
def test_an_engine_is_not_chosen_where_the_reference_would_encode_nearly_everything(
    chosen, whole_words
):
    choice = chosen(of=whole_words, sample=["hel hel"] * 20)
    assert choice.name == REFERENCE
    assert choice.refused["gigatoken"] == "100% of the sample would go to the reference"


@needs_fast_engines
def test_a_difference_in_a_text_that_is_routed_does_not_refuse(chosen, known, whole_words):
    everything = CharacterComparison(CharacterSet(((0, 0x10FFFF),)))
    known["gigatoken"] = everything
    assert chosen(10 * MB, "gigatoken", of=whole_words).name == "gigatoken"


@needs_fast_engines
def test_an_engine_refused_on_characters_is_not_loaded(chosen, known):
    known["gigatoken"] = CharacterComparison(refused="of old")
    choice = chosen()
    assert (choice.name, choice.refused) == ("fastokens", {"gigatoken": "of old"})


@needs_fast_engines
def test_engines_that_no_one_compared_are_compared_now(chosen, known, monkeypatch):
    asked = []

    def compare(_, names, *rest):
        asked.append(list(names))
        return dict.fromkeys(names, CharacterComparison(n_characters=7))

    monkeypatch.setattr(module, "compare_engines", compare)
    del known["gigatoken"]
    choice = chosen()
    assert asked == [["gigatoken"]]
    assert (choice.name, choice.scan.n_characters, choice.scan_kept) == ("gigatoken", 7, False)


def test_a_tokenizer_that_is_no_bpe_is_encoded_by_the_reference(chosen, tokenizer):
    unigram = json.dumps({"model": {"vocab": [["a", 0.0]]}})
    choice = chosen(of=dataclasses.replace(tokenizer, json=unigram))
    assert (choice.name, choice.reason) == (REFERENCE, NO_ENGINE)


def test_a_wordpiece_without_its_engine_is_encoded_by_the_reference(chosen, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "nanotoken", None)
    words = json.dumps({"model": {"type": "WordPiece", "vocab": {"a": 0}}})
    choice = chosen(of=dataclasses.replace(tokenizer, json=words))
    assert (choice.name, choice.reason) == (REFERENCE, NO_WORDPIECE)
    assert "tokmill[wordpiece]" in choice.reason


def test_an_engine_that_is_not_installed_is_refused(chosen, monkeypatch):
    for name in FAST_ENGINES:
        monkeypatch.setitem(sys.modules, name, None)  # as where there is no wheel
    choice = chosen()
    assert choice.name == REFERENCE
    assert all(choice.refused[name] == "not installed" for name in FAST_ENGINES)
    with pytest.raises(TokenizerError, match="engine fastokens cannot be used: not installed"):
        chosen(asked="fastokens")


@needs_fast_engines
def test_the_cost_grows_with_what_is_loaded_and_compared(tokenizer, known):
    def cost(n_bytes, asked="auto"):
        return comparison_cost(tokenizer, asked, n_bytes, 2)

    costs = [cost(10 * MB, REFERENCE), cost(10 * MB), cost(40 * MB)]
    assert cost(1 * MB) == costs[0]
    known.clear()
    costs.append(cost(40 * MB))
    for less, more in pairwise(costs):
        assert less[0] < more[0]
        assert less[1] < more[1]
