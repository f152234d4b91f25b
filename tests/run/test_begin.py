"""A run that is killed or interrupted anywhere, and started again by the same command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
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
            "sft", chats, "--part-bytes", 9000, "--template", "plain", "--max-tokens", 32,
            "--too-long", "window", "--window-overlap", 4, "--packing", 64, *common,
        ],
    }  # fmt: skip


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
        r"error: interrupted; ([0-9]+) of [0-9]+ parts are kept: the same command continues"
        r"(; all rejects until then: .*/rejects\S*( \([0-9]+ files\))?)?",
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


CHILDREN = """
import importlib, os, shutil, signal, sys
from pathlib import Path
from tokmill.settings.load import build_config
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import engine_version
from tokmill.dataset.contents import remove_leftovers
from tokmill.run.prepare import prepare
from tokmill.run.part import run_part
from tokmill.recipes.table import make_recipe
from tokmill.place import open_place

source, tokenizer, top = sys.argv[1:4]

def make(name, kill_at):
    out = Path(top, name)
    for folder in ("parts", "rejects"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    prepared = prepare(build_config({
        "input": {"paths": [source], "keep": ["url"]}, "tokenizer": {"path": tokenizer},
        "output": {"dir": str(out), "shard_tokens": 500, "val_fraction": 0.3},
        "run": {"block_bytes": 400, "threads": 1},
    }, where="test"))
    engine = EngineChoice("reference", engine_version("reference", prepared.tokenizer), "asked")
    spec = prepared.spec(engine)
    calls = 0

    def watched(call):
        def watch(*arguments, **named):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)
        return watch

    for name in ("fdatasync", "fsync"):  # a killed process loses no written byte: only counted
        setattr(os, name, watched(os.fstat))
    for name in ("replace", "fchmod", "link", "unlink"):
        setattr(os, name, watched(getattr(os, name)))
    place = open_place(str(out))
    remove_leftovers(place)
    run_part(spec, prepared.parts[0], place, make_recipe(spec), lambda progress: None)
    remove_leftovers(place)

def child(name, kill_at):
    pid = os.fork()
    if pid == 0:
        try:
            make(name, kill_at)
            Path(top, "modules").write_text(" ".join(sys.modules))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def files(name):
    top_of = Path(top, name)
    return {p.relative_to(top_of): p.read_bytes() for p in top_of.rglob("*") if p.is_file()}

assert child("unbroken", 0) == 0
want = files("unbroken")
for module in Path(top, "modules").read_text().split():
    importlib.import_module(module)
kill_at = 1
while True:
    stopped = child("out", kill_at)
    if stopped == 0:
        break
    assert stopped == -signal.SIGKILL
    # Killed once more, and then not.
    assert child("out", 2 * kill_at) in (0, -signal.SIGKILL)
    assert child("out", 0) == 0
    assert files("out") == want, kill_at
    shutil.rmtree(Path(top, "out"))
    kill_at += 5 if kill_at > 16 else 1
print(kill_at)
"""


def test_a_part_killed_before_any_call_is_made_again_with_the_same_bytes(
    tmp_path, tokenizer_dir, write_rows
):
    rows = [{"text": f"{i} hello 猫 " * (i % 5 + 1), "url": f"{i}"} for i in range(36)]
    rows[9:9] = [b"{bad"]
    source: Path = write_rows(tmp_path / "in.jsonl", rows)
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, str(source), str(tokenizer_dir), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
