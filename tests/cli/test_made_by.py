"""Commands for runs at the output of a mix, an import or an export: what it is, and what works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill as library
from tests.frozen.make import DATASETS, prepare
from tokmill.errors import TokmillError
from tokmill.place import open_place

TOKENIZER = ("-t", "inputs/tokenizer")
TEXTS, CHATS = "inputs/documents.jsonl", "inputs/chats.jsonl"


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with the outputs of a run, a mix, an import and an export."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, kind in (("run", "documents"), ("mix", "mix"), ("import", "imported")):
        shutil.copytree(DATASETS / kind, name)
    library.open("run").export("nanogpt", "export")
    shutil.copytree("mix", "stopped")
    Path("stopped/manifest.json").unlink()
    Path("stopped/.mix").mkdir()
    request = {"boot": "", "fingerprint": "0", "parts": 9}
    Path("stopped/.mix/request.json").write_text(json.dumps(request))
    shutil.copytree("import", "cut-import")
    Path("cut-import/manifest.json").unlink()
    shutil.copytree("run", "no-plan")
    Path("no-plan/plan.json").unlink()


FOR_RUNS = "status, run-part and finish are for runs"
HELD = "name another output, or --overwrite replaces it"
VERIFY = {name: f"; tokmill verify {name} checks it" for name in ("mix", "no-plan")}
ASKED = {
    "mix": f"mix: holds a mix that is finished: {FOR_RUNS}{VERIFY['mix']}",
    "export": f"export: holds an export: {FOR_RUNS}: name the output of one",
    "stopped": "stopped: holds a mix that is not finished: the same tokmill mix command continues "
    f"it; {FOR_RUNS}",
    "no-plan": "no-plan: holds a run that is finished, but no plan.json: "
    f"{FOR_RUNS}{VERIFY['no-plan']}",
}
BEGUN = {
    "mix": f"mix: holds a mix: {HELD}",
    "export": f"export: holds an export: {HELD}",
    "stopped": f"stopped: holds a mix that is not finished: {HELD}; the same tokmill mix command "
    "continues it",
    "no-plan": f"no-plan: holds a dataset, but no plan of a run: {HELD}",
}
MIXED = {
    "run": "run: holds a run: name another output, or --overwrite removes it",
    "import": "import: holds an import: name another output, or --overwrite removes it",
    "mix": "mix: holds a mix of other inputs or settings: name another output, or --overwrite "
    "removes it",
}


def last_line(outcome: Any) -> str:
    return outcome.err.splitlines()[-1].removeprefix("error: ")


@pytest.mark.parametrize("output", ASKED)
@pytest.mark.parametrize("command", ["status", "finish", "run-part"])
def test_a_command_for_runs_says_what_stands_there(tokmill: Callable, command, output) -> None:
    share = ("--index", "0", "--of", "2") if command == "run-part" else ()
    outcome = tokmill(command, output, *share)
    assert (outcome.code, last_line(outcome)) == (2, ASKED[output])
    if output == "mix":
        assert tokmill("verify", output).code == 0


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
        for command in ("status", "finish"):
            outcome = tokmill(command, "stopped")
            told = f"stopped: a mix is writing here: wait for its end; {FOR_RUNS}"
            assert (outcome.code, last_line(outcome)) == (2, told)


def test_a_run_does_not_begin_where_a_mix_has_just_begun(tokmill: Callable) -> None:
    for path in Path("stopped").glob("[!.]*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    outcome = tokmill(*RUNS["pretrain"], *TOKENIZER, "-o", "stopped")
    assert (outcome.code, last_line(outcome)) == (6, BEGUN["stopped"])


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
    assert (outcome.code, last_line(outcome)) == (6, BEGUN[output])
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


REPLACED = ("run", "mix", "import", "export", "stopped")
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
