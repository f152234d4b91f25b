"""What `plan` says at most, a run does not exceed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parents[2] / "data_samples"


def tokmill(*arguments: object) -> dict[str, Any]:
    """Run a command in a process of its own, whose memory is counted; return what it prints."""
    command = [sys.executable, "-m", "tokmill", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def repeated(source: Path, target: Path, n_bytes: int) -> Path:
    """Write lines of a file in a random order, until there are so many bytes."""
    rng = random.Random(1)
    lines = [line for line in source.read_bytes().splitlines(keepends=True) if len(line) < 9000]
    with target.open("wb") as file:
        while file.tell() < n_bytes:
            file.write(rng.choice(lines))
    return target


@pytest.mark.parametrize(
    ("command", "source", "options"),
    [
        ("pretrain", "records.jsonl", ("--engine", "fastokens", "--val-fraction", "0.1")),
        ("sft", "sft/chats.jsonl", ("--engine", "reference", "--packing", "2048")),
    ],
)
def test_a_run_stays_below_the_upper_values_of_its_forecast(
    tmp_path: Path, command: str, source: str, options: tuple[str, ...]
) -> None:
    corpus = repeated(SAMPLES / source, tmp_path / "in.jsonl", 200_000)
    given = (corpus, "-t", SAMPLES / "tokenizer", "--threads", "1", "--max-tokens", "2048")
    given = (*given, *options, "-o", tmp_path / "out", "--json")
    recipe = ("--recipe", "sft") if command == "sft" else ()
    forecast = tokmill("plan", *given, *recipe)
    manifest = tokmill(command, *given)
    on_disk = sum(file["bytes"] for file in manifest["files"])
    totals = manifest["totals"]
    assert on_disk <= forecast["disk"]["high_bytes"]
    assert totals["tokens"] <= forecast["tokens_high"]
    assert totals["documents"] <= forecast["documents_high"]
    assert manifest["run"]["peak_memory_bytes"] <= forecast["memory_bytes"]
