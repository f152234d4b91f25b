"""`plan --write`, `run-part`, `status` and `finish`: what they print, and the shell examples."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "data_samples"
RECORDS, TOKENIZER = SAMPLES / "records.jsonl", SAMPLES / "tokenizer"
SMALL = ("--engine", "reference", "--max-reject-fraction", "1")
PARTS = ("--part-bytes", "3kB")


@pytest.fixture
def planned(tmp_path, tokmill):
    """Plan an array of the sample records; return its output and what was printed."""
    out = tmp_path / "out"
    outcome = tokmill("plan", RECORDS, "-t", TOKENIZER, "-o", out, "--write", *SMALL, *PARTS)
    assert outcome.code == 0, outcome.err
    return out, outcome


def rows(text: str) -> dict[str, str]:
    return dict(line.split(None, 1) for line in text.splitlines() if " " in line)


def test_the_steps_print_what_to_do_next_what_was_done_and_what_is_missing(planned, tokmill):
    out, outcome = planned
    found = rows(outcome.out)
    n_parts = len(json.loads((out / "plan.json").read_bytes())["parts"])
    assert n_parts > 3
    assert found["plan"] == f"{out}: {n_parts} parts, so up to {n_parts} tasks"
    assert found["tasks"].startswith(f"tokmill run-part {out} --index I --of N, ")
    assert found["then"] == f"tokmill finish {out}"
    done = tokmill("run-part", out, "--index", "0", "--of", "2")
    assert (done.code, done.out[:13]) == (0, "task 0 of 2: ")
    refused = tokmill("finish", out)
    assert refused.code == 6
    assert "are not done: 1, 3" in refused.error
    status = rows(tokmill("status", out).out)
    assert status["missing"].split(": ")[1].startswith("1, 3")
    assert status["dataset"] == "not finished"
    assert tokmill("run-part", out, "--index", "1", "--of", "2", "-q").out == ""
    assert rows(tokmill("status", out).out)["dataset"] == f"not finished: tokmill finish {out}"
    found = json.loads(tokmill("status", out, "--json").out)
    assert (found["missing"], found["is_finished"]) == ([], False)
    assert found["directory"] == str(out)
    finished = tokmill("finish", out)
    assert finished.code == 0
    assert str(out) in rows(finished.out)["output"]
    assert rows(tokmill("status", out).out)["dataset"] == "finished"
    assert tokmill("verify", out).code == 0
    late = tokmill("run-part", out, "--index", "999", "--of", "1000")
    assert late.out == "task 999 of 1000: no part is left for it\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", RECORDS, "-t", TOKENIZER, "--overwrite"), "give --write too"),
        (("plan", RECORDS, "-t", TOKENIZER, "--write"), "no output: give --output"),
        (("status", "nowhere"), "nowhere/plan.json: no such plan: write it first"),
        (("run-part", "nowhere", "--index", "0", "--of", "1"), "nowhere/plan.json: no such plan"),
        (("finish", "nowhere"), "nowhere/plan.json: no such plan"),
    ],
)
def test_what_cannot_work_is_refused(tokmill, arguments, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    outcome = tokmill(*arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert not list(tmp_path.iterdir())


# With real processes


@pytest.fixture
def shell(tmp_path):
    """Run a script where `tokmill` and `sbatch` are commands; sbatch runs its job at once.

    A file `sbatch.log` has the arguments of each call of sbatch on a line.
    """
    commands = tmp_path / "bin"
    commands.mkdir()
    scripts = {
        "tokmill": f'exec "{sys.executable}" -m tokmill "$@"',
        "sbatch": """
echo "$*" >> sbatch.log
while [ $# -gt 0 ]; do
  case $1 in
    --array=*) last=${1##*-} ;;
    --wrap) job=$2; shift ;;
  esac
  shift
done
for SLURM_ARRAY_TASK_ID in $(seq 0 "${last:-0}"); do
  export SLURM_ARRAY_TASK_ID
  bash -c "$job" >&2 || exit 1
done
echo 17
""",
    }
    for name, text in scripts.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)

    def run(script: str, **variables: object) -> str:
        environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment | {name: str(value) for name, value in variables.items()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_example_for_slurm_makes_the_dataset(shell, tmp_path, tokmill, files_of):
    out = tmp_path / "out"
    shell(
        f"bash {ROOT}/configs/slurm_array.sh",
        INPUT=RECORDS,
        TOKENIZER=TOKENIZER,
        OUT=out,
        TASKS=2,
        SETTINGS=" ".join((*SMALL, *PARTS)),
    )
    array, finish = (tmp_path / "sbatch.log").read_text().splitlines()
    assert array.startswith("--parsable --array=0-1 ")
    # Slurm keeps a job whose dependency has failed waiting, unless it is told not to.
    assert finish.startswith("--dependency=afterok:17 --kill-on-invalid-dep=yes ")
    whole = tmp_path / "whole"
    assert tokmill("pretrain", RECORDS, "-t", TOKENIZER, "-o", whole, *SMALL, *PARTS).code == 0
    assert files_of(out) == files_of(whole)


def test_the_example_for_kubernetes_makes_the_dataset(planned, shell, tokmill):
    out, _ = planned
    text = (ROOT / "configs" / "kubernetes_array.yaml").read_text(encoding="utf-8")
    (command,) = re.findall(r"- (exec tokmill run-part .*)", text)
    assert re.search(r"completions: 8\n +parallelism: 8", text)
    assert command.endswith("--of 8")
    asked, limit = re.findall(r"(?:requests|limits): ({.*})", text)
    assert asked == limit == '{cpu: "8", memory: 8Gi}'
    command = command.replace("/data/out", str(out)).replace("--of 8", "--of 2")
    for index in range(2):
        shell(command, JOB_COMPLETION_INDEX=index)
    assert tokmill("finish", out).code == 0


def test_a_killed_task_is_started_again(planned, start, tmp_path, tokmill, files_of):
    out, _ = planned
    task = start("run-part", out, "--index", "0", "--of", "2")
    note = out / "parts" / ".task-0-of-2.json"
    assert task.stop_when(note.exists, signal.SIGKILL) == -signal.SIGKILL
    assert tokmill("run-part", out, "--index", "1", "--of", "2").code == 0
    status = json.loads(tokmill("status", out, "--json").out)
    # Whether the task was killed, nobody can see: its note stays until it is started again.
    assert status["running"]
    assert not status["missing"]
    assert not status["failed"]
    assert tokmill("run-part", out, "--index", "0", "--of", "2").code == 0
    assert not json.loads(tokmill("status", out, "--json").out)["tasks"]
    assert tokmill("finish", out).code == 0
    whole = tmp_path / "whole"
    assert tokmill("pretrain", RECORDS, "-t", TOKENIZER, "-o", whole, *SMALL, *PARTS).code == 0
    assert files_of(out) == files_of(whole)


def test_the_error_of_a_task_says_what_belongs_to_the_plan(tmp_path, tokmill, monkeypatch):
    (tmp_path / "in.jsonl").write_bytes(RECORDS.read_bytes())
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "an output"
    planned = tokmill("plan", "in.jsonl", "-t", TOKENIZER, "-o", out, "--write", *SMALL, *PARTS)
    assert rows(planned.out)["then"] == f"tokmill finish '{out}'"
    work = ("run-part", out, "--index", "0", "--of", "2")
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("{}")
    assert tokmill(*work).error.endswith(
        "with --overwrite when nothing writes to it (an option of the command that wrote the plan)"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tokmill(*work).error.endswith(
        f"; the plan has relative paths, and this task runs in {tmp_path / 'elsewhere'}: start it "
        "where the run was planned"
    )
