"""A run encodes with the engine that it expects, and writes once that is compared."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import tokmill.run.choose_engine as choosing
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import REFERENCE, is_installed
from tokmill.errors import StorageError
from tokmill.executors.run import run
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.run.choose_engine import ComparedEngine, OtherEngineError, compare_remembered
from tokmill.run.prepare import prepare, reference_of
from tokmill.run.resume import NOTHING_KEPT
from tokmill.settings.sft import SftSettings

CHATS = Path(__file__).parents[2] / "data_samples" / "sft"
ROWS = [{"text": f"hel hello {i} the cat " * (i % 4 + 1)} for i in range(60)]
GIGATOKEN = EngineChoice("gigatoken", "1", "fastest on a sample", mb_per_s={"gigatoken": 3.0})
FASTOKENS = EngineChoice("fastokens", "1", "first exact")

needs_gigatoken = pytest.mark.skipif(not is_installed("gigatoken"), reason="no wheel here")
needs_fastokens = pytest.mark.skipif(not is_installed("fastokens"), reason="no wheel here")


@pytest.fixture
def source(tmp_path, write_rows) -> Path:
    return write_rows(tmp_path / "in.jsonl", ROWS)


@pytest.fixture
def make_config(tmp_path, configure, source):
    """Make the settings of a run of several parts and blocks."""

    def make(name="out", **settings):
        settings = {"engine": "auto", "part_bytes": 900, "batch_bytes": 300} | settings
        return configure(tmp_path / name, source, **settings)

    return make


@pytest.fixture
def expect(monkeypatch):
    """Let runs expect an engine; another function can take the place of the comparison."""

    def patch(expected, compare=choosing.compared_choice) -> None:
        monkeypatch.setattr(choosing, "expected_choice", lambda *_, **__: expected)
        monkeypatch.setattr(choosing, "compared_choice", compare)

    return patch


@pytest.fixture
def whole_word(tokenizer_dir, tmp_path) -> dict[str, str]:
    """Settings of a tokenizer whose ids gigatoken gets wrong: it takes "hel" inside words too."""
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    return {"path": str(tmp_path), "eos_token": "<eos>"}


def visible(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if not path.name.startswith(".")]


def dataset(directory: Path) -> dict[str, bytes]:
    """The files that hold tokens, and the records of the parts."""
    patterns = ("*.bin", "*.idx", "*.mask", "parts/*.json")
    return {path.name: path.read_bytes() for one in patterns for path in directory.glob(one)}


@needs_gigatoken
@pytest.mark.parametrize("workers", [1, 2])
def test_a_wrong_engine_is_replaced_before_anything_is_written(
    make_config, whole_word, expect, loads, listener, tmp_path, workers
):
    run(make_config("reference", engine=REFERENCE, **whole_word), listener)
    del listener.plans[:], loads[:]
    expect(GIGATOKEN)
    manifest = run(make_config(workers=workers, **whole_word), listener)
    assert ("gigatoken" in loads) == (workers == 1)  # workers wait for the choice
    (plan,) = listener.plans
    planned = json.loads((tmp_path / "out" / "plan.json").read_bytes())["engine"]
    assert plan.spec.engine.name == planned["name"] == manifest["engine"]["name"] == REFERENCE
    assert dataset(tmp_path / "out") == dataset(tmp_path / "reference")
    assert manifest["totals"]["records"] == len(ROWS)
    assert sum(progress.records for progress in listener.heard) == 2 * len(ROWS)


@needs_fastokens
@pytest.mark.parametrize("is_right", [True, False])
def test_blocks_are_encoded_and_no_file_is_there_until_the_comparison_ends(
    make_config, expect, loads, listener, monkeypatch, tmp_path, is_right
):
    encoded, seen = threading.Event(), []
    process = PretrainRecipe.process

    def observed(recipe, blocks):
        found = process(recipe, blocks)
        encoded.set()
        return found

    def compare(expected, request, corpus, *, has_continuations):
        assert encoded.wait(60)
        seen.append(visible(tmp_path / "out"))
        return replace(expected, n_checked=3) if is_right else None

    monkeypatch.setattr(PretrainRecipe, "process", observed)
    expect(FASTOKENS, compare)
    manifest = run(make_config(), listener)
    assert seen == [[]]
    name = "fastokens" if is_right else REFERENCE
    assert (manifest["engine"]["name"], manifest["engine"]["n_checked"]) == (name, 3 * is_right)
    assert loads.count("fastokens") == 1
    assert [plan.spec.engine.name for plan in listener.plans] == [name]
    stages = manifest["run"]["stage_s"]
    assert stages["prepare"] > 0
    assert ("compare" in stages) == is_right
    run(make_config("reference", engine=REFERENCE), listener)
    assert dataset(tmp_path / "out") == dataset(tmp_path / "reference")


@needs_fastokens
def test_an_engine_asked_for_is_compared_and_loaded_once(make_config, expect, loads, silent):
    run(make_config("first", engine="fastokens"), silent)  # an earlier run compares all characters
    del loads[:]
    manifest = run(make_config(engine="fastokens"), silent)
    assert sorted(loads) == ["fastokens", REFERENCE]
    assert manifest["engine"]["n_checked"] > 100
    assert manifest["engine"]["reason"] == "asked for"
    assert manifest["engine"]["scan_kept"]


@needs_fastokens
def test_chats_are_written_once_the_engine_is_known(
    configure, expect, loads, silent, tmp_path, tokenizer_dir
):
    settings = {"sft": SftSettings(template="alpaca"), "max_tokens": 400}
    for name, engine in (("reference", REFERENCE), ("out", "auto")):
        expect(FASTOKENS, lambda *_, **__: None)
        del loads[:]
        config = configure(tmp_path / name, CHATS / "alpaca.csv", engine=engine, **settings)
        manifest = run(config, silent)
        assert manifest["engine"]["name"] == REFERENCE
    assert "fastokens" in loads
    assert dataset(tmp_path / "out") == dataset(tmp_path / "reference")
    assert any(name.endswith(".mask") for name in dataset(tmp_path / "out"))


@needs_fastokens
@pytest.mark.parametrize("error", [StorageError, RuntimeError])
def test_an_error_of_the_comparison_ends_the_run_and_its_threads(
    make_config, expect, silent, tmp_path, error
):
    def compare(*_, **__):
        raise error("unreadable")

    expect(FASTOKENS, compare)
    with pytest.raises(error, match="unreadable"):
        run(make_config(), silent)
    assert visible(tmp_path / "out") == []
    assert not [one.name for one in threading.enumerate() if one.name.startswith("tokmill")]


@needs_fastokens
def test_an_interrupt_of_the_comparison_keeps_nothing_and_the_run_begins_again(
    make_config, expect, silent, monkeypatch, tmp_path
):
    expect(FASTOKENS, lambda expected, *_, **__: expected)
    with monkeypatch.context() as patched:

        def interrupted(self):
            raise KeyboardInterrupt

        patched.setattr(ComparedEngine, "result", interrupted)
        with pytest.raises(KeyboardInterrupt, match=NOTHING_KEPT):
            run(make_config(), silent)
    assert visible(tmp_path / "out") == []
    assert run(make_config(), silent)["totals"]["records"] == len(ROWS)


@needs_fastokens
@pytest.mark.parametrize("is_right", [True, False])
def test_an_error_of_an_engine_counts_only_if_the_engine_is_right(
    make_config, expect, silent, monkeypatch, tmp_path, is_right
):
    process = PretrainRecipe.process

    def failing(recipe, blocks):
        if recipe.spot is not None:  # not for the reference
            raise RuntimeError("broken")
        return process(recipe, blocks)

    monkeypatch.setattr(PretrainRecipe, "process", failing)
    expect(FASTOKENS, lambda expected, *_, **__: expected if is_right else None)
    if is_right:
        with pytest.raises(RuntimeError, match="broken"):
            run(make_config(), silent)
        assert visible(tmp_path / "out") == []
    else:
        assert run(make_config(), silent)["engine"]["name"] == REFERENCE


def test_an_old_dataset_stays_until_the_new_engine_is_known(make_config, expect, silent, tmp_path):
    def compare(*_, **__):
        pytest.fail("its run would have begun")

    run(make_config(engine=REFERENCE), silent)
    before = dataset(tmp_path / "out")
    expect(FASTOKENS, compare)
    manifest = run(make_config(), silent, overwrite=True)
    assert manifest["engine"]["name"] == REFERENCE
    assert dataset(tmp_path / "out") == before


@needs_fastokens
def test_a_run_that_was_killed_after_its_plan_begins_again_while_it_is_compared(
    make_config, expect, silent, tmp_path
):
    run(make_config(engine=REFERENCE), silent)
    old = (tmp_path / "out" / "plan.json").read_bytes()
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file() and path.name != "plan.json":
            path.unlink()
    seen = []

    def compare(expected, *_, **__):
        seen.append((tmp_path / "out" / "plan.json").read_bytes())
        return expected

    expect(FASTOKENS, compare)
    assert run(make_config(), silent)["engine"]["name"] == "fastokens"
    assert seen == [old]


def test_standard_input_waits_for_the_comparison(make_config, expect):
    expect(FASTOKENS)
    prepared = prepare(make_config())
    with compare_remembered(prepared, reference_of(prepared), 1) as compared:
        assert compared.expected == FASTOKENS
    (file,) = prepared.files
    found = prepared.found._replace(files=[replace(file, path="-")])
    stream = replace(prepared, found=found)
    with pytest.raises(OtherEngineError):
        compare_remembered(stream, reference_of(stream), 1)
