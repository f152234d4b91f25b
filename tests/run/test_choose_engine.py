"""Which engine a run takes, what it remembers, and what it compares in every run."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import tokmill.engines.trial.candidates as choosing
from tokmill.engines.choice import EngineChoice, ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed
from tokmill.engines.trial import choose
from tokmill.engines.trial.candidates import FASTEST
from tokmill.engines.trial.remembered import KeptScans
from tokmill.engines.trial.speeds import MEASURED, TYPICAL, Cost, KeptSpeeds
from tokmill.run.choose_engine import choose_run_engine
from tokmill.run.prepare import prepare, reference_of
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture
def cache_dir(tmp_path, monkeypatch) -> Path:
    """Use a cache of this test, with the scans of the session, which take seconds."""
    scans = Path(os.environ["TOKMILL_CACHE_DIR"]) / "scans"
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    if scans.is_dir():
        shutil.copytree(scans, tmp_path / "cache" / "scans")
    return tmp_path / "cache"


@pytest.fixture
def chosen(configure, write_rows, tmp_path):
    """Choose the engine for a corpus of one text, a number of times."""

    def make(text="hello", n=1, **settings) -> EngineChoice:
        rows = write_rows(tmp_path / "a.jsonl", [{"text": text}] * n)
        prepared = prepare(configure(tmp_path / "out", rows, **settings))
        return choose_run_engine(prepared, reference_of(prepared), 1)

    return make


def any_size(monkeypatch) -> None:
    for name in ("TRIED_FROM_BYTES", "SCANNED_FROM_BYTES", "FULLY_SCANNED_FROM_BYTES"):
        monkeypatch.setattr(choosing, name, 0)
    for name in ("TRIED_FROM_BYTES_PER_ID", "SCANNED_FROM_BYTES_PER_ID"):
        monkeypatch.setattr(choosing, name, 0)


@needs_fast_engines
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", lambda path, texts: pq.write_table(pa.table({"text": texts}), path)),
        ("a.jsonl.gz", lambda path, texts: path.write_bytes(gzip.compress(lines_of(texts)))),
        ("a.jsonl", lambda path, texts: path.write_bytes(lines_of(texts))),
    ],
)
def test_an_input_is_weighed_by_its_text_where_it_is_stored_smaller(
    configure, tokenizer, tmp_path, cache_dir, name, write
):
    for engine in FAST_ENGINES:
        KeptScans(tokenizer, "text").keep(engine, ScanResult())
    found = []
    for n_texts in (250, 500):  # 1.5 and 3 MB
        path = tmp_path / f"{n_texts}-{name}"
        write(path, [f"{i} " + "the cat sat " * 500 for i in range(n_texts)])
        prepared = prepare(configure(tmp_path / "out", path, engine="auto"))
        found.append(choose_run_engine(prepared, reference_of(prepared), 1).name)
    assert found[0] == REFERENCE
    assert found[1] in FAST_ENGINES


def lines_of(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def stripping(tokenizer_dir: Path, directory: Path) -> dict[str, str]:
    """Return settings with a tokenizer whose normalizer no fast engine supports."""
    data = json.loads((tokenizer_dir / "tokenizer.json").read_text())
    data["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": False}
    (directory / "tokenizer.json").write_text(json.dumps(data))
    return {"engine": "auto", "path": str(directory), "eos_token": "<eos>"}


def test_for_little_text_the_reference_is_chosen_and_noted(chosen, cache_dir):
    choice = chosen(engine="auto")
    assert choice.name == REFERENCE
    assert choice.reason == "quicker than proving another engine for so little text"
    assert (choice.fallback, choice.refused) == ("", {})
    assert not (cache_dir / "engines.json").exists()


@needs_fast_engines
def test_from_some_size_on_an_engine_is_taken_that_was_compared_before(
    chosen, monkeypatch, cache_dir
):
    for name in ("TRIED_FROM_BYTES", "TRIED_FROM_BYTES_PER_ID"):
        monkeypatch.setattr(choosing, name, 0)
    shutil.rmtree(cache_dir / "scans", ignore_errors=True)
    assert chosen(engine="auto").name == REFERENCE
    chosen(engine="gigatoken")
    choice = chosen(engine="auto")
    assert (choice.name, choice.scan_kept) == ("gigatoken", True)


@needs_fast_engines
def test_a_remembered_choice_is_compared_on_the_corpus_of_every_run(chosen, monkeypatch, cache_dir):
    any_size(monkeypatch)
    for name in FAST_ENGINES:
        chosen(engine=name)
    first, second = chosen(engine="auto"), chosen("the cat", 5, engine="auto")
    assert (first.name in FAST_ENGINES, second.reason) == (True, TYPICAL)  # no text to time
    assert second.n_checked == first.n_checked + 4
    assert second.scan_kept
    assert second.scan.n_characters >= 67_584


@needs_fast_engines
def test_engines_are_timed_once_and_the_result_serves_other_texts(chosen, monkeypatch, cache_dir):
    any_size(monkeypatch)
    shutil.rmtree(cache_dir / "scans", ignore_errors=True)
    first, second = (chosen(text * 500, 9, engine="auto") for text in ("hello ", "the cat "))
    assert (first.reason, second.reason) == (FASTEST, MEASURED)
    assert set(first.mb_per_s) == set(second.mb_per_s) == set(FAST_ENGINES)
    assert first.mb_per_s == second.mb_per_s
    assert (first.scan_kept, second.scan_kept) == (False, True)


@needs_fast_engines
def test_an_engine_that_is_expected_to_be_fastest_still_has_to_be_exact(
    chosen, monkeypatch, cache_dir, tokenizer_dir, tmp_path
):
    # gigatoken does not heed that an added token is for whole words.
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    settings = {"engine": "auto", "path": str(tmp_path), "eos_token": "<eos>"}
    any_size(monkeypatch)
    tokenizer = load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))
    for name in FAST_ENGINES:
        KeptScans(tokenizer, "text").keep(name, ScanResult())  # as if it had been exact
    costs = {"gigatoken": Cost(0.1, 10e-9), "fastokens": Cost(0.1, 20e-9)}
    KeptSpeeds(tokenizer, "text").keep(0.0, costs)
    choice = chosen(**settings)
    assert (choice.name, choice.reason) == ("fastokens", MEASURED)
    assert choice.mb_per_s == {"fastokens": 50.0}
    assert "its ids differ" in choice.refused["gigatoken"]


def test_that_no_fast_engine_can_be_used_is_remembered(
    chosen, monkeypatch, cache_dir, tokenizer_dir, tmp_path
):
    any_size(monkeypatch)
    settings = stripping(tokenizer_dir, tmp_path)
    first = chosen("hello " * 4000, **settings)
    monkeypatch.setattr(choose, "try_engines", lambda *_, **__: pytest.fail("tried"))
    assert chosen(**settings) == dataclasses.replace(first, n_checked=0)


def test_a_choice_kept_by_another_version_is_made_again(
    chosen, monkeypatch, cache_dir, tokenizer_dir, tmp_path
):
    any_size(monkeypatch)
    settings = stripping(tokenizer_dir, tmp_path)
    chosen(**settings)
    kept = cache_dir / "engines.json"
    choices = json.loads(kept.read_bytes())
    kept.chmod(0o644)
    kept.write_text(json.dumps({key: {"colour": "red"} for key in choices}))
    chosen(**settings)
    again = json.loads(kept.read_bytes())
    assert list(again) == list(choices)
    assert [choice["name"] for choice in again.values()] == [REFERENCE]


def test_a_fallback_to_the_reference_is_reported_with_reasons_and_speed(
    chosen, monkeypatch, cache_dir, tokenizer_dir, tmp_path
):
    any_size(monkeypatch)
    choice = chosen("hello " * 4000, **stripping(tokenizer_dir, tmp_path))
    assert choice.name == REFERENCE
    assert choice.fallback.startswith("the reference encodes, at about ")
    assert "MB/s, since no fast engine gives its ids here: gigatoken: " in choice.fallback
    assert "\n" not in choice.fallback
