"""One run at a time holds the lease of a place in a store."""

from __future__ import annotations

import json
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
