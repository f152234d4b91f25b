"""A part that is stopped anywhere and run again gives the bytes of one that was not."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = [
    {
        "title": f"t{i}",
        "summary": "hello world " * (i * 7 % 11),
        "sections": [{"content": "猫" * i}],
    }
    for i in range(20)
]
LINES = [json.dumps(row, ensure_ascii=False).encode() for row in ROWS]
LINES[4:4] = [b"{bad", b"", b'{"title": "\\ud800"}', b"[1]"]
LINES[15:15] = [b"\xff", b'{"title": ""}', b" "]
JSONL = b"\n".join(LINES) + b"\n"
SETTINGS = {
    "shard_tokens": 150,
    "val_fraction": 0.3,
    "min_tokens": 9,
    "batch_bytes": 250,
    "renderer": "encyclopedia",
}


class StoppedError(Exception):
    pass


def stop_after(n_calls: int) -> Callable[[object], None]:
    """Return a report that raises when it is called once more than `n_calls` times."""
    left = iter(range(n_calls))

    def report(progress: object) -> None:
        if next(left, None) is None:
            raise StoppedError

    return report


def as_array() -> bytes:
    return ("[\n" + ",\n".join(json.dumps(row) for row in [*ROWS, 7, {"title": 1}]) + "]").encode()


def as_csv() -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["title", "summary", "sections"])
    rows = [[row["title"], row["summary"], json.dumps(row["sections"])] for row in ROWS]
    rows[3:3] = [["too", "many", "[]", "fields"], ["", "", ""], ["a", "b", "not json"]]
    writer.writerows(rows)
    return file.getvalue().encode()


UNSPLITTABLE = {
    "a.jsonl.gz": lambda: gzip.compress(JSONL, mtime=0),
    "a.jsonl.zst": lambda: zstd.compress(JSONL),
    "a.json": as_array,
    "a.csv": as_csv,
    "a.jsonl": lambda: JSONL,
}


def committed(directory: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of every file that a record in `parts/` names."""
    names = []
    for path in directory.glob("parts/*.json"):
        for commit in json.loads(path.read_bytes())["steps"]:
            names += [file["name"] for shard in commit["shards"] for file in shard["files"]]
            names += [] if commit["rejects"] is None else [commit["rejects"]["name"]]
    stats = {name: (directory / name).stat() for name in names}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture(params=[*UNSPLITTABLE, "three files"])
def plans(request, tmp_path, configure, plan_of):
    """Return a function that plans a run of one part into a directory of a given name."""
    if request.param == "three files":
        thirds = [b"\n".join(LINES[i : i + 9]) for i in (0, 9, 18)]
        made = {f"{i}.jsonl": data for i, data in enumerate(thirds)}
    else:
        made = {request.param: UNSPLITTABLE[request.param]()}
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)

    def plan(name: str, **settings):
        sources = [tmp_path / source for source in made]
        plan = plan_of(configure(tmp_path / name, *sources, **SETTINGS | settings))
        assert len(plan.parts) == 1
        return plan

    return plan


def test_a_part_stopped_at_any_report_continues_to_the_same_bytes(plans, run_alone, tmp_path):
    unbroken = run_alone(plans("unbroken"))
    want = files(tmp_path / "unbroken")
    n_commits = len(unbroken.record.commits)
    assert n_commits > 3
    assert len(want) > 2 * n_commits
    seen_commits = set()
    for k in range(len(unbroken.heard)):
        out = tmp_path / "out"
        with pytest.raises(StoppedError):
            run_alone(plans("out"), report=stop_after(k))
        assert not list(out.rglob(".*"))
        kept = committed(out)
        seen_commits.add(len(list(out.glob("parts/*.json"))))
        # The second attempt may cut its batches otherwise.
        again = run_alone(plans("out", batch_bytes=(1, 777, 1 << 20)[k % 3]))
        assert files(out) == want
        assert committed(out) | kept == committed(out)
        assert again.record == unbroken.record
        resumed = [progress for progress in again.heard if progress.resumed]
        assert len(resumed) == (1 if kept else 0)
        for name in ("records", "documents", "tokens", "text_bytes"):
            total = sum(getattr(progress, name) for progress in again.heard)
            assert total == getattr(unbroken.record.counts(), name)
        shutil.rmtree(out)
    assert len(seen_commits) > 2


def test_a_part_stopped_again_and_again_gets_there(plans, run_alone, tmp_path):
    unbroken = run_alone(plans("unbroken")).record
    n_attempts = 0
    while True:
        n_attempts += 1
        assert n_attempts < 200
        kept = committed(tmp_path / "out") if n_attempts > 1 else {}
        try:
            # A first report of a resumed part says what is there; two more are progress.
            done = run_alone(plans("out", batch_bytes=400), report=stop_after(4))
        except StoppedError:
            assert committed(tmp_path / "out") | kept == committed(tmp_path / "out")
            continue
        break
    assert n_attempts > 2
    assert done.record == unbroken
    assert files(tmp_path / "out") == files(tmp_path / "unbroken")


def test_a_shard_whose_record_was_not_written_is_written_again(plans, run_alone, tmp_path):
    # Killed between the rename of a shard and the record of its commit.
    run_alone(plans("unbroken"))
    with pytest.raises(StoppedError):
        run_alone(plans("out"), report=stop_after(8))
    records = sorted((tmp_path / "out" / "parts").iterdir())
    assert len(records) > 1
    for record in records[-2:]:
        record.unlink()
    kept = committed(tmp_path / "out")
    run_alone(plans("out"))
    assert files(tmp_path / "out") == files(tmp_path / "unbroken")
    assert committed(tmp_path / "out") | kept == committed(tmp_path / "out")


def test_commit_records_left_beside_a_finished_part_change_nothing(plans, run_alone, tmp_path):
    # Killed after the part's record, before its commits' records were removed.
    with pytest.raises(StoppedError):
        run_alone(plans("out"), report=stop_after(5))
    commits = files(tmp_path / "out" / "parts")
    first = run_alone(plans("out"))
    for name, data in commits.items():
        (tmp_path / "out" / "parts" / name).write_bytes(data)
    again = run_alone(plans("out"))
    assert again.record == first.record
    assert [progress.resumed for progress in again.heard] == [True]


def test_an_attempt_that_comes_second_takes_the_record_of_the_first(plans, run_alone, tmp_path):
    plan = plans("out")
    record = run_alone(plan).record
    path = tmp_path / "out" / "parts" / "0000000.json"
    other = dataclasses.replace(record, commits=record.commits[:1])
    path.unlink()
    calls: list[object] = []

    def report(progress: object) -> None:
        if not calls:  # the other attempt finishes while this one works
            path.write_bytes(other.as_bytes())
        calls.append(progress)

    assert run_alone(plans("out"), report=report).record == other
    assert path.read_bytes() == other.as_bytes()
