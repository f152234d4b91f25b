"""A run that is killed or interrupted anywhere, and started again by the same command."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tokmill.cli.main import cli

ROWS = [{"text": f"hello {i} 猫 " * (i % 13)} for i in range(2000)]
CHATS: list[object] = [
    {"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": "猫" * i}]}
    for i in range(600)
]
CHATS[70:70] = [b"{bad", {"messages": []}, {"messages": [{"role": "bot", "content": "?"}]}]
N_RECORDS = {"parts": 2002, "chats": 603}
ROWS[50:50] = [b"{bad", {"text": 7}]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, write_rows, tokenizer_dir) -> dict[str, list[object]]:
    """Commands without their output: of many parts, of chats."""
    directory = tmp_path_factory.mktemp("input")
    source = write_rows(directory / "in.jsonl", ROWS)
    chats = write_rows(directory / "chats.jsonl", CHATS)
    (directory / "run.toml").write_text("[run]\nblock_bytes = 2000\n")
    common: list[object] = [
        "--tokenizer", tokenizer_dir, "--engine", "reference", "--val-fraction", 0.1,
        "--min-tokens", 3, "--max-reject-fraction", 0.5, "--quiet",
        "--config", directory / "run.toml",
    ]  # fmt: skip
    return {
        "parts": ["pretrain", source, "--part-bytes", 6000, *common],
        "chats": [
            "sft",
            chats,
            "--part-bytes",
            9000,
            "--template",
            "plain",
            "--max-tokens",
            32,
            "--too-long",
            "window",
            "--window-overlap",
            4,
            "--packing",
            64,
            *common,
        ],
    }


def finish(*arguments: object) -> None:
    """Run a command to its end, in this process."""
    cli([str(one) for one in arguments], standalone_mode=False)


@pytest.fixture(scope="module")
def unbroken(arguments, files_of, tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """The files that each of the commands makes when nothing stops it."""
    found = {}
    for name, command in arguments.items():
        out = tmp_path_factory.mktemp(name)
        finish(*command, "-o", out)
        found[name] = files_of(out)
    assert sum(name.startswith("parts/") for name in found["parts"]) > 30
    assert sum(name.endswith(".mask") for name in found["chats"]) > 10
    assert "packs-train-rows.bin" in found["chats"]
    return found


def committed(directory: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of every file that a record in `parts/` names."""
    names = []
    for path in directory.glob("parts/*.json"):
        record = json.loads(path.read_bytes())
        names += [file["name"] for shard in record["shards"] for file in shard["files"]]
        names += [] if record["rejects"] is None else [record["rejects"]["name"]]
    stats = {name: (directory / name).stat() for name in names}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def temporaries(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob(".*.tmp")]


@pytest.mark.parametrize(
    ("name", "workers", "moments"),
    [
        ("parts", 2, [0, 10]),
        ("chats", 1, [3]),
    ],
)
def test_a_run_that_is_killed_continues_to_the_same_bytes(
    arguments, unbroken, start, files_of, tmp_path, name, workers, moments
):
    out = tmp_path / "out"
    full = [*arguments[name], "-o", out, "--workers", workers]
    kept: dict[str, tuple[int, int]] = {}
    for n_records in moments:
        stopped = start(*full).stop_when(
            lambda n=n_records: (
                (out / "parts").exists() and len(list(out.glob("parts/*.json"))) >= n
            ),
            signal.SIGKILL,
        )
        assert stopped == -signal.SIGKILL
        assert not (out / "manifest.json").exists()
        kept |= committed(out)
        assert len(kept) >= n_records
    finish(*full)
    assert files_of(out) == unbroken[name]
    assert committed(out) | kept == committed(out)
    assert temporaries(out) == []
    assert json.loads((out / "manifest.json").read_bytes())["totals"]["records"] == N_RECORDS[name]


@pytest.mark.parametrize(("workers", "stop"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_an_interrupted_run_has_a_message_leaves_no_temporaries_and_continues(
    arguments, unbroken, start, files_of, tmp_path, workers, stop
):
    out = tmp_path / "out"
    full = [*arguments["parts"], "-o", out, "--workers", workers]
    command = start(*full)
    status = command.stop_when(lambda: len(list(out.glob("parts/*.json"))) >= 5, stop)
    assert status == 130
    said = re.fullmatch(
        r"error: interrupted; ([0-9]+) of [0-9]+ parts are kept: the same command continues",
        command.errors().strip(),
    )
    assert said is not None, command.errors()
    assert int(said[1]) >= 5
    assert temporaries(out) == []
    assert not (out / "manifest.json").exists()
    kept = committed(out)
    finish(*full)
    assert files_of(out) == unbroken["parts"]
    assert committed(out) | kept == committed(out)


def test_an_interrupt_before_the_first_part_is_done_says_that_nothing_is_kept(
    arguments, start, tmp_path
):
    out = tmp_path / "out"
    running = start(*arguments["parts"], "-o", out)
    assert running.stop_when(lambda: (out / "plan.json").exists(), signal.SIGINT) == 130
    assert running.errors().strip().startswith("error: interrupted; ")
