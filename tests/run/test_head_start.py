"""What a run begins to load before its other modules are imported."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

import tokmill.engines.trial.expected as expecting
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import is_installed
from tokmill.engines.store import SharedEngine
from tokmill.errors import UsageError
from tokmill.executors.run import run
from tokmill.run import head_start as module
from tokmill.run.head_start import begun_for, head_start
from tokmill.settings.sft import SftSettings

FASTOKENS = EngineChoice("fastokens", "1", "first exact")
GIGATOKEN = EngineChoice("gigatoken", "1", "first exact")

needs_fastokens = pytest.mark.skipif(not is_installed("fastokens"), reason="no wheel here")
needs_gigatoken = pytest.mark.skipif(not is_installed("gigatoken"), reason="no wheel here")


@pytest.fixture
def source(tmp_path, write_rows):
    return write_rows(tmp_path / "in.jsonl", [{"text": f"hello {i} 猫"} for i in range(50)])


@pytest.fixture
def config(tmp_path, configure, source):
    return configure(tmp_path / "out", source, engine="auto")


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, int]]:
    """The text and the size of each corpus for which an engine was expected: fastokens."""
    found: list[tuple[str, int]] = []

    def expect(request, corpus, *, has_continuations):
        found.append((corpus.sample(1, False).texts[0], corpus.n_bytes))
        return FASTOKENS

    monkeypatch.setattr(expecting, "expected_choice", expect)
    return found


@pytest.fixture
def loaded(monkeypatch) -> list[SharedEngine]:
    """Engines that were asked for in place of being loaded, each once."""
    found: list[SharedEngine] = []
    monkeypatch.setattr(SharedEngine, "__call__", lambda one: found.append(one))
    return found


def wait() -> None:
    """Wait for the thread that loads the engine."""
    for thread in threading.enumerate():
        if module._load_engine.__name__ in thread.name:
            thread.join()


@needs_fastokens
def test_the_tokenizer_is_there_and_the_expected_engine_loads(config, source, asked, loaded):
    with head_start(config):
        begun = begun_for(config)
        wait()
        assert begun_for(replace(config)) is None  # other settings
    assert begun_for(config) is None
    assert begun.tokenizer.eos.content == "<eos>"
    assert asked == [(source.read_text(), source.stat().st_size)]
    key = {"control_in_text": "text", "n_threads": config.run.threads}
    assert loaded == [begun.engines.share("fastokens", begun.tokenizer, **key)]


@needs_gigatoken
def test_an_engine_that_would_stop_the_imports_is_not_loaded(config, asked, loaded, monkeypatch):
    monkeypatch.setattr(expecting, "expected_choice", lambda *_, **__: GIGATOKEN)
    with head_start(config):
        wait()
    assert loaded == []


@pytest.mark.parametrize("name", ["-", "hf:some/dataset", ".", "in.jsonl.gz", "none.jsonl"])
def test_other_inputs_than_plain_text_get_no_engine(config, tmp_path, asked, loaded, name):
    (tmp_path / "in.jsonl.gz").write_bytes(b"")
    path = name if name[0] in "-h" else str(tmp_path / name)
    settings = replace(config, input=replace(config.input, paths=(path,)))
    with head_start(settings):
        wait()
    assert asked == loaded == []


def test_chats_get_the_tokenizer_and_no_engine(config, asked, loaded):
    chats = replace(config, sft=SftSettings())
    with head_start(chats):
        wait()
        assert begun_for(chats).tokenizer.eos.content == "<eos>"
    assert asked == loaded == []


def test_settings_without_a_tokenizer_get_nothing(config):
    nameless = replace(config, tokenizer=replace(config.tokenizer, path=""))
    with head_start(nameless):
        assert begun_for(nameless) is None


def test_a_wrong_setting_is_reported_by_the_run(config, tmp_path, silent):
    wrong = replace(config, tokenizer=replace(config.tokenizer, path=str(tmp_path / "none")))
    with head_start(wrong), pytest.raises(UsageError, match="no such tokenizer") as raised:
        run(wrong, silent)
    assert raised.value.__context__ is None  # a traceback shows it once
    without_input = replace(wrong, input=replace(config.input, paths=()))
    with head_start(without_input), pytest.raises(UsageError, match="no input"):
        run(without_input, silent)


def test_an_error_of_the_thread_is_left_to_the_run(config, monkeypatch, silent, capfd):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(expecting, "expected_choice", fail)
    with head_start(config):
        wait()
        assert run(config, silent)["totals"]["documents"] == 50
    assert capfd.readouterr().err == ""


@needs_fastokens
def test_the_run_takes_over_what_was_begun(config, tmp_path, silent, loads, monkeypatch):
    run(replace(config, run=replace(config.run, engine="fastokens")), silent)  # compared once
    config = replace(
        config,
        run=replace(config.run, engine="fastokens"),
        output=replace(config.output, dir=str(tmp_path / "again")),
    )
    del loads[:]
    with head_start(config):
        manifest = run(config, silent)
    assert manifest["engine"]["name"] == "fastokens"
    assert loads.count("fastokens") == 1
    plans = [
        json.loads((tmp_path / name / "plan.json").read_bytes())["engine"]["name"]
        for name in ("out", "again")
    ]
    assert plans == ["fastokens", "fastokens"]
