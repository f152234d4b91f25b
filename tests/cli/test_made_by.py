"""Commands for runs at the output of a mix, an import or an export: what it is, and what works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill as library
from tests.frozen.make import frozen_sets, prepare
from tokmill.errors import TokmillError
from tokmill.place import open_place

TOKENIZER = ("-t", "inputs/tokenizer")
TEXTS, CHATS = "inputs/documents.jsonl", "inputs/chats.jsonl"


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with the outputs of a run, a mix, an import and an export."""
    oldest = frozen_sets()[0]  # its mix has no plan yet
    prepare(tmp_path, oldest)
    monkeypatch.chdir(tmp_path)
    for name, kind in (("run", "documents"), ("old-mix", "mix"), ("import", "imported")):
        shutil.copytree(oldest.datasets / kind, name)
    library.open("run").export("nanogpt", "export")
    library.mix({"datasets/documents": "2x"}, output="mix", shuffle=7, workers=1, progress=False)
    request = {"boot": "", "fingerprint": "0"}
    for name in ("stopped", "looking"):
        Path(name, ".mix").mkdir(parents=True)
        Path(name, ".mix/request.json").write_text(json.dumps(request))
    shutil.copytree("mix", "stopped", dirs_exist_ok=True)
    Path("stopped/manifest.json").unlink()
    shutil.copytree("import", "cut-import")
    Path("cut-import/manifest.json").unlink()
    shutil.copytree("run", "no-plan")
    Path("no-plan/plan.json").unlink()


FOR_TASKS = "run-part and finish are for runs that are shared out to tasks"
CONTINUES = "the same tokmill mix command continues it"
HELD = "name another output, or --overwrite replaces it"
WITHOUT_PLAN = {
    "old-mix": "old-mix: holds a mix that is finished, but no plan.json: tokmill verify old-mix "
    "checks it",
    "no-plan": "no-plan: holds a run that is finished, but no plan.json: tokmill verify no-plan "
    "checks it",
    "looking": f"looking: holds a mix that was stopped before it had parts: {CONTINUES}",
    "export": "export: holds an export, which has no parts: name the output of a run",
}
WITHOUT_TASKS = {
    "mix": f"mix: holds a mix that is finished: {FOR_TASKS}; tokmill verify mix checks it",
    "stopped": f"stopped: holds a mix that is not finished: {CONTINUES}; {FOR_TASKS}",
}
OTHER = "choose another --output, or run with --overwrite to start again"
BEGUN = {
    **{
        name: f"{name}: holds a mix of other inputs or settings: it was made by tokmill mix, this "
        f"is tokmill COMMAND: {OTHER}"
        for name in ("mix", "stopped")
    },
    "old-mix": f"old-mix: holds a mix: {HELD}",
    "looking": f"looking: holds a mix that is not finished: {HELD}; {CONTINUES}",
    "export": f"export: holds an export: {HELD}",
    "no-plan": f"no-plan: holds a dataset, but no plan of a run: {HELD}",
}
REMOVED = "name another output, or --overwrite removes it"
OTHER_MIX = (
    "holds a mix of other inputs or settings: the datasets were datasets/documents=2x, are "
    f"datasets/wide; shuffle was 7, is not set: {REMOVED}"
)
MIXED = {
    "run": f"run: holds a run: {REMOVED}",
    "import": f"import: holds an import: {REMOVED}",
    "mix": f"mix: {OTHER_MIX}",
    "stopped": f"stopped: {OTHER_MIX}",
    "no-plan": f"no-plan: holds a run: {REMOVED}",
}


def last_line(outcome: Any) -> str:
    return outcome.err.splitlines()[-1].removeprefix("error: ")


@pytest.mark.parametrize("output", [*WITHOUT_PLAN, *WITHOUT_TASKS])
@pytest.mark.parametrize("command", ["finish", "run-part"])
def test_a_command_for_tasks_says_what_stands_there(tokmill: Callable, command, output) -> None:
    share = ("--index", "0", "--of", "2") if command == "run-part" else ()
    outcome = tokmill(command, output, *share)
    told = {**WITHOUT_PLAN, **WITHOUT_TASKS}[output]
    assert (outcome.code, last_line(outcome)) == (2, told)
    if "tokmill verify" in told:
        assert tokmill("verify", output).code == (1 if output == "no-plan" else 0)


@pytest.mark.parametrize("output", WITHOUT_PLAN)
def test_a_status_needs_a_plan(tokmill: Callable, output: str) -> None:
    outcome = tokmill("status", output)
    assert (outcome.code, last_line(outcome)) == (2, WITHOUT_PLAN[output])


@pytest.mark.parametrize(
    ("output", "dataset"), [("mix", "finished"), ("stopped", f"not finished: {CONTINUES}")]
)
def test_a_mix_has_a_status(tokmill: Callable, output: str, dataset: str) -> None:
    outcome = tokmill("status", output)
    rows = dict(line.split(None, 1) for line in outcome.out.splitlines())
    assert (outcome.code, rows["done"], rows["dataset"]) == (0, "2 of 2", dataset)


@pytest.mark.parametrize("command", ["status", "finish"])
def test_an_import_is_a_run(tokmill: Callable, command: str) -> None:
    assert tokmill(command, "import").code == 0
    assert tokmill(command, "cut-import").code == 0


@pytest.mark.parametrize("output", ["import", "cut-import"])
def test_a_run_does_not_continue_an_import(tokmill: Callable, output: str) -> None:
    outcome = tokmill(*RUNS["sft"], *TOKENIZER, "-o", output)
    assert outcome.code == 6
    assert "it was made by tokmill import, this is tokmill sft" in last_line(outcome)


def test_a_mix_that_is_being_made_is_to_be_waited_for(tokmill: Callable) -> None:
    with open_place("stopped").held():
        outcome = tokmill("finish", "stopped")
        told = f"stopped: a mix is writing here: wait for its end; {FOR_TASKS}"
        assert (outcome.code, last_line(outcome)) == (2, told)
        assert "a mix is writing it" in tokmill("status", "stopped").out
    with open_place("looking").held():
        outcome = tokmill("status", "looking")
        told = "looking: a mix is looking at its inputs, and has no parts yet: wait for its plan"
        assert (outcome.code, last_line(outcome)) == (2, told)


RUNS = {
    "pretrain": ("pretrain", TEXTS),
    "sft": ("sft", CHATS),
    "plan": ("plan", TEXTS, "--write"),
}


@pytest.mark.parametrize("output", BEGUN)
@pytest.mark.parametrize("command", RUNS)
def test_a_run_says_what_stands_there_and_replaces_it_if_it_is_told_to(
    tokmill: Callable, command: str, output: str
) -> None:
    before = files(output)
    arguments = (*RUNS[command], *TOKENIZER, "-o", output)
    outcome = tokmill(*arguments)
    recipe = "sft" if command == "sft" else "pretrain"
    assert (outcome.code, last_line(outcome)) == (6, BEGUN[output].replace("COMMAND", recipe))
    assert files(output) == before
    assert tokmill(*arguments, "--overwrite").code == 0
    assert tokmill("status", output).code == 0


def files(output: str) -> dict[Path, bytes]:
    """Return the files of an output, but its lock."""
    paths = [path for path in Path(output).rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: path.read_bytes() for path in paths}


@pytest.mark.parametrize("output", MIXED)
def test_a_mix_says_what_stands_there_and_replaces_it(tokmill: Callable, output: str) -> None:
    outcome = tokmill("mix", "datasets/wide", "-o", output)
    assert (outcome.code, last_line(outcome)) == (6, MIXED[output])
    assert tokmill("mix", "datasets/wide", "-o", output, "--overwrite").code == 0


REPLACED = ("run", "mix", "old-mix", "import", "export", "stopped", "looking")
WRITERS = {
    "import": ("import", "inputs/nanogpt", "--from", "nanogpt", *TOKENIZER),
    "export": ("export", "datasets/wide", "--to", "megatron"),
    "mix": ("mix", "datasets/wide"),
}


@pytest.mark.parametrize("output", REPLACED)
@pytest.mark.parametrize("command", WRITERS)
def test_overwrite_replaces_whatever_tokmill_has_made(
    tokmill: Callable, command: str, output: str
) -> None:
    if (command, output) != ("mix", "looking"):  # nothing is lost with what another mix looked at
        assert tokmill(*WRITERS[command], "-o", output).code == 6
    assert tokmill(*WRITERS[command], "-o", output, "--overwrite").code == 0
    Path(output, "notes.txt").write_text("mine")
    assert tokmill(*WRITERS[command], "-o", output, "--overwrite").code == 6


READ = {
    "stopped": "stopped: its mix is not finished (no manifest.json): make the same call again to "
    "continue it",
    "cut-import": "cut-import: its import is not finished (no manifest.json): make the same call "
    "again to continue it",
    "export": "export: an export, not a dataset: name the dataset that was exported",
}


@pytest.mark.parametrize("output", READ)
def test_a_reader_says_what_stands_there(output: str) -> None:
    with pytest.raises(TokmillError) as info:
        library.open(output)
    assert str(info.value) == READ[output]
