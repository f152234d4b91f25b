from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokmill.dataset.layout import DATASET_FILE
from tokmill.dataset.reader import read_manifest
from tokmill.dataset.verify import verify
from tokmill.errors import StateError, StorageError, UsageError
from tokmill.place import open_place
from tokmill.run.finish import run, run_parts
from tokmill.run.tasks import plan_array, run_share
from tokmill.settings.schema import Config
from tokmill.settings.sft import SftSettings


def test_a_run_continues_where_it_was_stopped(out, make_config, listener, begun, files_of):
    again = run(make_config(), listener).plain
    n_parts = len(listener.plans[-1].parts)
    assert listener.n_done == [0, n_parts - 1]
    assert again["run"]["resumed_parts"] == n_parts - 1
    assert again["totals"] == begun["totals"]
    assert again["files"] == begun["files"]
    fresh = out.parent / "fresh"
    run(make_config(dir=str(fresh)), listener)
    assert files_of(out) == files_of(fresh)


def test_a_dataset_that_is_being_repaired_has_no_manifest(out, make_config, listener):
    config = make_config()
    run(config, listener)
    (out / "train-0000000-0000.bin").unlink()
    listener.progressed = lambda progress: stands.append((out / "manifest.json").exists())
    stands: list[bool] = []
    run(config, listener)
    assert stands
    assert not any(stands)


def test_a_plan_without_a_commit_is_replaced_by_another(out, make_config, listener, begun):
    for path in out.rglob("*"):
        if path.is_file() and path.name not in ("plan.json", ".lock"):
            path.unlink()
    manifest = run(make_config(min_tokens=2), listener).plain
    assert manifest["config"]["limits"]["min_tokens"] == 2
    listed = {entry["name"] for entry in manifest["files"]}
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert found - listed == {"manifest.json", ".lock"}


@pytest.mark.parametrize("finished", [True, False])
def test_overwrite_starts_again(out, make_config, listener, begun, files_of, finished):
    if finished:
        run(make_config(), listener)
    change = {"part_bytes": 1 << 20, "shard_tokens": 0, "val_fraction": 0.2}
    run(make_config(**change), listener, overwrite=True)
    assert listener.n_done[-1] == 0
    fresh = out.parent / "fresh"
    run(make_config(**change, dir=str(fresh)), listener)
    assert files_of(out) == files_of(fresh)


def test_overwrite_takes_over_a_damaged_plan_and_a_newer_format(out, make_config, listener, begun):
    newer = b'{"format": "tokmill plan", "format_version": 99}'
    for data in ((out / "plan.json").read_bytes()[:99], newer):
        (out / "plan.json").unlink()
        (out / "plan.json").write_bytes(data)
        config = make_config()
        with pytest.raises(StateError):
            run(config, listener)
        assert run(config, listener, overwrite=True).plain["files"] == begun["files"]


@pytest.fixture
def vandal(listener):
    """Return an observer that changes a file once, as soon as it is there."""

    def make(path, change, *, always=False):
        class Vandal:
            is_done = False

            def progressed(self, progress):
                if path.exists() and (always or not self.is_done):
                    self.is_done = True
                    path.chmod(0o644)
                    change(path)

            def __getattr__(self, name):
                return getattr(listener, name)

        return Vandal()

    return make


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("train-0000000-0000.bin", Path.unlink),
        ("train-0000000-0000.idx", lambda path: os.truncate(path, 7)),
        ("parts/0000000.json", Path.unlink),
    ],
)
def test_a_file_that_is_removed_or_truncated_during_the_run_is_made_again(
    out, make_config, listener, files_of, vandal, name, change
):
    manifest = run(make_config(), vandal(out / name, change)).plain
    told = f"{out}/{name}: changed or removed while the run went on: 1 part is made again"
    assert listener.warnings == [told]
    assert not verify(open_place(str(out)), manifest).problems
    fresh = out.parent / "fresh"
    run(make_config(dir=str(fresh)), listener)
    assert files_of(out) == files_of(fresh)


def test_a_file_that_is_removed_again_and_again_is_an_error(
    out, make_config, listener, monkeypatch
):
    def execute(*of_run):
        run_parts(*of_run)
        (out / "train-0000000-0000.bin").unlink()

    monkeypatch.setattr("tokmill.run.finish.run_parts", execute)
    with pytest.raises(StorageError, match=r"0000000-0000\.bin: changed or removed .*, twice: run"):
        run(make_config(), listener)
    monkeypatch.undo()
    assert not (out / "manifest.json").exists()
    assert not verify(open_place(str(out)), run(make_config(), listener).plain).problems


def test_a_run_whose_plan_is_removed_ends_without_a_manifest(out, make_config, vandal):
    plan = out / "plan.json"
    with pytest.raises(StateError, match=r"plan\.json: was replaced or removed since this run beg"):
        run(make_config(), vandal(plan, Path.unlink))
    assert not (out / "manifest.json").exists()


def test_a_whole_run_removes_what_an_array_left(out, make_config, listener):
    plan_array(make_config(), listener)
    run_share(str(out), 0, 2, listener)
    (out / "parts" / ".task-1-of-2.json").write_bytes(b"{}")
    run(make_config(), listener)
    assert [name.name for name in out.rglob(".*")] == [".lock"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("s3:/bucket/out", "expected a directory, or a URL such as s3://"),
        ("simplecache::s3://bucket/out", "expected a directory, or a URL such as s3://"),
        ("https://127.0.0.1:1/out", "a web server is only read from"),
    ],
)
def test_a_url_that_cannot_be_an_output_is_refused(
    make_config, listener, tmp_path, monkeypatch, place, reason
):
    monkeypatch.chdir(tmp_path)
    for act in (
        lambda: run(make_config(dir=place), listener),
        lambda: plan_array(make_config(dir=place), listener),
    ):
        with pytest.raises(UsageError, match=reason):
            act()
    assert not list(tmp_path.glob("*:*"))


# A dataset is complete if every file of its manifest is there


TURNS = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "yes"}]


@pytest.fixture(scope="module")
def chats(tmp_path_factory, configure, silent, write_rows) -> Config:
    """A finished dataset of packed chats, with a val split and a reject."""
    directory = tmp_path_factory.mktemp("chats")
    source = write_rows(directory / "in.jsonl", [*([{"messages": TURNS}] * 9), b"{bad"])
    other = [*TURNS[:1], {"role": "assistant", "content": "no"}]
    more = write_rows(directory / "more.jsonl", [{"messages": other}] * 9)
    packed = SftSettings(template="plain", packing=64, packed_rows=True)
    config = configure(
        directory / "out", source, more, sft=packed, max_tokens=64, val_fraction=0.5,
        max_reject_fraction=1.0, part_bytes=200,
    )  # fmt: skip
    run(config, silent)
    return config


def kind_of(name: str) -> str:
    """Return a name without its numbers: one file of each kind is tried."""
    return "".join(c for c in name if not c.isdigit())


def one_of_each_kind(directory: Path) -> list[str]:
    names = [entry.name for entry in read_manifest(directory).files]
    return list({kind_of(name): name for name in names if name != "plan.json"}.values())


def test_every_file_that_is_missing_or_truncated_is_made_again(chats, listener, files_of):
    out = Path(chats.output.dir)
    before = files_of(out)
    names = one_of_each_kind(out)
    assert len(names) >= 12
    for i, name in enumerate(names):
        data = (out / name).read_bytes()
        (out / name).unlink()
        if i % 2 and not name.startswith("parts/"):
            (out / name).write_bytes(data[:-1])
        manifest = run(chats, listener).plain
        assert (out / name).read_bytes() == data
        assert f"{out}: {name} was removed or cut: it is made again" in listener.warnings
        assert verify(open_place(str(out)), manifest).problems == ()
    assert files_of(out) == before
    assert all(DATASET_FILE.fullmatch(name) for name in names)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-9],
        lambda data: b'{\n"config":{}}',
        lambda data: data.replace(b'"dtype":"uint16"', b'"dtype":"uint32"'),
    ],
)
def test_a_manifest_that_was_changed_is_written_again(
    out, make_config, listener, change: Callable[[bytes], bytes]
):
    before = run(make_config(), listener).plain
    path = out / "manifest.json"
    data = change(path.read_bytes())
    path.unlink()
    path.write_bytes(data)
    again: dict[str, Any] = run(make_config(), listener).plain
    assert again["files"] == before["files"]
    assert json.loads(path.read_bytes())["sha256"] == again["sha256"]
    assert listener.warnings[-1].endswith(": it is written again")


def test_a_complete_dataset_with_a_foreign_file_is_not_changed(out, make_config, listener):
    manifest = run(make_config(), listener).plain
    (out / "notes.txt").write_text("mine")
    assert run(make_config(), listener).plain == manifest
