"""The rejects of a run that stops, however it stops: kept, named, replaced by the next attempt."""

from __future__ import annotations

import json
import random
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import GOOD, manifest, write_lines
from tokmill.api.progress import RunObserver
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import StorageError
from tokmill.place import open_place
from tokmill.settings.schema import RunSettings

STOPPED = re.compile(r"rejects/\d{7}-stopped\.jsonl")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """40 good lines, 4 broken ones."""
    rows = [b"{bad}" if i % 11 == 10 else GOOD[i % 40] for i in range(44)]
    return write_lines(tmp_path / "in.jsonl", rows)


def stopped(out: Path) -> list[str]:
    """Return the files of rejects of stopped attempts."""
    names = [file.relative_to(out).as_posix() for file in (out / "rejects").iterdir()]
    return sorted(name for name in names if STOPPED.fullmatch(name))


def lines_of(out: Path, name: str) -> list[int]:
    return [json.loads(line)["line"] for line in (out / name).read_text().splitlines()]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def full(*_: object) -> None:
    raise StorageError("no space left on device")


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardWriter, "commit", full)


def interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunObserver, "progressed", interrupted)


def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer records and rejects than a run looks at by default."""
    monkeypatch.setattr("tokmill.run.reject_limits.FRACTION_CHECKED_FROM", 20)


def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes wrong but the records."""


WAYS = [
    # what goes wrong, words, exit code, numbers of rejected lines that are kept
    (few, (), 3, [11, 22, 33, 44]),
    (nothing, ("--on-error", "fail"), 3, [11]),
    (interrupt, (), 130, [11, 22, 33, 44]),
    (no_room, (), 5, [11, 22, 33, 44]),
]


@pytest.mark.parametrize(("fault", "words", "code", "lines"), WAYS)
def test_a_run_that_stops_keeps_the_rejects_it_met_and_names_their_file(
    pretrain, path, tmp_path, monkeypatch, fault, words, code, lines
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        fault(patch)
        outcome = pretrain(path, *words)
    assert outcome.code == code
    (name,) = stopped(out)
    assert outcome.error.endswith(f"; all rejects until then: {out.as_posix()}/{name}")
    assert lines_of(out, name) == lines
    assert not list(out.rglob("*.tmp"))
    assert pretrain(path, "-q").code == 0
    assert stopped(out) == []
    assert lines_of(out, "rejects/0000000.jsonl") == [11, 22, 33, 44]


def test_the_next_attempt_replaces_them_whatever_its_settings(pretrain, path, tmp_path):
    out = tmp_path / "out"
    assert pretrain(path, "--on-error", "fail").code == 3
    other = write_lines(tmp_path / "other.jsonl", [*GOOD[:3], b"{bad}"])
    assert pretrain(other, "--on-error", "fail").code == 3  # of another input: nothing was kept
    (name,) = stopped(out)
    assert lines_of(out, name) == [4]
    assert pretrain(path, "--on-error", "fail", "--overwrite").code == 3
    assert lines_of(out, name) == [11]
    assert pretrain(path, "--part-bytes", "500B", "-q").code == 0
    assert stopped(out) == []


def test_workers_that_are_killed_leave_theirs_too(pretrain, path, tmp_path, monkeypatch):
    out = tmp_path / "out"
    words = ("--part-bytes", "500B", "--workers", "2")
    with monkeypatch.context() as patch:
        few(patch)
        outcome = pretrain(path, *words)
    assert outcome.code == 3
    assert f"; all rejects until then: {out.as_posix()}/rejects" in outcome.error
    assert not list(out.rglob("*.tmp"))
    assert pretrain(path, *words, "-q").code == 0
    assert stopped(out) == []


KILLED = """
import os, signal, time
from pathlib import Path

def render(batch):
    watched = Path(os.environ["WATCHED"])
    end = time.monotonic() + 20
    while (watched / "begun").exists() and '"die"' in batch.column("record")[-1].as_py():
        left = watched.rglob(f".*.jsonl.{os.getpid()}-*.tmp")
        if time.monotonic() > end or any(path.stat().st_size for path in left):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
    return batch.column("record")
"""
"""A renderer that kills its worker, once the worker has written a reject."""


@pytest.fixture
def deadly(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """Return two files, a part each: a broken line, and far behind it a record that kills."""
    (tmp_path / "deadly.py").write_text(KILLED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WATCHED", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TOKMILL_BLOCK_BYTES", "300000")
    monkeypatch.setattr(tempfile, "tempdir", None)
    started = RunObserver.started

    def begin(*arguments: Any) -> None:
        (tmp_path / "begun").touch()
        started(*arguments)

    monkeypatch.setattr(RunObserver, "started", begin)
    rows = [b"{bad}", *[{"text": "x" * 100_000}] * 6, {"text": "die"}]
    first = write_lines(tmp_path / "0.jsonl", rows)
    return first, write_lines(tmp_path / "1.jsonl", rows)


WORDS = ("--renderer", "deadly:render", "--part-bytes", "800kB", "--workers", "2", "--threads", "1")


@pytest.mark.parametrize("place", ["a directory", "a store"])
def test_workers_that_a_signal_kills_leave_theirs_in_any_place(
    tokmill, tokenizer_dir, deadly, tmp_path, url, place
):
    out = url if place == "a store" else str(tmp_path / "out")
    words = ("-t", tokenizer_dir, "--engine", "reference", "-o", out, *WORDS)
    outcome = tokmill("pretrain", *deadly, *words)
    assert outcome.code == 7
    where = outcome.error.partition("; all rejects until then: ")[2]
    assert where.startswith(f"{out}/rejects"), outcome.error
    names = [n for n in open_place(out).entries() if STOPPED.fullmatch(n)]
    assert names
    for name in names:
        (line,) = open_place(out).read(name).decode().splitlines()
        assert json.loads(line)["line"] == 1
    assert not list(tmp_path.glob("tokmill-upload-*/rejects/*"))


def test_workers_of_a_task_that_a_signal_kills_leave_theirs(
    tokmill, tokenizer_dir, deadly, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    small_blocks = partial(RunSettings, block_bytes=300_000)
    monkeypatch.setattr("tokmill.run.begin.RunSettings", small_blocks)
    monkeypatch.setattr("tokmill.run.tasks.workers_and_threads", lambda *_: (2, 1))
    words = ("-t", tokenizer_dir, "--engine", "reference", "-o", out, "--write", *WORDS)
    assert tokmill("plan", *deadly, *words).code in (0, 3)
    (out / "rejects").mkdir(exist_ok=True)
    other = out / "rejects/.0000001.jsonl.1-0123abcd.tmp"  # another task is writing it
    other.write_text("{}\n")
    allowed = ("--allow-code", "deadly:render")
    outcome = tokmill("run-part", out, "--index", "0", "--of", "1", *allowed)
    assert outcome.code == 7
    assert f"; all rejects until then: {out}/rejects" in outcome.error
    assert stopped(out)
    assert other.exists()


def test_a_run_that_fails_at_its_end_names_the_files_of_its_parts(pretrain, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, *[b"{bad}"] * 11])
    outcome = pretrain(path)
    assert outcome.error.endswith(f"; all rejects until then: {tmp_path}/out/rejects/0000000.jsonl")


def test_a_finished_dataset_with_one_of_another_writer_is_whole(pretrain, tokmill, path, tmp_path):
    out = tmp_path / "out"
    assert pretrain(path, "-q").code == 0
    (out / "rejects/0000000-stopped.jsonl").write_text("{}\n")
    assert pretrain(path, "-q").code == 0
    assert stopped(out) == []
    assert not [file for file in manifest(out)["files"] if STOPPED.fullmatch(file["name"])]
    assert tokmill("verify", out).code == 0


def test_tasks_of_an_array_keep_theirs(tokmill, tokenizer_dir, path, tmp_path, monkeypatch):
    out = tmp_path / "out"
    words = ("-o", out, "-t", tokenizer_dir, "--engine", "reference", "--write")
    assert tokmill("plan", path, *words).code == 0
    task = ("run-part", out, "--index", "0", "--of", "1", "-q")
    with monkeypatch.context() as patch:
        interrupt(patch)
        outcome = tokmill(*task)
    assert outcome.code == 130
    (name,) = stopped(out)
    assert outcome.error.endswith(f"; all rejects until then: {out.as_posix()}/{name}")
    assert tokmill(*task).code == 0
    assert tokmill("finish", out, "-q").code == 0
    assert stopped(out) == []


def test_a_run_into_a_store_keeps_them_there(tokmill, tokenizer_dir, path, url):
    words = ("pretrain", path, "-t", tokenizer_dir, "-o", url, "--engine", "reference")
    outcome = tokmill(*words, "--on-error", "fail")
    assert outcome.error.endswith(f"; all rejects until then: {url}/rejects/0000000-stopped.jsonl")
    assert tokmill(*words, "-q").code == 0
    assert "stopped" not in tokmill("verify", url).out


# What plan says


def write_sampled(path: Path, n_records: int, share: float) -> Path:
    """Write long records, so that a sample has few rejects; a share of them is broken."""
    drawn = random.Random(5)
    good, bad = json.dumps({"text": "hello world " * 2500}).encode(), b"{bad" + b" x" * 15_000
    return write_lines(path, [bad if drawn.random() < share else good for _ in range(n_records)])


@pytest.mark.parametrize(("share", "code"), [(0.06, 3), (0.0, 0)])
def test_plan_compares_the_rejects_of_few_sampled_records_with_the_limit(
    tokmill, tokenizer_dir, tmp_path, share, code
):
    path = write_sampled(tmp_path / "in.jsonl", 1200, share)
    outcome = tokmill("plan", path, "-t", tokenizer_dir, "--engine", "reference", "--json")
    values = json.loads(outcome.out)
    assert not values["is_counted"]
    assert (outcome.code, values["has_too_many_rejects"]) == (code, code == 3)


@pytest.mark.parametrize("n_rejects", [10, 11])
def test_plan_of_a_whole_input_stops_exactly_where_the_run_does(
    tokmill, pretrain, tokenizer_dir, tmp_path, n_rejects
):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, *[b"{bad}"] * n_rejects])
    code = tokmill("plan", path, "-t", tokenizer_dir, "--engine", "reference").code
    assert code == pretrain(path, "-q").code == (3 if n_rejects > 10 else 0)


def test_plan_finds_a_file_of_which_every_record_is_rejected(
    tokmill, pretrain, tokenizer_dir, tmp_path
):
    paths = [write_lines(tmp_path / f"{i}.jsonl", GOOD) for i in range(3)]
    paths.append(write_lines(tmp_path / "bad.jsonl", [b'{"title": 1}'] * 2))
    planned = tokmill("plan", *paths, "-t", tokenizer_dir, "--engine", "reference")
    assert planned.code == 3
    assert "the run would stop: every record of 1 of 4 input files was rejected" in planned.error
    assert pretrain(*paths).code == 3
