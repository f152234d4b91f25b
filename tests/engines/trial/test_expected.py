"""The engine that a run expects before it is compared, and what the comparison makes of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from tokmill.engines.choice import Continuation
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.candidates import Corpus, EngineRequest
from tokmill.engines.trial.choose import choose_engine
from tokmill.engines.trial.compare import CorpusSample
from tokmill.engines.trial.expected import compared_choice, expected_choice
from tokmill.engines.trial.remembered import KeptScans
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

pytestmark = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)
CORPUS = Corpus(1 << 30, False, lambda *_: CorpusSample(["hello"] * 3))


@pytest.fixture(autouse=True)
def cache_dir(tmp_path, monkeypatch) -> Path:
    """Use a cache of this test, with the scans of the session, which take seconds."""
    scans = Path(os.environ["TOKMILL_CACHE_DIR"]) / "scans"
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    if scans.is_dir():
        shutil.copytree(scans, tmp_path / "cache" / "scans")
    return tmp_path / "cache"


def request_of(tokenizer, asked="auto") -> EngineRequest:
    load = partial(load_engine, REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    return EngineRequest(tokenizer, load, asked, "text", 1)


def expected(request, corpus=CORPUS, *, has_continuations=False):
    return expected_choice(request, corpus, has_continuations=has_continuations)


def test_nothing_is_expected_before_an_engine_was_chosen_or_for_little_text(tokenizer):
    request = request_of(tokenizer)
    assert expected(request) is None
    choose_engine(request, CORPUS, has_continuations=False)
    chosen = choose_engine(request, CORPUS, has_continuations=False)
    found = expected(request)
    assert (found.name, found.differs, found.reason) == (
        chosen.name,
        chosen.differs,
        chosen.reason,
    )
    assert found.name in FAST_ENGINES
    assert expected(request, replace(CORPUS, n_bytes=1000)) is None
    assert expected(replace(request, asked=REFERENCE)) is None


def test_an_engine_that_was_never_compared_on_all_characters_is_not_expected(tokenizer, cache_dir):
    request = request_of(tokenizer)
    choose_engine(request, CORPUS, has_continuations=False)
    shutil.rmtree(cache_dir / "scans")
    assert expected(request) is None


def test_the_comparison_gives_what_a_choice_gives(tokenizer):
    request = request_of(tokenizer)
    choose_engine(request, CORPUS, has_continuations=False)
    chosen = choose_engine(request, CORPUS, has_continuations=False)
    found = compared_choice(expected(request), request, CORPUS, has_continuations=False)
    assert found == chosen
    assert found.n_checked > 100


def test_other_ids_or_other_characters_give_no_choice(tokenizer, tokenizer_dir, tmp_path):
    request = request_of(tokenizer)
    choose_engine(request, CORPUS, has_continuations=False)
    found = expected(request)
    other = replace(found, continuation=Continuation(found.name))
    assert compared_choice(other, request, CORPUS, has_continuations=False) is None
    # gigatoken does not heed that an added token is for whole words.
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    words = load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))
    KeptScans(words, "text").keep("gigatoken", found.scan)  # which is not true
    wrong = replace(found, name="gigatoken")
    assert compared_choice(wrong, request_of(words), CORPUS, has_continuations=False) is None


def test_chats_expect_the_engine_for_continuations_too(tokenizer, monkeypatch):
    request = request_of(tokenizer)
    chosen = choose_engine(request, CORPUS, has_continuations=True)
    found = expected(request, has_continuations=True)
    assert found.continuation == chosen.continuation
    compared = compared_choice(found, request, CORPUS, has_continuations=True)
    assert compared.continuation == chosen.continuation
