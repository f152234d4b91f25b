from __future__ import annotations

import pytest

from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.candidate import Candidate, Loading
from tokmill.engines.trial.contexts import Context, Group
from tokmill.engines.trial.scanner import Scanner

SOME = [Group("é中ſ\u0301😀\U000323b0", (Context("a", "'s"), Context(" ", "")))]

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


def scanner_of(tokenizer, groups=None, loads=None) -> Scanner:
    def reference():
        if loads is not None:
            loads.append("reference")
        return load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)

    return Scanner(tokenizer, reference, "text", groups)


def scanned(scanner: Scanner, tokenizer, engine: str):
    with Candidate(Loading(engine, tokenizer, "text", 1)) as candidate:
        scanner.begin(candidate)
        return scanner.result(candidate), candidate.refused


@needs_fast_engines
def test_an_engine_is_compared_on_every_character_once_and_remembered(tokenizer):
    result, refused = scanned(scanner_of(tokenizer), tokenizer, "gigatoken")
    assert (result.refused, refused) == ("", "")
    assert result.n_characters == 1_112_064
    loads = []
    again = scanner_of(tokenizer, loads=loads)
    assert again.known("gigatoken") == result
    assert scanned(again, tokenizer, "gigatoken") == (result, "")
    assert loads == []


def test_a_scan_of_some_characters_is_not_remembered(tokenizer):
    scanner = scanner_of(tokenizer, SOME)
    result, _ = scanned(scanner, tokenizer, REFERENCE)
    assert (result.n_characters, len(result.differs)) == (6, 0)
    assert scanner_of(tokenizer, SOME).known(REFERENCE) is None
    assert scanner_of(tokenizer).known(REFERENCE) is None


def test_nothing_is_found_of_a_candidate_that_is_refused_before(tokenizer):
    scanner = scanner_of(tokenizer, SOME)
    with Candidate(Loading("gigatoken", tokenizer, "text", 1)) as candidate:
        candidate.refused = "of old"
        scanner.begin(candidate)
        assert scanner.result(candidate) is None
        assert candidate.refused == "of old"


def test_a_candidate_that_dies_in_the_middle_is_refused_and_not_remembered(tokenizer):
    scanner = scanner_of(tokenizer, SOME)
    with Candidate(Loading(REFERENCE, tokenizer, "text", 1)) as candidate:
        scanner.begin(candidate)
        candidate._child.kill()
        assert scanner.result(candidate) is None
        assert candidate.refused.startswith("died with status ")
