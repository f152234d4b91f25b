"""A run as an array: the dataset of a whole run, and clear words where a task cannot work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokmill.dataset.canonical import canonical_json, sha256_hex
from tokmill.dataset.verify import verify
from tokmill.errors import RecordError, StateError, StorageError, UsageError
from tokmill.executors.run import run, run_parts
from tokmill.run.array import array_status, finish_array, plan_array, run_share
from tokmill.run.make_dataset import make_dataset
from tokmill.settings.plain import plain
from tokmill.settings.sft import SftSettings

SFT = Path(__file__).parents[2] / "data_samples" / "sft"


@pytest.fixture
def array(tmp_path, make_config, listener):
    """An array of the test's records, with its steps as functions."""
    path = tmp_path / "array.plan"

    def start(*paths, **change):
        config = make_config(*paths, **change)
        return plan_array(config, path, listener)

    return SimpleNamespace(
        path=path,
        start=start,
        work=lambda index, of: run_share(path, index, of, listener, run_parts),
        status=lambda: array_status(path),
        finish=lambda: finish_array(path, listener),
    )


def test_an_array_makes_the_dataset_of_a_whole_run(out, make_config, listener, array, files_of):
    plan = array.start()
    assert len(plan.parts) > 3
    for index in (2, 0, 1):
        records = array.work(index, 3)
        assert [record.part for record in records] == list(range(len(plan.parts)))[index::3]
    manifest = array.finish()
    fresh = out.parent / "fresh"
    whole = run(make_config(dir=str(fresh)), listener)
    assert files_of(out) == files_of(fresh)
    assert not verify(out, manifest).problems
    outside = ("run", "sha256", "config")
    assert {k: v for k, v in manifest.items() if k not in outside} == {
        k: v for k, v in whole.items() if k not in outside
    }
    assert not [p for p in out.rglob(".*") if p.name != ".lock"]


def test_packs_of_an_array_are_those_of_a_whole_run(
    out, configure, listener, array, files_of, tmp_path
):
    settings = {
        "sft": SftSettings(schema="mixed", template="tokenizer", packing=2000),
        "path": str(SFT.parent / "tokenizer"), "max_tokens": 2000,
        "part_bytes": 9000, "max_reject_fraction": 1.0,
    }  # fmt: skip
    sources = [SFT / "chats.jsonl", SFT / "prompt_chat.jsonl"]
    fresh = tmp_path / "fresh"
    run(configure(fresh, *sources, **settings), listener)
    plan_array(configure(out, *sources, **settings), array.path, listener)
    for index in range(2):
        array.work(index, 2)
    assert "packs" in array.finish()
    assert files_of(out) == files_of(fresh)


def test_the_plan_of_an_array_brings_the_tokenizer(
    out, array, tokenizer_dir, make_config, tmp_path
):
    moved = shutil.copytree(tokenizer_dir, tmp_path / "moved")
    plan = array.start(path=str(moved))
    shutil.rmtree(moved)
    array.work(0, 1)
    assert array.finish()["tokenizer"]["sha256"] == plan.spec.tokenizer.sha256


def test_settings_are_the_same_when_they_are_read_again(array, out):
    from tokmill.run.array_plan import read_array_plan

    plan = array.start(val_fraction=0.1, min_tokens=2)
    again = read_array_plan(array.path)
    assert plain(again.plan.spec.config) == plain(plan.spec.config)
    assert again.plan.spec.config == plan.spec.config
    assert again.plan.spec.tokenizer == plan.spec.tokenizer
    assert again.plan.parts == plan.parts
    assert again.plan.head() == plan.head()


def test_a_task_that_is_started_again_makes_nothing_new(array, out, listener):
    array.start()
    array.work(0, 2)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.bin")}
    array.work(0, 2)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.bin")} == before
    assert listener.n_done[-1] == len(listener.plans[-1].parts)


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
    (error,) = status.errors
    assert error.startswith(f"task {n_parts - 1} of {n_parts} on ")
    assert "b.jsonl" in error
    with pytest.raises(StateError, match=rf"{n_parts - 1} of {n_parts} parts are not done: 1, 2, "):
        array.finish()
    assert not (out / "manifest.json").exists()


def test_a_task_that_succeeds_later_has_not_failed(array, sources, tmp_path):
    array.start()
    kept = sources[0].rename(tmp_path / "kept")
    with pytest.raises(StorageError, match=r"a\.jsonl"):
        array.work(0, 1)
    assert array.status().failed
    kept.rename(sources[0])
    array.work(0, 1)
    status = array.status()
    assert not status.errors
    assert not status.undone
    array.finish()


def test_an_input_that_changed_after_the_plan_is_refused(array, sources):
    array.start()
    sources[0].write_bytes(sources[0].read_bytes() + b'{"text": "new"}\n')
    with pytest.raises(StorageError, match="changed"):
        array.work(0, 1)


def test_rejects_are_judged_at_the_end_as_in_a_whole_run(tmp_path, write_rows, listener, configure):
    source = write_rows(tmp_path / "in.jsonl", [*[{"text": "a"}] * 900, *[b"{bad"] * 20])
    path = tmp_path / "array.plan"
    config = configure(tmp_path / "out", source, part_bytes=1000, max_reject_fraction=0.02)
    plan_array(config, path, listener)
    run_share(path, 0, 1, listener, run_parts)
    with pytest.raises(RecordError, match="more than --max-reject-fraction"):
        finish_array(path, listener)
    lax = configure(tmp_path / "out", source, part_bytes=1000, max_reject_fraction=0.1)
    plan_array(lax, path, listener)  # the same run, with another limit
    assert finish_array(path, listener)["totals"]["rejects"]


HOLDER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tokmill.lock import locked, parts_locked
with locked(Path(sys.argv[1]), is_shared=True), parts_locked(Path(sys.argv[1]), [1, 4]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_tasks_share_a_directory_and_hold_their_parts(array, out, make_config, listener):
    array.start()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        status = array.status()
        assert status.running == (1, 4)
        array.work(0, 3)  # parts 0, 3, …
        with pytest.raises(StateError, match="another task is writing part 1: wait for its end"):
            array.work(1, 3)
        for whole in (array.finish, lambda: run(make_config(), listener)):
            with pytest.raises(StateError, match="another run is writing here"):
                whole()
        other.kill()
        other.wait(timeout=60)
    assert array.status().running == ()
    for index in (1, 2):
        array.work(index, 3)
    array.finish()


def test_a_task_in_another_thread_is_seen_and_kept_apart(array, out, listener, monkeypatch):
    n_parts = len(array.start().parts)
    monkeypatch.setattr("tokmill.lock.time.sleep", lambda _: None)

    def meanwhile(*arguments):
        with ThreadPoolExecutor(1) as pool:
            for _ in range(2):  # a look leaves the locks where they are
                assert pool.submit(array.status).result(60).running == tuple(range(0, n_parts, 2))
            second = pool.submit(array.work, 0, 2)
            with pytest.raises(StateError, match=r"another task is writing part 0: wait for its"):
                second.result(60)
            assert pool.submit(array.work, 1, 2).result(60)
        return run_parts(*arguments)

    assert run_share(array.path, 0, 2, listener, meanwhile)
    assert array.status().running == ()
    assert not verify(out, array.finish()).problems


@pytest.mark.parametrize(("index", "of"), [(-1, 2), (2, 2), (0, 0), (0, -1)])
def test_a_task_outside_the_array_is_refused(array, index, of):
    array.start()
    with pytest.raises(UsageError, match="--index" if of > 0 else "--of"):
        array.work(index, of)


def test_more_tasks_than_parts_leave_some_without_work(array):
    n_parts = len(array.start().parts)
    assert array.work(n_parts, n_parts + 1) == ()


def test_standard_input_has_no_array(make_config, listener, tmp_path):
    with pytest.raises(UsageError, match="standard input"):
        plan_array(make_config("-"), tmp_path / "array.plan", listener)


# Machines that do not see what the plan was made from


@pytest.fixture
def impatient(monkeypatch):
    """Do not wait for a probe that another machine may have written just now."""
    monkeypatch.setattr("tokmill.run.array_plan.PATIENCE_S", 0.0)


def probes_in(out: Path) -> list[str]:
    return [path.name for path in out.rglob(".array-proof*")]


def test_an_equal_plan_on_a_disk_of_its_own_is_seen(array, out, tmp_path, impatient, files_of):
    array.start()
    mine = array.path.read_bytes()
    out.rename(tmp_path / "shared")
    array.start()  # the same run in another directory
    array.path.chmod(0o600)
    array.path.write_bytes(mine)
    for act in (lambda: array.work(0, 2), array.finish):
        with pytest.raises(StateError, match="does not see the output directory") as caught:
            act()
        assert str(caught.value).endswith(
            "mount the same directory under this path on every node; if it is the same one, write "
            f"{array.path} again"
        )
    assert [name for name in files_of(out) if not name.startswith(".")] == ["plan.json"]
    shutil.rmtree(out)
    (tmp_path / "shared").rename(out)
    array.work(0, 1)
    array.finish()


def test_a_plan_that_is_written_again_keeps_its_only_probe(array, out, make_config, listener):
    array.start()
    (kept,) = probes_in(out)
    (out / ".array-proof-1234abcd").write_text("")  # of a write that was killed
    (out / f"{kept}-00000000").touch()  # of a task that was killed
    earlier = array.path.read_bytes()
    array.start()
    assert probes_in(out) == [kept]
    assert array.path.read_bytes() == earlier
    array.work(0, 1)
    assert probes_in(out) == [kept]
    array.finish()
    assert probes_in(out) == []


def test_a_finished_array_is_finished_again_without_its_probe(array, out, impatient):
    array.start()
    array.work(0, 1)
    manifest = array.finish()
    assert probes_in(out) == []
    assert array.finish() == manifest
    assert array.work(0, 2)  # makes nothing
    first = min(out.glob("train-*.bin"))
    first.unlink()
    with pytest.raises(StateError, match=r"if it is the same one, write .* again"):
        array.work(0, 2)
    array.start()
    assert array.work(0, 2)
    assert array.finish()["files"] == manifest["files"]
    assert not [note for note in verify(out, manifest).notes if "proof" in note]


def test_verify_accepts_a_probe(array, out):
    array.start()
    array.work(0, 1)
    manifest = array.finish()
    array.start()
    findings = verify(out, manifest)
    assert not findings.problems
    assert findings.notes == probes_in(out)


def test_a_whole_run_ends_an_array_and_a_stopped_one_does_not(array, out, make_config, listener):
    def stopped(*_):
        raise StateError("stopped")

    array.start()
    (kept,) = probes_in(out)
    with pytest.raises(StateError, match="stopped"):
        make_dataset(make_config(), listener, stopped)
    assert probes_in(out) == [kept]
    array.work(0, 2)
    run(make_config(), listener)
    assert probes_in(out) == []
    assert array.finish()["files"]


def test_another_version_on_a_machine_is_named(array, out):
    array.start()
    versions = json.loads(array.path.read_bytes())["versions"]
    forged(array.path, versions=versions | {"tokenizers": "0.0.1"})
    with pytest.raises(StateError, match=r"^node .*: has tokenizers .*, expected 0\.0\.1, as on "):
        array.work(0, 1)
    with pytest.raises(StateError, match=r"expected 0\.0\.1"):
        array.finish()


def test_an_output_that_a_machine_cannot_write_is_named(array, out, monkeypatch):
    def read_only(path, **_) -> None:
        raise PermissionError(13, "Read-only file system", str(path))

    array.start()
    monkeypatch.setattr(Path, "touch", read_only)
    with pytest.raises(StateError, match=r"cannot write into the output directory .*read-only"):
        array.work(0, 1)


def test_each_task_compares_the_first_input_of_its_own_share(array, sources, out):
    plan = array.start()
    own = next(i for i, p in enumerate(plan.parts) if p.slices[0].file.path == str(sources[1]))
    stat = sources[1].stat()
    os.utime(sources[1], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    n_parts = len(plan.parts)
    array.work(0, n_parts)
    with pytest.raises(
        StorageError, match=r"^node .*: the input .*/b\.jsonl is another file: ex"
    ) as e:
        array.work(own, n_parts)
    assert "every node must see the input of" in str(e.value)
    assert array.status().failed == (own,)
    assert array.status().errors[0].endswith("begin again with --overwrite")
    os.utime(sources[1], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    array.work(own, n_parts)
    assert not array.status().errors


def test_a_task_whose_parts_are_done_needs_no_input(array, sources):
    array.start()
    array.work(0, 1)
    for source in sources:
        source.unlink()
    assert array.work(0, 1)
    array.finish()


# Plans that do not fit


def forged(path: Path, **change: object) -> None:
    """Change values of the plan; its own sum is right again."""
    data = json.loads(path.read_bytes()) | change
    del data["sha256"]
    path.chmod(0o600)
    path.write_bytes(canonical_json({**data, "sha256": sha256_hex(canonical_json(data))}))


def test_a_file_that_is_no_plan_of_an_array_is_refused(array, sources, tmp_path, out):
    array.start()
    whole = array.path.read_bytes()
    array.path.chmod(0o600)
    for content in (b"", b"{}", b"[]", b"null", whole[:-9], whole.replace(b"1", b"2", 1)):
        array.path.write_bytes(content)
        with pytest.raises(UsageError, match="not the plan of an array, or damaged"):
            array.status()
    array.path.unlink()
    with pytest.raises(UsageError, match="no such file"):
        array.status()


@pytest.mark.parametrize("text", ["", "e30=", "eJwDAAAAAAE=", "é"])
def test_a_tokenizer_that_cannot_be_read_is_refused(array, text):
    array.start()
    forged(array.path, tokenizer=text)
    with pytest.raises(UsageError, match="its tokenizer cannot be read"):
        array.status()


@pytest.mark.parametrize(
    "key", ["version", "config", "labels", "is_named", "plan_fingerprint", "nonce"]
)
def test_a_key_of_another_kind_is_refused(array, key):
    array.start()
    forged(array.path, **{key: 1.5})
    with pytest.raises(UsageError, match="not the plan of an array, or damaged"):
        array.status()


@pytest.mark.parametrize("nonce", ["", "0", "../" * 11, "g" * 32, "a" * 33])
def test_a_nonce_that_is_none_names_no_file(array, nonce):
    array.start()
    forged(array.path, nonce=nonce)
    with pytest.raises(UsageError, match="not the plan of an array, or damaged"):
        array.finish()


def test_a_plan_of_another_version_is_refused(array):
    array.start()
    forged(array.path, tokmill_version="0.0.1")
    with pytest.raises(StateError, match=r"written by tokmill 0\.0\.1, installed here is"):
        array.work(0, 1)


def test_a_machine_without_the_output_directory_is_told_so(array, out):
    array.start()
    out.rename(out.parent / "elsewhere")
    with pytest.raises(StateError, match=r"this machine does not see the output directory"):
        array.work(0, 1)


def test_a_run_that_began_later_is_not_mixed_with_the_array(array, make_config, listener):
    array.start()
    run(make_config(part_bytes=900), listener, overwrite=True)
    with pytest.raises(StateError, match="another run began here after"):
        array.work(0, 1)


def test_an_engine_of_another_version_is_refused(array, out, monkeypatch):
    array.start()
    monkeypatch.setattr("tokmill.run.resume.engine_version", lambda *_: "9.9")
    with pytest.raises(StateError, match=r"installed is 9\.9"):
        array.work(0, 1)


def test_relative_paths_need_the_directory_of_the_plan(array, sources, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    array.start(Path("a.jsonl"))
    array.work(0, 2)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(UsageError, match=rf"relative to {tmp_path}, this is {Path.cwd()}"):
        array.work(1, 2)


def test_the_plan_is_begun_again_where_a_write_was_interrupted(array, make_config, listener, out):
    array.start()
    os.unlink(array.path)  # noqa: PTH108
    plan = array.start()
    assert array.status().missing == tuple(range(len(plan.parts)))


@pytest.mark.parametrize("name", ["parts/0000000.json", "train-0000000-0000.bin", "plan.json"])
def test_a_task_whose_work_is_removed_ends_with_an_error(array, out, listener, name):
    array.start()

    def execute(*of_run):
        yield from run_parts(*of_run)
        (out / name).unlink()

    with pytest.raises((StorageError, StateError), match=r"removed while it worked|another run"):
        run_share(array.path, 0, 2, listener, execute)


@pytest.mark.parametrize("labels", [[[1]], [{}], [1]])
def test_labels_that_are_no_text_are_damage(array, labels):
    array.start()
    forged(array.path, labels=labels)
    with pytest.raises(UsageError, match="not the plan of an array, or damaged"):
        array.work(0, 2)


def test_a_task_follows_no_link_in_place_of_a_folder(array, out, tmp_path):
    array.start()
    (out / "parts").rename(tmp_path / "elsewhere")
    (out / "parts").symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
    with pytest.raises(StateError, match=r"holds more than this dataset \(parts\)"):
        array.work(0, 2)
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == before


def test_absolute_paths_need_no_working_directory(array, out, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        array.start()
        array.work(0, 1)
        assert array.finish()["files"]
    finally:
        os.chdir(tmp_path)


def test_relative_paths_without_a_working_directory_are_one_line(array, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    array.start(dir="out")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StorageError, match="no such file or directory"):
        array.work(0, 1)
