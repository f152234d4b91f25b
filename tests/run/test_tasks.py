"""A run as an array: the dataset of a whole run, and clear words where a task cannot work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokmill.dataset.checksum import json_chunks
from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.dataset.verify import verify
from tokmill.errors import RecordError, StateError, StorageError, UsageError
from tokmill.extensions import source_sha256
from tokmill.place import open_place
from tokmill.run.finish import run, run_parts
from tokmill.run.tasks import array_status, finish_array, plan_array, run_share
from tokmill.settings.sft import SftSettings

SFT = Path(__file__).parents[2] / "data_samples" / "sft"

RUN_PARTS = "tokmill.run.finish.run_parts"
"""What makes the parts; a test puts something in its place that changes files meanwhile."""


@pytest.fixture
def array(out, make_config, listener):
    """An array of the test's records, with its steps as functions."""
    return SimpleNamespace(
        start=lambda *paths, **change: plan_array(make_config(*paths, **change), listener),
        work=lambda index, of, *code: run_share(str(out), index, of, listener, code),
        status=lambda: array_status(str(out)),
        finish=lambda: finish_array(str(out), listener).plain,
    )


def test_an_array_makes_the_dataset_of_a_whole_run(out, make_config, listener, array, files_of):
    plan = array.start()
    assert len(plan.parts) > 3
    for index in (2, 0, 1):
        records = array.work(index, 3)
        assert [record.part for record in records] == list(range(len(plan.parts)))[index::3]
    manifest = array.finish()
    fresh = out.parent / "fresh"
    whole = run(make_config(dir=str(fresh)), listener).plain
    assert files_of(out) == files_of(fresh)
    assert not verify(open_place(str(out)), manifest).problems
    outside = ("run", "sha256", "config")
    assert {k: v for k, v in manifest.items() if k not in outside} == {
        k: v for k, v in whole.items() if k not in outside
    }
    assert not [p for p in out.rglob(".*") if p.name != ".lock"]
    assert array.finish() == manifest  # again: nothing is made


def test_packs_of_an_array_are_those_of_a_whole_run(out, configure, listener, array, files_of):
    settings = {
        "sft": SftSettings(schema="mixed", template="tokenizer", packing=2000),
        "path": str(SFT.parent / "tokenizer"), "max_tokens": 2000,
        "part_bytes": 9000, "max_reject_fraction": 1.0,
    }  # fmt: skip
    sources = [SFT / "chats.jsonl", SFT / "prompt_chat.jsonl"]
    fresh = out.parent / "fresh"
    run(configure(fresh, *sources, **settings), listener)
    plan_array(configure(out, *sources, **settings), listener)
    for index in range(2):
        array.work(index, 2)
    assert "packs" in array.finish()
    assert files_of(out) == files_of(fresh)


def test_the_plan_brings_the_tokenizer(array, tokenizer_dir, tmp_path):
    moved = shutil.copytree(tokenizer_dir, tmp_path / "moved")
    plan = array.start(path=str(moved))
    shutil.rmtree(moved)
    array.work(0, 1)
    assert array.finish()["tokenizer"]["identity"] == plan.spec.tokenizer.identity


def test_a_whole_run_continues_an_array(array, out, make_config, listener, files_of):
    array.start()
    array.work(1, 3)
    run(make_config(), listener)
    assert listener.n_done[-1] > 0
    assert array.status().is_finished
    assert array.finish()["totals"]["records"] == 81


def test_the_status_says_what_is_done_failed_and_missing(array, sources, out):
    n_parts = len(array.start(on_error="fail", max_reject_fraction=0.0).parts)
    status = array.status()
    assert (status.done, status.missing) == ((), tuple(range(n_parts)))
    of = n_parts  # the last part has the broken record
    array.work(0, of)
    with pytest.raises(RecordError):
        array.work(n_parts - 1, of)
    status = array.status()
    assert status.done == (0,)
    assert status.failed == (n_parts - 1,)
    assert status.missing == tuple(range(1, n_parts - 1))
    assert not status.is_finished
    (error,) = status.tasks
    assert error.startswith(f"task {n_parts - 1} of {n_parts} on ")
    assert "b.jsonl" in error
    with pytest.raises(StateError, match=rf"{n_parts - 1} parts are not done: 1, 2, "):
        array.finish()
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("name", ["train-0000001-0000.bin", "parts/0000001.json"])
def test_a_finished_array_with_a_file_cut_is_made_whole_by_its_tasks(array, out, files_of, name):
    array.start()
    array.work(0, 1)
    manifest, before = array.finish(), files_of(out)
    (out / name).chmod(0o644)
    os.truncate(out / name, (out / name).stat().st_size // 2)
    with pytest.raises(StateError, match="1 part is not done: 1: start their tasks again"):
        array.finish()
    array.work(0, 1)
    assert array.finish()["totals"] == manifest["totals"]
    assert files_of(out) == before


def test_the_status_of_a_run_imports_no_renderer(array, out, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "own_renderer.py"
    module.write_text("def render(batch):\n    return batch['record']\n")
    plan = array.start(renderer="own_renderer:render")
    assert plan.spec.extensions
    records = array.work(0, 2, "own_renderer:render")
    module.write_text("raise SystemExit('imported')")
    monkeypatch.delitem(sys.modules, "own_renderer")
    assert array.status().done == tuple(record.part for record in records)
    module.unlink()
    source_sha256.cache_clear()
    with pytest.raises(StateError, match="own_renderer is not installed on this machine"):
        array.work(1, 2, "own_renderer:render")


def test_a_task_that_succeeds_later_has_not_failed(array, sources, tmp_path):
    array.start()
    kept = sources[0].rename(tmp_path / "kept")
    with pytest.raises(StorageError, match=r"a\.jsonl"):
        array.work(0, 1)
    assert array.status().failed
    kept.rename(sources[0])
    array.work(0, 1)
    status = array.status()
    assert not status.tasks
    assert not status.undone
    array.finish()


def test_rejects_are_judged_at_the_end_as_in_a_whole_run(tmp_path, write_rows, listener, configure):
    source = write_rows(tmp_path / "in.jsonl", [*[{"text": "a"}] * 900, *[b"{bad"] * 20])
    config = configure(tmp_path / "out", source, part_bytes=1000, max_reject_fraction=0.02)
    plan_array(config, listener)
    run_share(str(tmp_path / "out"), 0, 1, listener)
    with pytest.raises(RecordError, match="more than --max-reject-fraction"):
        finish_array(str(tmp_path / "out"), listener)
    lax = configure(tmp_path / "out", source, part_bytes=1000, max_reject_fraction=0.1)
    plan_array(lax, listener)  # the same run, with another limit
    assert finish_array(str(tmp_path / "out"), listener).plain["totals"]["rejects"]


HOLDER = """
import sys
from pathlib import Path
from tokmill.place.directory import locked
with locked(Path(sys.argv[1]), is_shared=True):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_tasks_share_a_directory_and_keep_whole_runs_out(array, out, make_config, listener):
    array.start()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        array.work(0, 3)
        for whole in (array.finish, lambda: run(make_config(), listener)):
            with pytest.raises(StateError, match="another run is writing here"):
                whole()
        other.kill()
        other.wait(timeout=300)
    for index in (1, 2):
        array.work(index, 3)
    array.finish()


def test_a_task_that_works_is_seen_and_a_second_one_of_its_parts_writes_the_same(
    array, out, listener, monkeypatch
):
    n_parts = len(array.start().parts)

    def meanwhile(*arguments):
        monkeypatch.setattr(RUN_PARTS, run_parts)
        status = array.status()
        assert status.running == tuple(range(0, n_parts, 2))
        (line,) = status.tasks
        assert line.startswith("task 0 of 2 on ")
        assert ": begun 2" in line
        assert array.work(0, 2)
        run_parts(*arguments)

    monkeypatch.setattr(RUN_PARTS, meanwhile)
    assert array.work(0, 2)
    assert array.status().running == ()
    array.work(1, 2)
    assert not verify(open_place(str(out)), array.finish()).problems


@pytest.mark.parametrize(("index", "of"), [(-1, 2), (2, 2), (0, 0), (0, -1)])
def test_a_task_outside_the_array_is_refused(array, index, of):
    array.start()
    with pytest.raises(UsageError, match="--index" if of > 0 else "--of"):
        array.work(index, of)


def test_standard_input_has_no_array(make_config, listener):
    with pytest.raises(UsageError, match="standard input"):
        plan_array(make_config("-"), listener)


# Machines that do not see what the plan was made from, and plans that do not fit


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl"])
def test_each_task_checks_every_input_of_its_own_parts(array, sources, tmp_path, name):
    plan = array.start()
    path = tmp_path / name
    own = next(p.index for p in plan.parts if p.slices[0].file.path == str(path))
    other = next(p.index for p in plan.parts if p.slices[0].file.path != str(path))
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    array.work(other, len(plan.parts))
    with pytest.raises(StorageError, match=rf"{name}: changed"):
        array.work(own, len(plan.parts))
    assert array.status().failed == (own,)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    array.work(own, len(plan.parts))
    assert not array.status().tasks


def forged(out: Path, **change: object) -> None:
    """Change values of the plan, or of its task; its fingerprint is right again."""
    path = out / "plan.json"
    plan = json.loads(path.read_bytes())
    task = {key: value for key, value in change.items() if key in plan["task"]}
    plan |= {key: value for key, value in change.items() if key not in task}
    plan["task"] |= task
    path.chmod(0o600)
    path.write_bytes(b"".join(json_chunks({**plan, "fingerprint": plan_fingerprint(plan)})))


@pytest.mark.parametrize(
    "change",
    [
        *({"tokenizer": value} for value in ("", {}, {"name": "tokenizer.zst", "bytes": 9})),
        {"tokenizer": {"name": "manifest.json", "bytes": 9, "blake3": "0" * 64}},
        {"config": {"input": {"unknown": 1}}},
        {"readings": [[]]},
        {"task": {}},
    ],
)
def test_a_task_that_cannot_be_read_is_refused(array, out, change):
    array.start()
    forged(out, **change)
    with pytest.raises(StateError, match=r"plan\.json: (has no task that can be read|damaged)"):
        array.status()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: None, "missing"),
        (lambda data: data[:-1], "damaged"),
        (lambda data: data[:-1] + b"x", "damaged"),
    ],
)
def test_a_task_without_the_tokenizer_of_its_plan_is_refused_until_it_is_planned_again(
    array, out, damage, told
):
    array.start()
    path = out / "tokenizer.zst"
    whole = path.read_bytes()
    damaged = damage(whole)
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    with pytest.raises(StateError, match=rf"tokenizer\.zst: {told}.*: plan the run again"):
        array.work(0, 1)
    array.start()
    assert path.read_bytes() == whole
    array.work(0, 1)


def test_a_plan_of_another_version_is_refused(array, out):
    array.start()
    forged(out, tokmill_version="0.0.1")
    with pytest.raises(StateError, match=r"written by tokmill 0\.0\.1, installed on .* is"):
        array.work(0, 1)


def test_a_run_that_takes_the_place_over_stops_a_task(array, out, monkeypatch):
    array.start()

    def taken_over(*of_run):
        (out / "plan.json").unlink()
        run_parts(*of_run)

    monkeypatch.setattr(RUN_PARTS, taken_over)
    with pytest.raises(StateError, match="another run took this place over"):
        array.work(0, 2)
    assert not list(out.glob("*.bin"))
    assert not list(out.glob("parts/0*.json"))


def test_an_engine_of_another_version_is_refused_with_the_name_of_the_machine(
    array, out, monkeypatch
):
    array.start()
    monkeypatch.setattr("tokmill.run.begin.engine_version", lambda *_: "9.9")
    with pytest.raises(StateError, match=r"^\S+: .* installed is 9\.9"):
        array.work(0, 1)
