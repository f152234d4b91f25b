"""A dataset in an object store has the bytes of one in a directory, whatever happened before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokmill.api.jobs import finished_manifest, verify_dataset
from tokmill.dataset.verify_store import verify_store
from tokmill.errors import StateError, StorageError, UsageError, VerifyError
from tokmill.executors.run import run, run_parts
from tokmill.run.make_dataset import make_dataset
from tokmill.run.staging_lock import clear_staging, locked_staging
from tokmill.settings.sft import SftSettings
from tokmill.stores.staging import staging_directory
from tokmill.stores.store import Store

pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("private_temporary_files")

SFT = Path(__file__).parents[2] / "data_samples" / "sft"


@pytest.fixture
def objects(store):
    """Return the objects of the dataset by name, without the manifest."""

    def read() -> dict[str, bytes]:
        return {name: store.read(name) for name in store.sizes() if name != "manifest.json"}

    return read


@pytest.fixture
def in_directory(out, make_config, listener):
    """The files of the same dataset in a directory, without the manifest; and that one."""
    manifest = run(make_config(), listener)
    files = {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name not in (".lock", "manifest.json")
    }
    return files, manifest


def comparable(manifest: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in manifest.items() if k not in ("run", "sha256", "config")}


def test_the_objects_are_the_files_of_a_directory(
    url, store, objects, in_directory, make_config, listener, tmp_path
):
    files, local = in_directory
    manifest = run(make_config(dir=url), listener)
    assert objects() == files
    assert comparable(manifest) == comparable(local)
    assert manifest["config"]["output"]["dir"] == url
    assert json.loads(store.read("manifest.json")) == manifest
    assert [path.name for path in staging_directory(store).iterdir()] == [".lock"]
    found = verify_dataset(Path(url))
    assert found.n_files == len(manifest["files"]) > 10
    assert not found.problems
    assert finished_manifest(Path(url)) == manifest
    assert run(make_config(dir=url), listener) == manifest  # complete: nothing is made again


def test_packs_are_those_of_a_directory(url, objects, out, configure, listener, files_of):
    settings = {
        "sft": SftSettings(schema="mixed", template="tokenizer", packing=2000, packed_rows=True),
        "path": str(SFT.parent / "tokenizer"), "max_tokens": 2000,
        "part_bytes": 2000, "max_reject_fraction": 1.0,
    }  # fmt: skip
    sources = [SFT / "chats.jsonl", SFT / "prompt_chat.jsonl"]
    local = run(configure(out, *sources, **settings), listener)
    assert comparable(run(configure(url, *sources, **settings), listener)) == comparable(local)
    for name, content in objects().items():
        assert (out / name).read_bytes() == content
    assert {"packs-train-rows.bin", "packed-train-0000.bin"} <= set(objects())


@pytest.mark.parametrize(
    "lost",
    [
        ("manifest.json",),
        ("manifest.json", "parts/0000001.json"),
        ("manifest.json", "parts/0000000.json", "train-0000002-0000.bin"),
        ("train-0000001-0000.idx",),
        ("parts/0000001.json",),
    ],
    ids=len,
)
def test_what_is_missing_is_made_again(lost, url, store, objects, make_config, listener):
    run(make_config(dir=url), listener)
    whole = objects()
    for name in lost:
        store.remove(name)
    run(make_config(dir=url), listener)
    assert objects() == whole
    assert not verify_store(store).problems


def test_a_cut_object_is_made_again(url, store, objects, make_config, listener):
    run(make_config(dir=url), listener)
    whole = objects()
    store.write("train-0000001-0000.bin", b"cut")
    problem = "train-0000001-0000.bin: 3 bytes, the manifest says"
    assert problem in verify_store(store).problems[0]
    run(make_config(dir=url), listener)
    assert objects() == whole


@pytest.mark.parametrize("name", ["plan.json", "parts/0000002.json", "manifest.json"])
def test_a_run_that_stopped_at_any_object_continues(
    name, url, store, objects, in_directory, make_config, listener
):
    """Uploads end with an error at one object; all before it are kept."""
    files, _ = in_directory

    def no_more(write, path, *rest, **options):
        if any(str(one).endswith(name) for one in (path, *rest)):
            raise PermissionError("enough")
        return write(path, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("pipe_file", "put_file"):
            write = getattr(store._fs, method)
            patch.setattr(store._fs, method, lambda *a, w=write, **o: no_more(w, *a, **o))
        with pytest.raises(Exception, match="the store refused"):
            run(make_config(dir=url), listener)
    assert name not in store.sizes()
    with pytest.raises((StateError, UsageError), match=r"not finished|not a tokmill"):
        finished_manifest(Path(url))
    run(make_config(dir=url), listener)
    assert objects() == files


def test_another_run_or_other_objects_are_refused(url, store, objects, make_config, listener):
    store.write("mine.txt", b"1")
    with pytest.raises(StateError, match=r"holds objects but no plan of a run \(mine.txt\)"):
        run(make_config(dir=url), listener)
    store.remove("mine.txt")
    run(make_config(dir=url), listener)
    whole = objects()
    with pytest.raises(StateError, match="holds a run of other inputs or settings"):
        run(make_config(dir=url, min_tokens=2), listener)
    store.write("mine.txt", b"1")
    for overwrite in (False, True):
        with pytest.raises(StateError, match=r"holds more than this dataset \(mine.txt\)"):
            run(make_config(dir=url), listener, overwrite=overwrite)
    assert verify_store(store).problems == ["mine.txt: not listed in the manifest"]
    store.remove("mine.txt")
    assert objects() == whole
    run(make_config(dir=url, min_tokens=2), listener, overwrite=True)
    assert objects() != whole
    assert not verify_store(store).problems


def test_another_record_of_a_part_is_an_error(url, store, make_config, listener):
    run(make_config(dir=url), listener)
    record = json.loads(store.read("parts/0000001.json"))
    store.remove("manifest.json")
    store.write("parts/0000001.json", json.dumps({**record, "fingerprint": "x"}).encode())
    with pytest.raises(StateError, match="was written from other inputs or settings"):
        run(make_config(dir=url), listener)


def test_a_run_while_another_writes_is_refused(url, store, make_config, listener):
    store.write(".lock/0000000001", b'{"host": "far", "pid": 7, "key": "k"}')
    with pytest.raises(StateError, match="another run is writing there"):
        run(make_config(dir=url), listener)
    assert list(store.sizes()) == [".lock/0000000001"]


def test_worker_processes_write_the_same_objects(
    in_directory, make_config, listener, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    files, _ = in_directory
    store = Store(f"file://{tmp_path}/store")
    run(make_config(dir=f"file://{tmp_path}/store", workers=2), listener)
    found = {name: store.read(name) for name in store.sizes() if name != "manifest.json"}
    assert found == files


def test_verify_finds_what_was_changed(url, store, make_config, listener):
    run(make_config(dir=url), listener)
    content = store.read("train-0000000-0000.bin")
    store.write("train-0000000-0000.bin", content[:-1] + bytes([content[-1] ^ 1]))
    store.remove("train-0000001-0000.idx")
    store.write(".hidden", b"")
    manifest = store.read("manifest.json")
    found = verify_store(store)
    assert [problem.partition(" (")[0] for problem in found.problems] == [
        "train-0000000-0000.bin: its bytes have changed",
        "train-0000001-0000.idx: missing",
    ]
    assert found.notes == [".hidden"]
    with pytest.raises(VerifyError, match=f"^{url}: verification failed, 2 problems"):
        verify_dataset(Path(url)).check(Path(url))
    store.write("manifest.json", manifest + b" ")
    assert "its bytes are not the ones" in verify_store(store).problems[0]
    store.write("manifest.json", b"{}")
    with pytest.raises(VerifyError, match="damaged manifest"):
        verify_store(store)


def test_a_run_whose_record_is_removed_ends_without_a_manifest(url, store, make_config, listener):
    def execute(*of_run):
        yield from run_parts(*of_run)
        store.remove("parts/0000000.json")

    with pytest.raises(StorageError, match=r"parts/0000000\.json: removed while the run went on"):
        make_dataset(make_config(dir=url), listener, execute)
    assert "manifest.json" not in store.sizes()
    run(make_config(dir=url), listener)
    assert not verify_store(store).problems


def test_a_second_run_of_this_machine_is_named_by_the_url(url, store, make_config, listener):
    with locked_staging(store) as staging:
        (staging / "finish").mkdir()
        clear_staging(staging)  # at the end of a run; the lock stays for who has opened it
        with pytest.raises(StateError, match=rf"^{url}: another run is working on this machine"):
            run(make_config(dir=url), listener)
        assert [path.name for path in staging.iterdir()] == [".lock"]
