"""A run that is killed or interrupted anywhere, and started again by the same command."""

from __future__ import annotations

import gzip
import json
import re
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
    """Commands without their output: of many parts, of a part of many commits, of chats."""
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
    """Return inode and time of every file that a record in `parts/` names."""
    names = []
    for path in directory.glob("parts/*.json"):
        for commit in json.loads(path.read_bytes())["steps"]:
            names += [file["name"] for shard in commit["shards"] for file in shard["files"]]
            names += [] if commit["rejects"] is None else [commit["rejects"]["name"]]
    stats = {name: (directory / name).stat() for name in names}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def named_by_checkpoints(directory: Path) -> int:
    """Return the number of temporary files that checkpoints name."""
    n_files = 0
    for path in directory.glob("parts/.*.checkpoint"):
        commit = json.loads(path.read_bytes())["step"]
        n_files += sum(len(shard["files"]) for shard in commit["shards"]) + bool(commit["rejects"])
    return n_files


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
def test_a_run_that_is_killed_continues_to_the_same_bytes(
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
def test_an_interrupted_run_has_a_message_leaves_no_temporaries_and_continues(
    arguments, unbroken, start, finish_command, files_of, tmp_path, workers, stop
):
    out = tmp_path / "out"
    full = [*arguments["parts"], "-o", out, "--workers", workers]
    command = start(*full)
    status = command.stop_when(lambda: len(list(out.glob("parts/*.json"))) >= 10, stop)
    assert status == 130
    said = re.fullmatch(
        r"error: interrupted; ([0-9]+) of [0-9]+ parts( and [0-9,]+ records of others)? are kept: "
        r"the same command continues",
        command.errors().strip(),
    )
    assert said is not None, command.errors()
    assert int(said[1]) >= 10
    assert len(temporaries(out)) == named_by_checkpoints(out)
    assert not (out / "manifest.json").exists()
    kept = committed(out)
    finish_command(*full)
    assert files_of(out) == unbroken["parts"]
    assert committed(out) | kept == committed(out)


@pytest.fixture(scope="module")
def large(arguments, tmp_path_factory, write_rows) -> dict[str, list[object]]:
    """Commands over some MB in one part, which take a second or two."""
    directory = tmp_path_factory.mktemp("large")
    texts = [f"hello {i} 猫 " * (i % 13) for i in range(40_000)]
    lines = write_rows(directory / "in.jsonl", [{"text": text} for text in texts])
    packed = directory / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes(), 1))
    chats = [
        {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]}
        for text in texts[:20_000]
    ]
    talk = write_rows(directory / "chats.jsonl", chats)
    common = arguments["parts"][arguments["parts"].index("--tokenizer") :]
    common = [*common, "--batch-bytes", 300_000, "--threads", 1]
    return {
        "plain": ["pretrain", lines, *common],
        "gzip": ["pretrain", packed, *common],
        "chats": ["sft", talk, "--template", "plain", *common],
    }


@pytest.mark.parametrize(
    ("name", "other"),
    [("plain", []), ("gzip", ["--threads", 2]), ("chats", ["--threads", 3, "--workers", 2])],
)
def test_an_interrupt_inside_the_first_shard_keeps_what_was_made(
    large, start, finish_command, files_of, tmp_path, name, other
):
    finish_command(*large[name], "-o", tmp_path / "unbroken")
    out = tmp_path / "out"
    running = start(*large[name], "-o", out)
    status = running.stop_when(
        lambda: any(path.stat().st_size > 200_000 for path in out.glob(".train-*.bin.*")),
        signal.SIGINT,
    )
    assert status == 130
    said = re.fullmatch(
        r"error: interrupted; ([0-9,]+) records are kept: the same command continues",
        running.errors().strip(),
    )
    assert said is not None, running.errors()
    assert len(temporaries(out)) == named_by_checkpoints(out) > 0
    assert list(out.glob("*.bin")) == []
    assert max(path.stat().st_size for path in out.glob(".train-*.bin.*")) > 200_000
    finish_command(*large[name], *other, "-o", out)
    assert files_of(out) == files_of(tmp_path / "unbroken")
    assert temporaries(out) == []
    assert named_by_checkpoints(out) == 0
    records = json.loads((out / "manifest.json").read_bytes())["totals"]["records"]
    assert 1000 < int(said[1].replace(",", "")) < records


def test_an_interrupt_before_the_first_commit_has_its_own_message(arguments, start, tmp_path):
    out = tmp_path / "out"
    running = start(*arguments["parts"], "-o", out)
    assert running.stop_when(lambda: (out / "plan.json").exists(), signal.SIGINT) == 130
    assert running.errors().strip().startswith("error: interrupted")


def test_commit_records_that_a_kill_left_are_removed_by_the_next_run(
    arguments, unbroken, start, finish_command, files_of, tmp_path
):
    out = tmp_path / "out"
    command = [*arguments["steps"], "-o", out]
    start(*command).stop_when(
        lambda: len(list(out.glob("parts/0000000-*.json"))) > 5, signal.SIGKILL
    )
    left = {path: path.read_bytes() for path in out.glob("parts/0000000-*.json")}
    finish_command(*command)
    (out / "manifest.json").unlink()
    for path, data in list(left.items())[1:]:  # as if the kill had come between two removals
        path.write_bytes(data)
    finish_command(*command)
    assert files_of(out) == unbroken["steps"]
