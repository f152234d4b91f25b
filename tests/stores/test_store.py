"""Objects by relative name, in a store of this process and on a disk."""

from __future__ import annotations

import pytest

from tokmill.errors import StorageError, UsageError
from tokmill.stores.retry import Backoff
from tokmill.stores.staging import staging_directory
from tokmill.stores.store import CHUNK_BYTES, Store

pytest.importorskip("fsspec")


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path) -> Store:
    if request.param == "memory":
        return Store(f"memory://bucket/{tmp_path.name}/x", Backoff(attempts=2, first_s=0.0))
    return Store(f"file://{tmp_path}/store", Backoff(attempts=2, first_s=0.0))


def test_objects_are_written_listed_read_and_removed(store):
    assert store.sizes() == {}
    assert store.names(".lock") == []
    store.write("b", b"123")
    store.write("parts/a", b"1")
    store.write("b", b"12")
    assert store.sizes() == {"b": 2, "parts/a": 1}
    assert store.names("parts") == ["parts/a"]
    assert store.read("b") == b"12"
    assert store.size("b") == 2
    assert store.modified("b") <= store.modified("b")
    store.remove("b")
    store.remove("b")
    assert store.size("b") is None
    with pytest.raises(FileNotFoundError):
        store.read("b")


def test_the_first_of_two_creations_wins(store):
    assert store.create("a", b"1") == b"1"
    assert store.create("a", b"2") == b"1"
    with pytest.raises(FileExistsError):
        store.write_new("a", b"3")


def test_files_are_uploaded_and_downloaded(store, tmp_path):
    content = b"0123456789" * (CHUNK_BYTES // 10) + b"and the rest"
    (tmp_path / "up").write_bytes(content)
    store.upload(tmp_path / "up", "folder/a")
    chunks = list(store.chunks("folder/a", len(content)))
    assert len(chunks) == 2
    store.download("folder/a", len(content), tmp_path / "down")
    assert b"".join(chunks) == content == (tmp_path / "down").read_bytes()


class Forgets:
    """Uploads whose answers are lost: at the repeat, the store no longer knows the upload.

    `stored`: what stands there after each try; None: nothing.
    """

    def __init__(self, store: Store, stored: list[bytes | None]) -> None:
        self.n_tries = 0
        self._store, self._stored = store, stored

    def __call__(self, path: str, target: str, **_: object) -> None:
        content = self._stored[self.n_tries]
        self.n_tries += 1
        if content is not None:
            self._store._fs.pipe_file(target, content)
        raise FileNotFoundError("NoSuchUpload")


@pytest.mark.parametrize(
    ("stored", "n_tries"),
    [([b"12345"], 1), ([None, b"12345"], 2), ([b"xxxxx", b"12345"], 2), ([b"1", b"12345"], 2)],
)
def test_an_upload_whose_answer_was_lost_is_found_by_its_bytes(
    store, tmp_path, monkeypatch, stored, n_tries
):
    (tmp_path / "up").write_bytes(b"12345")
    store.write("seen", b"")
    put = Forgets(store, stored)
    monkeypatch.setattr(store._fs, "put_file", put)
    store.upload(tmp_path / "up", "a")
    assert put.n_tries == n_tries
    assert store.read("a") == b"12345"


@pytest.mark.parametrize("stored", [None, b"xxxxx"])
def test_an_upload_that_is_never_there_is_one_line(store, tmp_path, monkeypatch, stored):
    (tmp_path / "up").write_bytes(b"12345")
    store.write("seen", b"")
    put = Forgets(store, [stored] * 2)
    monkeypatch.setattr(store._fs, "put_file", put)
    with pytest.raises(StorageError, match=r"/a: no such bucket or folder .*: make it first"):
        store.upload(tmp_path / "up", "a")
    assert put.n_tries == 2


def test_a_file_that_is_gone_is_not_a_missing_bucket(store, tmp_path):
    with pytest.raises(StorageError, match=r"/gone: no such file"):
        store.upload(tmp_path / "gone", "a")


def test_an_object_that_is_shorter_than_said_is_an_error(store):
    store.write("a", b"123")
    with pytest.raises(StorageError, match=r"/a: failed 2 times, .*3 of 4 bytes came"):
        list(store.chunks("a", 4))


def test_a_place_that_nobody_can_write_to_is_refused():
    with pytest.raises(UsageError, match=r"^nothing://a/b: cannot be opened .*nothing"):
        Store("nothing://me:secret@a/b")
    with pytest.raises(UsageError, match="expected a bucket and a name"):
        Store("memory://")


def test_the_staging_directory_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store("memory://bucket/x")
    first = staging_directory(store)
    assert first == staging_directory(Store("memory://bucket/x/"))
    assert first != staging_directory(Store("memory://bucket/y"))
    assert first.parent.stat().st_mode & 0o777 == 0o700
    first.parent.chmod(0o755)
    with pytest.raises(StorageError, match="expected a private directory of this user"):
        staging_directory(store)
