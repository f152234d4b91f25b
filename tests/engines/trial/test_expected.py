"""The engine that a run expects before it is compared, and what the comparison makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from tokmill.engines.characters import CharacterSet
from tokmill.engines.choice import Continuation, ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.candidates import Corpus, EngineRequest
from tokmill.engines.trial.choose import choose_engine
from tokmill.engines.trial.compare import CorpusSample
from tokmill.engines.trial.expected import compared_choice, expected_choice
from tokmill.engines.trial.remembered import KeptScans
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.tokenizer import load_tokenizer

pytestmark = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)
CORPUS = Corpus(1 << 30, False, lambda *_: CorpusSample(["hello"] * 3))


@pytest.fixture(autouse=True)
def cache_dir(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def request_(tokenizer) -> EngineRequest:
    """A request for a tokenizer whose fast engines an earlier run compared on all characters."""
    keep(tokenizer)
    return request_of(tokenizer)


def keep(tokenizer, *, differs=(), refused="") -> None:
    for name in FAST_ENGINES:
        scan = ScanResult(CharacterSet.of(list(differs)), refused, 1_112_064, 1)
        KeptScans(tokenizer, "text").keep(name, scan)


def request_of(tokenizer, asked="auto") -> EngineRequest:
    load = partial(load_engine, REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    return EngineRequest(tokenizer, load, asked, "text", 1)


def expected(request, corpus=CORPUS, *, has_continuations=False):
    return expected_choice(request, corpus, has_continuations=has_continuations)


def test_without_an_engine_compared_on_all_characters_none_is_expected(tokenizer):
    request = request_of(tokenizer)
    assert expected(request) is None
    assert expected(replace(request, asked="gigatoken")) is None
    keep(tokenizer, refused="wrong")
    assert expected(request) is None
    assert expected(replace(request, asked="gigatoken")) is None


def test_what_is_expected_is_what_is_chosen(request_):
    chosen = choose_engine(request_, CORPUS, has_continuations=False)
    found = expected(request_)
    assert found.name in FAST_ENGINES
    assert replace(found, n_checked=chosen.n_checked, scan_kept=True) == chosen


def test_none_is_expected_for_little_text_or_where_the_reference_is_asked_for(request_):
    assert expected(request_, replace(CORPUS, n_bytes=1000)) is None
    assert expected(replace(request_, asked=REFERENCE)) is None
    assert expected(replace(request_, asked="fastokens")).name == "fastokens"


def test_an_engine_is_not_expected_where_much_text_would_go_to_the_reference(tokenizer):
    keep(tokenizer, differs=[0xE9])
    request = request_of(tokenizer)
    french = replace(CORPUS, sample=lambda *_: CorpusSample(["hello", "\u00e9t\u00e9"]))
    assert expected(request).routed == CharacterSet.of([0xE9])
    assert expected(request, french) is None
    assert expected(replace(request, asked="fastokens"), french).name == "fastokens"


def test_the_comparison_gives_what_a_choice_gives(request_):
    chosen = choose_engine(request_, CORPUS, has_continuations=False)
    found = compared_choice(expected(request_), request_, CORPUS, has_continuations=False)
    assert found == chosen
    assert found.n_checked > 100


def test_another_engine_for_continuations_gives_no_choice(request_):
    found = expected(request_)
    other = replace(found, continuation=Continuation(found.name))
    assert compared_choice(other, request_, CORPUS, has_continuations=False) is None


def test_other_ids_give_no_choice(tokenizer_dir, tmp_path):
    # gigatoken does not heed that an added token is for whole words.
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    words = load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))
    keep(words)  # which is not true
    request = request_of(words, "gigatoken")
    found = expected(request)
    assert found.name == "gigatoken"
    assert compared_choice(found, request, CORPUS, has_continuations=False) is None


@pytest.mark.parametrize("refused", ["", "wrong"])
def test_chats_expect_the_engine_for_continuations_too(tokenizer_dir, tmp_path, refused):
    # A prefix space is not for text that continues other text.
    data = json.loads((tokenizer_dir / "tokenizer.json").read_text())
    data["pre_tokenizer"]["add_prefix_space"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    spaced = load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))
    variant = continuation_tokenizer(spaced)
    assert variant is not spaced
    keep(spaced)
    request = request_of(spaced)
    assert expected(request, has_continuations=True) is None  # the variant was never compared
    keep(variant, refused=refused)
    found = expected(request, has_continuations=True)
    name = REFERENCE if refused else found.name
    assert found.continuation == Continuation(name)
    compared = compared_choice(found, request, CORPUS, has_continuations=True)
    assert compared.continuation == found.continuation
