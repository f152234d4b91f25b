"""Runs against a server that speaks S3 and fails: the same bytes, or one clear line."""

from __future__ import annotations

import threading

import pytest

from tests.stores.faulty_s3 import serving
from tokmill.dataset.verify_store import verify_store
from tokmill.errors import StateError, StorageError
from tokmill.executors.run import run
from tokmill.stores.lease import leased
from tokmill.stores.retry import Backoff
from tokmill.stores.store import CHUNK_BYTES, Store

pytest.importorskip("moto", reason="moto is not installed: make oracles does it")
pytest.importorskip("s3fs", reason="s3fs is not installed: pip install '.[s3]'")

QUICK = Backoff(attempts=6, first_s=0.01)


@pytest.fixture(scope="module")
def server():
    """A server with one bucket, and its faults."""
    with serving() as (faults, address), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        Store("s3://bucket/x")._fs.mkdir("bucket")
        yield faults


@pytest.fixture
def faults(server):
    """The faults of the server; none at the beginning and at the end."""
    yield server
    server.share, server.fails = 0.0, None


@pytest.fixture
def store(faults, tmp_path) -> Store:
    return Store(f"s3://bucket/{tmp_path.name}", QUICK)


def once(kind: str, method: str, ending: str):
    """Return the fault `kind` for the first request of a method for a path, then none."""
    left = [kind]
    return lambda asked, path: (
        left.pop() if left and asked == method and path.endswith(ending) else ""
    )


@pytest.mark.parametrize("kind", ["error", "lost", "cut"])
def test_a_request_that_fails_once_is_made_again(kind, store, faults, tmp_path):
    for name, act in (("PUT", lambda: store.create("a", b"1")), ("GET", lambda: store.read("a"))):
        before = faults.counts[kind]
        faults.fails = once(kind, name, "/a")
        assert act() == b"1"
        assert faults.counts[kind] == before + 1
    assert store.create("a", b"2") == b"1"


def test_large_files_are_uploaded_in_pieces_that_fail_alone(store, faults, tmp_path):
    content = bytes(range(256)) * (CHUNK_BYTES // 256 * 2) + b"rest"
    (tmp_path / "up").write_bytes(content)
    before, faults.fails = faults.counts["error"], once("error", "PUT", "/big")
    store.upload(tmp_path / "up", "big")
    assert faults.counts["error"] == before + 1
    assert b"".join(store.chunks("big", len(content))) == content


@pytest.mark.parametrize("kind", ["lost", "cut"])
def test_a_large_file_whose_last_answer_is_lost_is_there(kind, store, faults, tmp_path):
    """The server forgets an upload once it is complete, and says so at the repeat."""
    content = bytes(range(256)) * (CHUNK_BYTES // 256 * 2) + b"rest"
    (tmp_path / "up").write_bytes(content)
    kinds = ["", kind, "forgotten"]  # of the requests that begin an upload, and complete it

    def next_kind(method: str, path: str) -> str:
        is_asked = method == "POST" and path.endswith("/big") and kinds
        return kinds.pop(0) if is_asked else ""

    before, faults.fails = faults.counts.copy(), next_kind
    store.upload(tmp_path / "up", "big")
    assert faults.counts["forgotten"] == before["forgotten"] + 1
    assert faults.counts[kind] == before[kind] + 1
    assert b"".join(store.chunks("big", len(content))) == content


def test_a_server_that_always_fails_ends_in_one_line(store, faults):
    faults.share = 1.0
    with pytest.raises(StorageError, match=rf"^{store.url}/a: failed 2 times, last with: OSError"):
        Store(store.url, Backoff(attempts=2, first_s=0.0)).read("a")


def test_a_bucket_that_is_not_there_is_named(
    faults, configure, sources, listener, monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(StorageError, match=r"^s3://nobody/x.*: no such bucket"):
        run(configure("s3://nobody/x", *sources), listener)


def test_two_runs_that_begin_at_once_are_kept_apart(store, tmp_path):
    """Both may be refused, but never none."""
    barrier, held, refused = threading.Barrier(2), [], []

    def begin(number: int) -> None:
        barrier.wait()
        try:
            with leased(store, tmp_path / f"note-{number}"):
                held.append(number)
                barrier.wait(20)
        except StateError:
            refused.append(number)
            barrier.wait(20)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) <= 1
    assert sorted(held + refused) == [0, 1]
    assert store.names(".lock") == []


def test_a_run_among_faults_writes_the_same_objects(
    store, faults, out, make_config, listener, monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(make_config(), listener)
    before, faults.share = faults.counts.total(), 0.05
    run(make_config(dir=store.url), listener)
    faults.share = 0.0
    assert faults.counts.total() > before
    assert sum(faults.counts[kind] for kind in ("error", "lost", "cut")) > 0
    assert not verify_store(store).problems
    for name in store.sizes():
        if name != "manifest.json":
            assert store.read(name) == (out / name).read_bytes()


def test_input_among_faults_gives_the_same_bytes(
    store, faults, out, make_config, sources, listener, tmp_path
):
    for path in sources:
        store.write(path.name, path.read_bytes())
    run(make_config(), listener)
    before, faults.share = faults.counts.total(), 0.1
    run(make_config(store.url, dir=str(tmp_path / "remote")), listener)
    faults.share = 0.0
    assert faults.counts.total() > before
    for path in out.glob("*.bin"):
        assert (tmp_path / "remote" / path.name).read_bytes() == path.read_bytes()
