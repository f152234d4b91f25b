"""A run that is killed or interrupted anywhere, and started again by the same command."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = [{"text": f"hello {i} 猫 " * (i % 13)} for i in range(3000)]
CHATS: list[object] = [
    {"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": "猫" * i}]}
    for i in range(600)
]
CHATS[70:70] = [b"{bad", {"messages": []}, {"messages": [{"role": "bot", "content": "?"}]}]
N_RECORDS = {"parts": 3002, "steps": 3002, "chats": 603}
ROWS[50:50] = [b"{bad", {"text": 7}]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, write_rows, tokenizer_dir) -> dict[str, list[object]]:
    """Commands without their output: of many parts, of a part of many steps, of chats."""
    directory = tmp_path_factory.mktemp("input")
    source = write_rows(directory / "in.jsonl", ROWS)
    chats = write_rows(directory / "chats.jsonl", CHATS)
    packed = directory / "packed.jsonl.zst"
    packed.write_bytes(zstd.compress(source.read_bytes()))
    common: list[object] = [
        "--tokenizer", tokenizer_dir, "--engine", "tokenizers", "--val-fraction", 0.1,
        "--min-tokens", 3, "--max-reject-fraction", 0.5, "--batch-bytes", 2000, "--quiet",
    ]  # fmt: skip
    return {
        "parts": ["pretrain", source, "--part-bytes", 6000, *common],
        "steps": ["pretrain", packed, "--shard-tokens", 1200, *common],
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


@pytest.fixture(scope="module")
def unbroken(arguments, finish_command, files_of, tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """The files that each of the commands makes when nothing stops it."""
    found = {}
    for name, command in arguments.items():
        out = tmp_path_factory.mktemp(name)
        finish_command(*command, "-o", out)
        found[name] = files_of(out)
    assert sum(name.startswith("parts/") for name in found["parts"]) > 50
    assert sum(name.startswith("train-") for name in found["steps"]) > 60
    assert sum(name.endswith(".mask") for name in found["chats"]) > 10
    assert "packs-train-rows.bin" in found["chats"]
    return found


def committed(directory: Path) -> dict[str, tuple[int, int]]:
    """Give inode and time of every file that a record in `parts/` vouches for."""
    names = []
    for path in directory.glob("parts/*.json"):
        for step in json.loads(path.read_bytes())["steps"]:
            names += [file["name"] for shard in step["shards"] for file in shard["files"]]
            names += [] if step["rejects"] is None else [step["rejects"]["name"]]
    stats = {name: (directory / name).stat() for name in names}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def temporaries(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob(".*.tmp")]


@pytest.mark.parametrize(
    ("name", "workers", "moments"),
    [
        ("parts", 1, [25]),
        ("parts", 2, [0, 1, 20]),
        ("steps", 1, [1, 12, 25]),
        ("chats", 2, [0, 3]),
    ],
)
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(
    arguments, unbroken, start, finish_command, files_of, tmp_path, name, workers, moments
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
    finish_command(*full)
    assert files_of(out) == unbroken[name]
    assert committed(out) | kept == committed(out)
    assert temporaries(out) == []
    assert json.loads((out / "manifest.json").read_bytes())["totals"]["records"] == N_RECORDS[name]


@pytest.mark.parametrize(
    ("workers", "stop"), [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM)]
)
def test_an_interrupted_run_says_so_leaves_no_temporaries_and_goes_on(
    arguments, unbroken, start, finish_command, files_of, tmp_path, workers, stop
):
    out = tmp_path / "out"
    full = [*arguments["parts"], "-o", out, "--workers", workers]
    command = start(*full)
    status = command.stop_when(lambda: len(list(out.glob("parts/*.json"))) >= 10, stop)
    assert status == 130
    assert command.errors().strip() == (
        "error: interrupted; what is committed is kept: the same command continues"
    )
    assert temporaries(out) == []
    assert not (out / "manifest.json").exists()
    kept = committed(out)
    finish_command(*full)
    assert files_of(out) == unbroken["parts"]
    assert committed(out) | kept == committed(out)
