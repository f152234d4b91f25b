"""An array whose dataset is in an object store: the bytes of a whole run in a directory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokmill.api.jobs import verify_dataset
from tokmill.dataset.layout import PARTS, part_name
from tokmill.errors import StateError, StorageError
from tokmill.executors.run import run, run_parts
from tokmill.run.array import array_status, finish_array, plan_array, run_share
from tokmill.run.array_plan import read_array_plan
from tokmill.run.array_status import failure_name
from tokmill.settings.sft import SftSettings
from tokmill.stores.lease import leased
from tokmill.stores.staging import staging_directory
from tokmill.stores.store import Store

pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("private_temporary_files")

SFT = Path(__file__).parents[2] / "data_samples" / "sft"


@pytest.fixture
def array(tmp_path, listener):
    """The steps of an array as functions."""
    path = tmp_path / "array.plan"
    return SimpleNamespace(
        start=lambda config, **how: plan_array(config, path, listener, **how),
        work=lambda index, of: run_share(path, index, of, listener, run_parts),
        status=lambda: array_status(path),
        finish=lambda: finish_array(path, listener),
    )


def objects(store: Store) -> dict[str, bytes]:
    return {name: store.read(name) for name in store.sizes() if name != "manifest.json"}


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in (".lock", "manifest.json")
    }


def test_an_array_makes_the_objects_of_a_whole_run(
    url, store, out, array, make_config, listener, tmp_path
):
    whole = run(make_config(), listener)
    plan = array.start(make_config(dir=url))
    for index in (2, 0, 1):
        assert array.status().missing
        records = array.work(index, 3)
        assert [record.part for record in records] == list(range(len(plan.parts)))[index::3]
    assert array.status().done == tuple(range(len(plan.parts)))
    assert array.work(0, 3)  # all done: nothing is made again
    manifest = array.finish()
    assert objects(store) == files(out)
    outside = ("run", "sha256", "config")
    for key in whole.keys() - set(outside):
        assert manifest[key] == whole[key]
    assert not verify_dataset(Path(url)).problems
    assert array.status().is_finished
    assert array.finish() == manifest
    assert [path.name for path in staging_directory(store).iterdir()] == [".lock"]


def test_the_status_names_the_url(url, array, make_config):
    array.start(make_config(dir=f"{url}/"))
    assert array.status().directory == url
    with pytest.raises(StateError, match=rf"^{url}: "):
        array.finish()


def probes_in(store: Store) -> list[str]:
    return [name for name in store.sizes() if name.startswith(".array-proofs/")]


def test_other_objects_under_the_same_url_are_seen(url, store, array, make_config):
    array.start(make_config(dir=url))
    (probe,) = probes_in(store)
    content = store.read(probe)
    for wrong in (b"another", None):
        store.remove(probe)
        if wrong is not None:
            store.write(probe, wrong)
        for act in (lambda: array.work(0, 1), array.finish):
            with pytest.raises(StateError, match=rf"does not see the objects of .* in {url}: give"):
                act()
    assert not store.names(PARTS)
    store.write(probe, content)
    assert array.work(0, 1)
    assert probes_in(store) == [probe]
    manifest = array.finish()
    assert not probes_in(store)
    assert array.finish() == manifest


def test_a_plan_that_is_written_again_keeps_its_only_probe(url, store, array, make_config):
    array.start(make_config(dir=url))
    kept = probes_in(store)
    store.write(".array-proofs/12345678", b"")
    array.start(make_config(dir=url))
    assert probes_in(store) == kept


def test_a_whole_run_removes_the_probe_of_an_array(url, store, array, make_config, listener):
    array.start(make_config(dir=url))
    assert len(store.names(".array-proofs")) == 1
    run(make_config(dir=url), listener)
    assert store.names(".array-proofs") == []


def test_a_share_with_other_input_is_refused_before_it_is_read(
    url, store, array, make_config, sources
):
    array.start(make_config(dir=url))
    sources[0].write_bytes(sources[0].read_bytes() + b"\n")
    with pytest.raises(StorageError, match=r"^node .*a\.jsonl is another file"):
        array.work(0, 1)
    assert array.status().failed
    assert not [name for name in store.names(PARTS) if not name.startswith(f"{PARTS}/.")]


def test_packs_are_made_by_finish(url, store, out, array, configure, listener):
    settings = {
        "sft": SftSettings(schema="mixed", template="tokenizer", packing=2000, packed_rows=True),
        "path": str(SFT.parent / "tokenizer"), "max_tokens": 2000,
        "part_bytes": 9000, "max_reject_fraction": 1.0,
    }  # fmt: skip
    run(configure(out, SFT / "chats.jsonl", **settings), listener)
    array.start(configure(url, SFT / "chats.jsonl", **settings))
    array.work(0, 1)
    assert "packs" in array.finish()
    assert objects(store) == files(out)


def test_a_task_that_failed_is_named_and_continues(
    url, store, out, array, make_config, listener, monkeypatch
):
    run(make_config(), listener)
    plan = array.start(make_config(dir=url))
    upload = Store.upload

    def failing(self: Store, path: Path, name: str) -> None:
        if name.startswith("train-0000002"):
            raise StorageError("the network is gone")
        upload(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "upload", failing)
        with pytest.raises(StorageError, match="the network is gone"):
            array.work(0, 1)
    found = array.status()
    assert found.done == (0, 1)
    assert found.failed == tuple(range(2, len(plan.parts)))
    assert found.errors[0].startswith("task 0 of 1 on ")
    assert found.errors[0].endswith(": the network is gone")
    with pytest.raises(StateError, match=rf"^{url}: .* are not done: 2, 3, .*the network is gone"):
        array.finish()
    array.work(1, 2)
    array.work(0, 2)
    array.finish()
    assert objects(store) == files(out)


def test_a_part_whose_files_are_gone_is_made_again(url, store, out, array, make_config, listener):
    run(make_config(), listener)
    array.start(make_config(dir=url))
    array.work(0, 1)
    store.remove("train-0000001-0000.bin")
    assert array.status().missing == (1,)
    assert f"{PARTS}/{part_name(1)}" in store.sizes()  # a look changes nothing
    with pytest.raises(StateError, match=r"1 of .* parts is not done: 1"):
        array.finish()
    array.work(0, 1)
    array.finish()
    assert objects(store) == files(out)


def test_nobody_else_begins_while_a_task_works(url, store, array, make_config, listener, tmp_path):
    array.start(make_config(dir=url))
    with leased(Store(f"{url}/.tasks/1-of-3"), tmp_path / "note", lease_s=0.4):
        held = array.status()
        assert held.running == tuple(range(held.parts))[1::3]
        array.work(0, 3)  # another one may
        for act in (
            lambda: array.work(1, 3),
            lambda: array.start(make_config(dir=url)),
            lambda: run(make_config(dir=url), listener),
        ):
            with pytest.raises(StateError, match=r"another run is writing there \(process \d+ on"):
                act()
        with pytest.raises(StateError, match="are not done"):
            array.finish()
    array.work(1, 3)
    array.work(2, 3)
    with (
        leased(Store(f"{url}/.tasks/1-of-3"), tmp_path / "note"),
        pytest.raises(StateError, match="another run is writing there"),
    ):
        array.finish()
    with (
        leased(store, tmp_path / "note"),
        pytest.raises(StateError, match="another run is writing there"),
    ):
        array.work(1, 3)
    assert array.finish()["files"]


def test_tasks_of_one_machine_work_at_once(url, store, out, array, make_config, listener):
    run(make_config(), listener)
    array.start(make_config(dir=url))
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            array.work(index, 3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    array.finish()
    assert objects(store) == files(out)


@pytest.fixture
def overtake(url, store, make_config, sources, listener, tmp_path, monkeypatch):
    """Let another machine's run come and go, once the leases of this one have expired."""
    later: dict[str, bytes] = {}

    def come_and_go() -> None:
        if (tmp_path / "another machine").exists():
            return  # this is that run
        (tmp_path / "another machine").mkdir()
        for name in (*store.names(".lock"), *store.names(".tasks")):
            store.remove(name)
        with monkeypatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(tmp_path / "another machine"))
            run(make_config(sources[0], dir=url, val_fraction=0.5), listener, overwrite=True)
        later.update(objects(store))

    return SimpleNamespace(come_and_go=come_and_go, later=later)


@pytest.mark.parametrize("moment", ["before its upload", "during its upload"])
def test_a_task_that_stood_still_writes_nothing_into_the_dataset_of_a_later_run(
    url, store, array, make_config, listener, tmp_path, monkeypatch, overtake, moment
):
    array.start(make_config(dir=url))
    upload = Store.upload

    def uploaded(self: Store, path: Path, name: str) -> None:
        upload(self, path, name)
        overtake.come_and_go()

    def report(progress: object) -> None:
        if moment == "before its upload":
            overtake.come_and_go()
        else:
            monkeypatch.setattr(Store, "upload", uploaded)

    with pytest.raises(StateError, match=r"plan\.json: was replaced or removed since this run"):
        run_share(
            tmp_path / "array.plan", 0, 1, listener,
            lambda spec, parts, _, *rest: run_parts(spec, parts, report, *rest),
        )  # fmt: skip
    assert objects(store) == overtake.later
    assert not verify_dataset(Path(url)).problems


def test_a_run_that_stood_still_removes_nothing_of_a_later_run(
    url, store, make_config, listener, monkeypatch, overtake
):
    run(make_config(dir=url), listener)
    remove = Store.remove

    def removed(self: Store, name: str) -> None:
        remove(self, name)
        if name.startswith("train-") and not overtake.later:
            overtake.come_and_go()
            monkeypatch.setattr(time, "clock_gettime", lambda clock: 1e12)

    monkeypatch.setattr(Store, "remove", removed)
    with pytest.raises(StateError, match="another run took over"):
        run(make_config(dir=url), listener, overwrite=True)
    assert objects(store) == overtake.later
    assert not verify_dataset(Path(url)).problems


def test_the_same_task_works_once_on_a_machine(url, array, make_config, listener, tmp_path):
    array.start(make_config(dir=url))

    def again(*of_run: object) -> object:
        with pytest.raises(StateError, match=r"out: task 0 of 2 is working on this machine"):
            array.work(0, 2)
        array.work(1, 2)
        return run_parts(*of_run)

    run_share(tmp_path / "array.plan", 0, 2, listener, again)
    assert not array.status().undone


@pytest.mark.parametrize("place", ["directory", "store"])
def test_a_plan_is_compared_again_once_nobody_else_can_begin(
    url, out, array, make_config, sources, tmp_path, place
):
    output = url if place == "store" else str(out)
    array.start(make_config(dir=output))
    read = read_array_plan(tmp_path / "array.plan")
    read.check_current()
    array.start(make_config(sources[0], dir=output), overwrite=True)
    with pytest.raises(StateError, match="another run"):
        read.check_current()


def test_a_failure_that_is_taken_back_during_a_look_is_none(url, array, make_config, monkeypatch):
    array.start(make_config(dir=url))
    sizes, note = Store.sizes, f"{PARTS}/{failure_name(0, 1)}"
    monkeypatch.setattr(Store, "sizes", lambda store: {**sizes(store), note: 3})
    found = array.status()
    assert (found.failed, found.errors) == ((), ())


def test_another_plan_in_the_store_is_refused(url, store, array, make_config, sources):
    array.start(make_config(dir=url))
    array.start(make_config(sources[0], dir=url), overwrite=True)
    array.work(0, 1)
    array.finish()
    with pytest.raises(StateError, match=r"holds another run|is not the one|other"):
        array.start(make_config(dir=url))
    store.remove("plan.json")
    with pytest.raises(StateError, match=rf"^{url}: has no plan.json"):
        array.status()


def test_a_task_whose_work_is_removed_ends_with_an_error(
    url, store, array, make_config, listener, tmp_path
):
    array.start(make_config(dir=url))

    def execute(*of_run: object) -> object:
        yield from run_parts(*of_run)
        store.remove(f"{PARTS}/{part_name(0)}")

    with pytest.raises(StorageError, match=r"out: 1 part of this task was removed .* of them 0"):
        run_share(tmp_path / "array.plan", 0, 2, listener, execute)
    assert array.status().failed


def test_a_whole_run_removes_what_an_array_left(url, store, array, make_config, listener):
    array.start(make_config(dir=url))
    store.write(f".tasks/0-of-2/.lock/{1:010d}", b"{}")
    store.write(f"{PARTS}/{failure_name(1, 2)}", b"{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokmill.stores.lease.LEASE_S", -1.0)  # of a task that was killed
        run(make_config(dir=url), listener)
    assert not [name for name in store.sizes() if "/." in f"/{name}"]
