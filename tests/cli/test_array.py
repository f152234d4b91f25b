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
    """Plan an array of the sample records; return the path of its plan and what was printed."""
    path = tmp_path / "out.plan"
    out = ("-o", tmp_path / "out", "--write", path)
    outcome = tokmill("plan", RECORDS, "-t", TOKENIZER, *out, *SMALL, *PARTS)
    assert outcome.code == 0, outcome.err
    return path, outcome


def rows(text: str) -> dict[str, str]:
    return dict(line.split(None, 1) for line in text.splitlines() if " " in line)


def test_the_plan_says_what_to_do_next(planned, tmp_path):
    path, outcome = planned
    found = rows(outcome.out)
    n_parts = len(json.loads((tmp_path / "out" / "plan.json").read_bytes())["parts"])
    assert n_parts > 3
    assert found["plan"] == f"{path}: {n_parts} parts, so up to {n_parts} tasks"
    assert found["tasks"].startswith(f"tokmill run-part {path} --index I --of N, ")
    assert found["then"] == f"tokmill finish {path}"


def test_the_plan_of_chats_says_who_packs_and_with_what_memory(tmp_path, tokmill):
    path = tmp_path / "out.plan"
    chats = SAMPLES / "sft" / "chats.jsonl"
    options = ("--template", "chatml", "--max-tokens", "2000", "--packing", "2000", *SMALL)
    where = ("-o", tmp_path / "out", "--write", path)
    outcome = tokmill("plan", chats, "-t", TOKENIZER, *options, *where)
    assert outcome.code == 0, outcome.err
    assert re.fullmatch(
        rf"tokmill finish {path}; it packs all samples, with [\d.]+ k?B of memory",
        rows(outcome.out)["then"],
    )


def test_the_steps_print_what_was_done_and_what_is_missing(planned, tmp_path, tokmill):
    path, _ = planned
    done = tokmill("run-part", path, "--index", "0", "--of", "2")
    assert (done.code, done.out[:13]) == (0, "task 0 of 2: ")
    refused = tokmill("finish", path)
    assert refused.code == 6
    assert "are not done: 1, 3" in refused.error
    status = rows(tokmill("status", path).out)
    assert status["missing"].split(": ")[1].startswith("1, 3")
    assert status["dataset"] == "not finished"
    assert tokmill("run-part", path, "--index", "1", "--of", "2", "-q").out == ""
    assert rows(tokmill("status", path).out)["dataset"] == f"not finished: tokmill finish {path}"
    found = json.loads(tokmill("status", path, "--json").out)
    assert (found["missing"], found["is_finished"]) == ([], False)
    assert found["directory"] == str(tmp_path / "out")
    finished = tokmill("finish", path)
    assert finished.code == 0
    assert str(tmp_path / "out") in rows(finished.out)["output"]
    assert rows(tokmill("status", path).out)["dataset"] == "finished"
    assert tokmill("verify", tmp_path / "out").code == 0
    late = tokmill("run-part", path, "--index", "999", "--of", "1000")
    assert late.out == "task 999 of 1000: no part is left for it\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", RECORDS, "-t", TOKENIZER, "--overwrite"), "give --write too"),
        (("plan", RECORDS, "-t", TOKENIZER, "--write", "x.plan"), "no output: give --output"),
        (("status", "nowhere.plan"), "nowhere.plan: no such file"),
        (("finish", RECORDS), "not the plan of an array"),
    ],
)
def test_what_cannot_work_is_refused(tokmill, arguments, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    outcome = tokmill(*arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_pattern_after_write_costs_no_file_of_the_corpus(tmp_path, tokmill):
    corpus = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in corpus:
        path.write_bytes(RECORDS.read_bytes())
    out = tmp_path / "out"
    outcome = tokmill("plan", "-t", TOKENIZER, "--output", out, *SMALL, "--write", *corpus)
    assert outcome.code == 2
    assert outcome.error.startswith(f"{corpus[0]}: a file, not the plan of an array, so it is not")
    assert corpus[0].read_bytes() == RECORDS.read_bytes()
    assert not out.exists()
    inside = tokmill("plan", *corpus, "-t", TOKENIZER, "-o", out, *SMALL, "--write", out / "a.json")
    assert (inside.code, inside.error.split(": ")[1][:23]) == (2, "in the output directory")
    assert not out.exists()


def test_the_status_of_an_array_in_a_store_has_its_url(tmp_path, tokmill, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url, path = f"memory://bucket/{tmp_path.name}/out", tmp_path / "out.plan"
    outcome = tokmill("plan", RECORDS, "-t", TOKENIZER, "-o", url, "--write", path, *SMALL, *PARTS)
    assert outcome.code == 0, outcome.err
    assert json.loads(tokmill("status", path, "--json").out)["directory"] == url


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


def test_the_example_for_kubernetes_makes_the_dataset(planned, shell, tmp_path, tokmill):
    path, _ = planned
    text = (ROOT / "configs" / "kubernetes_array.yaml").read_text(encoding="utf-8")
    (command,) = re.findall(r"- (exec tokmill run-part .*)", text)
    assert re.search(r"completions: 8\n +parallelism: 8", text)
    assert command.endswith("--of 8")
    asked, limit = re.findall(r"(?:requests|limits): ({.*})", text)
    assert asked == limit == '{cpu: "8", memory: 8Gi}'
    command = command.replace("/data/out.plan", str(path)).replace("--of 8", "--of 2")
    for index in range(2):
        shell(command, JOB_COMPLETION_INDEX=index)
    assert tokmill("finish", path).code == 0


def test_a_killed_task_is_started_again(planned, start, tmp_path, tokmill, files_of):
    path, _ = planned
    out = tmp_path / "out"
    task = start("run-part", path, "--index", "0", "--of", "2")
    parts = out / "parts"
    assert task.stop_when(lambda: any(parts.iterdir()), signal.SIGKILL) == -signal.SIGKILL
    assert tokmill("run-part", path, "--index", "1", "--of", "2").code == 0
    status = json.loads(tokmill("status", path, "--json").out)
    assert status["missing"]
    assert not status["running"]
    assert not status["failed"]
    assert tokmill("run-part", path, "--index", "0", "--of", "2").code == 0
    assert tokmill("finish", path).code == 0
    whole = tmp_path / "whole"
    assert tokmill("pretrain", RECORDS, "-t", TOKENIZER, "-o", whole, *SMALL, *PARTS).code == 0
    assert files_of(out) == files_of(whole)
