"""An object is made by one writer alone, or the file system is refused."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time

import pytest

from tokmill.errors import StorageError
from tokmill.stores.file_system import create_object, has_own_create, open_file_system
from tokmill.stores.lease import leased
from tokmill.stores.store import Store

fsspec = pytest.importorskip("fsspec")

ROUNDS, WRITERS = 200, 3


class LooksFirst(fsspec.get_filesystem_class("memory")):
    """Creates as fsspec does for every file system that has no way of its own."""

    protocol = "looksfirst"
    pipe_file = fsspec.AbstractFileSystem.pipe_file


@pytest.fixture
def looks_first(tmp_path):
    """The URL of a place in such a file system."""
    fsspec.register_implementation("looksfirst", LooksFirst, clobber=True)
    return f"looksfirst://bucket/{tmp_path.name}"


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path) -> str:
    return f"{request.param}://{tmp_path}/store"


def test_one_of_many_writers_wins_and_readers_see_whole_objects(url):
    """Every writer reads at once what stands there: it must be whole, and the winner's."""
    store = Store(url)
    barrier = threading.Barrier(WRITERS)
    found: list[list[bytes]] = [[] for _ in range(WRITERS)]
    wins = [0] * ROUNDS

    def write(number: int) -> None:
        data = bytes([number]) * 100_000
        for i in range(ROUNDS):
            barrier.wait(20)
            try:
                store.write_new(f"folder-{i}/object", data)
                wins[i] += 1
            except FileExistsError:
                pass
            found[number].append(store.read(f"folder-{i}/object"))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [1] * ROUNDS
    assert all(len(seen) == ROUNDS for seen in found)
    for answers in zip(*found, strict=True):
        assert len(set(answers)) == 1
        assert len(answers[0]) == 100_000
    assert len(store.sizes()) == ROUNDS  # and nothing else


def test_a_file_system_that_looks_first_is_read_and_no_output(looks_first, tmp_path):
    store = Store(looks_first)
    store.write("a", b"1")
    assert store.read("a") == b"1"
    with pytest.raises(
        StorageError,
        match=rf"^{looks_first}: this store has no conditional writes \(.*LooksFirst looks first",
    ):
        store.write_new("b", b"1")
    with (
        pytest.raises(StorageError, match=r"has no conditional writes .*: write to a directory"),
        leased(store, tmp_path / "note"),
    ):
        pytest.fail("two runs could not be kept apart")
    assert store.sizes() == {"a": 1}


@pytest.mark.parametrize("name", ["ftp", "dir", "generic", "reference", "simplecache", "filecache"])
def test_classes_without_a_way_of_their_own_are_known(name):
    kind = fsspec.get_filesystem_class(name)
    assert not has_own_create(kind) or name == "dir"  # which hands all to another one


def test_the_hub_is_input_only():
    kind = pytest.importorskip("huggingface_hub").HfFileSystem
    assert not has_own_create(kind)


@pytest.mark.parametrize(
    ("package", "name"),
    [("s3fs", "S3FileSystem"), ("gcsfs", "GCSFileSystem"), ("adlfs", "AzureBlobFileSystem")],
)
def test_stores_with_conditional_writes_are_known(package, name):
    assert has_own_create(getattr(pytest.importorskip(package), name))


def test_a_writer_in_memory_looks_only_when_another_one_has_written(monkeypatch):
    class SlowToAnswer(dict):
        def __contains__(self, name: object) -> bool:
            found = super().__contains__(name)
            time.sleep(0.005)  # the other writer looks meanwhile, if it may
            return found

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "store", SlowToAnswer())
    store, wins = Store("memory://bucket/slow"), []

    def write() -> None:
        with contextlib.suppress(FileExistsError):
            store.write_new("object", b"1")
            wins.append(1)

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [1]


@pytest.mark.parametrize("inner", ["memory", "file"])
def test_the_file_system_inside_a_wrapper_decides(inner, tmp_path):
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from fsspec.implementations.dirfs import DirFileSystem

    fs, root = open_file_system(f"{inner}://{tmp_path}/store")
    wrapped = DirFileSystem(root, AsyncFileSystemWrapper(fs, asynchronous=False))
    create_object(wrapped, "folder/a", b"1")
    with pytest.raises(FileExistsError):
        create_object(wrapped, "folder/a", b"2")
    assert fs.cat_file(f"{root}/folder/a") == b"1"
    with pytest.raises(NotImplementedError, match="LooksFirst"):
        create_object(DirFileSystem("/a", LooksFirst()), "b", b"1")


def test_a_disk_without_hard_links_is_refused_and_left_as_it_was(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=r"no conditional writes .*without hard links"):
        Store(f"file://{tmp_path}").write_new("a", b"1")
    assert list(tmp_path.iterdir()) == []
