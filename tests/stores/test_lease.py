"""One run at a time holds the lease of a place in a store."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.stores.lease import FOLDER, leased
from tokmill.stores.store import Store

pytest.importorskip("fsspec")

FIRST, SECOND = f"{FOLDER}/{1:010d}", f"{FOLDER}/{2:010d}"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(f"memory://bucket/{tmp_path.name}/lease")


def other(pid: int = 7) -> bytes:
    return json.dumps({"host": "far away", "pid": pid, "key": "k"}).encode()


def test_a_lease_is_held_by_one_and_leaves_nothing(store, tmp_path):
    with leased(store, tmp_path / "note") as lease:
        lease.check()
        assert store.names(FOLDER) == [FIRST]
        with (
            pytest.raises(StateError, match=r"another run is writing there .*its lease ends in"),
            leased(store, tmp_path / "other note"),
        ):
            pytest.fail("two runs hold one lease")
        assert store.names(FOLDER) == [FIRST]
    assert store.sizes() == {}
    with leased(store, tmp_path / "note"):
        assert store.names(FOLDER) == [FIRST]


def test_an_expired_lease_is_taken_over(store, tmp_path):
    store.write(FIRST, other())
    with (
        pytest.raises(StateError, match=r"process 7 on 'far away', seen \d+ s ago"),
        leased(store, tmp_path / "note"),
    ):
        pytest.fail("the other lease has not expired")
    with leased(store, tmp_path / "note", lease_s=-1.0):
        assert store.names(FOLDER) == [SECOND]


def test_a_lease_of_a_killed_run_of_this_machine_is_taken_over_at_once(store, tmp_path):
    with ExitStack() as killed:
        killed.enter_context(leased(store, tmp_path / "note"))
        with leased(store, tmp_path / "note") as lease:
            assert store.names(FOLDER) == [SECOND]
            lease.check()


def test_a_run_that_lost_its_lease_stops(store, tmp_path):
    with leased(store, tmp_path / "note", lease_s=-1.0) as lease:
        store.write(SECOND, other())
        with pytest.raises(StateError, match="another run took over"):
            lease.check()
    assert store.names(FOLDER) == [SECOND]


def test_a_run_that_stood_still_does_not_take_the_lease_of_a_later_one(
    store, tmp_path, monkeypatch
):
    """Another run came and went meanwhile, and a third one has the number of the first."""
    with leased(store, tmp_path / "note") as lease:
        store.write(FIRST, other())
        with monkeypatch.context() as patch:
            patch.setattr(time, "clock_gettime", lambda clock: 1e12)
            with pytest.raises(StateError, match="another run took over"):
                lease.check()
    assert store.read(FIRST) == other()


def test_a_lease_that_is_gone_is_lost(store, tmp_path, monkeypatch):
    with leased(store, tmp_path / "note") as lease:
        store.remove(FIRST)
        monkeypatch.setattr(time, "clock_gettime", lambda clock: 1e12)
        with pytest.raises(StateError, match="another run took over"):
            lease.check()
    assert store.sizes() == {}


def test_the_end_of_a_run_does_not_wait_for_a_store_that_is_gone(store, tmp_path, monkeypatch):
    asked = []

    def gone(path: str, *args: object, **options: object) -> None:
        asked.append(path)
        raise ConnectionError

    with leased(store, tmp_path / "note"):
        monkeypatch.setattr(store._fs, "cat_file", gone)
    assert 1 <= len(asked) <= 2
    assert store.names(FOLDER) == [FIRST]
    monkeypatch.undo()
    with leased(store, tmp_path / "note"):  # the same machine need not wait for its end
        assert store.names(FOLDER) == [SECOND]


def test_renewals_at_the_same_moment_do_not_lose_a_lease(tmp_path):
    """A file that is written again is empty for a moment."""
    store = Store(f"file://{tmp_path}/place")
    with leased(store, tmp_path / "note", lease_s=-1.0) as lease:
        for _ in range(300):
            lease.check()


def test_a_name_with_a_question_mark_is_renewed_too(tmp_path):
    store = Store(f"file://{tmp_path}/a?b")
    with leased(store, tmp_path / "note", lease_s=-1.0) as lease:
        lease.check()
        assert store.names(FOLDER) == [FIRST]


def test_probes_of_processes_that_were_killed_are_removed(store, tmp_path):
    probe = f"{FOLDER}/probe-0"
    store.write(probe, b"1")
    with leased(store, tmp_path / "note"):
        assert store.names(FOLDER) == [FIRST, probe]  # somebody may be looking at it
    with leased(store, tmp_path / "note", lease_s=-1.0):
        assert store.names(FOLDER) == [FIRST]


@pytest.mark.parametrize("end", ["released", "expired"])
def test_who_waits_begins_when_the_lease_ends(store, tmp_path, monkeypatch, end):
    store.write(FIRST, other())
    monkeypatch.setattr("tokmill.stores.lease._LOOK_S", 0.0)
    said: list[str] = []

    def told(line: str) -> None:
        said.append(line)
        if end == "released":
            store.remove(FIRST)
        else:
            monkeypatch.setattr(time, "clock_gettime", lambda clock: 1e9)

    with leased(store, tmp_path / "note", wait=told) as lease:
        lease.check()
    assert len(said) == 1
    assert said[0].endswith("; this one waits until then")
    assert "process 7 on 'far away'" in said[0]


def test_who_waits_is_refused_when_the_lease_is_renewed(store, tmp_path, monkeypatch):
    store.write(FIRST, other())
    monkeypatch.setattr("tokmill.stores.lease._LOOK_S", 0.0)
    with (
        pytest.raises(StateError, match="process 7 on 'far away'"),
        leased(store, tmp_path / "note", wait=lambda line: store.write(FIRST, other())),
    ):
        pytest.fail("the other run works")


def test_a_lease_is_renewed(store, tmp_path):
    with leased(store, tmp_path / "note", lease_s=0.02):
        before = store.modified(FIRST)
        while store.modified(FIRST) == before:
            pass


def test_a_damaged_lease_holds_until_it_expires(store, tmp_path):
    store.write(FIRST, b"[]")
    with pytest.raises(StateError, match="unknown"), leased(store, tmp_path / "note"):
        pytest.fail("a lease that nobody can read was ignored")


def test_a_store_without_conditional_writes_or_time_is_refused(store, tmp_path):
    def replace(path: str, data: bytes, mode: str = "") -> None:
        type(store._fs).pipe_file(store._fs, path, data)

    def no_time(path: str) -> None:
        raise NotImplementedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._fs, "pipe_file", replace)
        with pytest.raises(StorageError, match="no conditional"), leased(store, tmp_path / "note"):
            pytest.fail("two runs could not be kept apart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._fs, "modified", no_time)
        with pytest.raises(StorageError, match="when it wrote"), leased(store, tmp_path / "note"):
            pytest.fail("two runs could not be kept apart")
    assert store.sizes() == {}
