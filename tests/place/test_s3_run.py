"""A dataset in an object store has the bytes of one in a directory, whatever happened before."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tokmill.api.jobs import finished_manifest, verify_dataset
from tokmill.dataset.reader import plain_manifest_in
from tokmill.dataset.verify import verify
from tokmill.errors import StateError, UsageError, VerifyError
from tokmill.place import open_place
from tokmill.place.bucket import Bucket
from tokmill.run.finish import run, run_parts
from tokmill.run.tasks import array_status, finish_array, plan_array, run_share
from tokmill.settings.sft import SftSettings

SFT = Path(__file__).parents[2] / "data_samples" / "sft"

RUN_PARTS = "tokmill.run.finish.run_parts"
"""What makes the parts; a test puts something in its place that changes files meanwhile."""


@pytest.fixture
def place(url):
    return open_place(url)


@pytest.fixture
def objects(place):
    """Return the objects of the dataset by name, without the manifest."""

    def read() -> dict[str, bytes]:
        return {name: place.read(name) for name in place.entries() if name != "manifest.json"}

    return read


@pytest.fixture
def in_directory(out, make_config, listener):
    """The files of the same dataset in a directory, without the manifest; and that one."""
    manifest = run(make_config(), listener).plain
    return files(out), manifest


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in (".lock", "manifest.json")
    }


def comparable(manifest: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in manifest.items() if k not in ("run", "sha256", "config")}


def problems(place) -> list[str]:
    return list(verify(place, plain_manifest_in(place)).problems)


def test_the_objects_are_the_files_of_a_directory_among_faults(
    url, place, faults, objects, in_directory, make_config, listener, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    expected, local = in_directory
    before, faults.share = faults.counts.total(), 0.02
    manifest = run(make_config(dir=url, workers=2), listener).plain
    faults.share = 0.0
    assert faults.counts.total() > before
    assert objects() == expected
    assert comparable(manifest) == comparable(local)
    assert manifest["config"]["output"]["dir"] == url
    assert json.loads(place.read("manifest.json")) == manifest
    assert not list(tmp_path.glob("tokmill-upload-*"))
    found = verify_dataset(Path(url))
    assert found.n_files == len(manifest["files"]) > 10
    assert not found.problems
    assert finished_manifest(Path(url)).plain == manifest
    assert run(make_config(dir=url), listener).plain == manifest  # complete: nothing is made again


def test_packs_are_those_of_a_directory(url, objects, out, configure, listener):
    settings = {
        "sft": SftSettings(schema="mixed", template="tokenizer", packing=2000, packed_rows=True),
        "path": str(SFT.parent / "tokenizer"), "max_tokens": 2000,
        "part_bytes": 40_000, "max_reject_fraction": 1.0,
    }  # fmt: skip
    sources = [SFT / "chats.jsonl", SFT / "prompt_chat.jsonl"]
    local = run(configure(out, *sources, **settings), listener).plain
    assert comparable(run(configure(url, *sources, **settings), listener).plain) == comparable(
        local
    )
    for name, content in objects().items():
        assert (out / name).read_bytes() == content
    assert {"packs-train-rows.bin", "packed-train-0000.bin"} <= set(objects())


def test_input_among_faults_gives_the_same_bytes(
    url, place, faults, in_directory, out, make_config, sources, listener, tmp_path
):
    for path in sources:
        place.write(path.name, path.read_bytes())
    faults.share = 0.05
    run(make_config(url, dir=str(tmp_path / "remote")), listener)
    for path in out.glob("*.bin"):
        assert (tmp_path / "remote" / path.name).read_bytes() == path.read_bytes()


def test_an_array_in_a_store_among_faults_makes_the_same_objects(
    url, faults, objects, in_directory, make_config, listener
):
    expected, _ = in_directory
    plan_array(make_config(dir=url), listener)
    faults.share = 0.02
    for index in (1, 0):
        run_share(url, index, 2, listener)
        assert not array_status(url).tasks
    with pytest.raises(StateError, match="holds a run of other inputs or settings"):
        run(make_config(dir=url, min_tokens=2), listener)
    manifest = finish_array(url, listener).plain
    faults.share = 0.0
    assert objects() == expected
    assert not problems(open_place(url))
    assert finish_array(url, listener).plain == manifest


def test_what_is_missing_is_made_again(url, place, objects, make_config, listener):
    run(make_config(dir=url), listener)
    whole = objects()
    for lost in (
        ("manifest.json", "parts/0000000.json", "train-0000002-0000.bin"),
        ("train-0000001-0000.idx", "parts/0000002.json"),
    ):
        for name in lost:
            place.remove(name)
        run(make_config(dir=url), listener)
        assert objects() == whole
        assert not problems(place)


@pytest.mark.parametrize("name", ["parts/0000002.json", "manifest.json"])
def test_a_run_that_stopped_at_any_object_continues(
    name, url, place, objects, in_directory, make_config, listener
):
    expected, _ = in_directory
    create = Bucket.create

    def no_more(self, asked, chunks):
        if asked == name:
            raise UsageError("the store refused")
        return create(self, asked, chunks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bucket, "create", no_more)
        with pytest.raises(UsageError, match="the store refused"):
            run(make_config(dir=url), listener)
    assert name not in place.entries()
    with pytest.raises((StateError, UsageError), match=r"not finished|not a tokmill"):
        finished_manifest(Path(url))
    run(make_config(dir=url), listener)
    assert objects() == expected


def test_another_run_or_other_objects_are_refused(url, place, objects, make_config, listener):
    place.write("mine.txt", b"1")
    with pytest.raises(StateError, match=r"no dataset or export of tokmill \(mine.txt\)"):
        run(make_config(dir=url), listener)
    place.remove("mine.txt")
    run(make_config(dir=url), listener)
    whole = objects()
    with pytest.raises(StateError, match="holds a run of other inputs or settings"):
        run(make_config(dir=url, min_tokens=2), listener)
    place.write("mine.txt", b"1")
    with pytest.raises(StateError, match=r"holds more than a dataset \(mine.txt\)"):
        run(make_config(dir=url), listener, overwrite=True)
    assert problems(place) == ["mine.txt: not listed in the manifest"]
    place.remove("mine.txt")
    assert objects() == whole
    run(make_config(dir=url, min_tokens=2), listener, overwrite=True)
    assert objects() != whole
    assert not problems(place)


def test_two_runs_of_one_plan_do_the_work_twice_and_write_the_same(
    url, place, objects, in_directory, make_config, listener, silent, monkeypatch
):
    expected, _ = in_directory

    def execute(*of_run):
        run_parts(*of_run)
        monkeypatch.setattr(RUN_PARTS, run_parts)
        run(make_config(dir=url), silent)  # another process that came later, and was quicker

    monkeypatch.setattr(RUN_PARTS, execute)
    with (
        pytest.raises(StateError, match=r"manifest.json: another process has just written it"),
    ):
        run(make_config(dir=url), listener)
    run(make_config(dir=url), listener)
    assert objects() == expected
    assert not problems(place)


@pytest.mark.parametrize("wakes", ["before the new run ends", "after"])
def test_an_old_writer_that_wakes_up_leaves_the_new_dataset_whole_and_right(
    url, place, objects, out, make_config, listener, silent, monkeypatch, wakes
):
    """It stands still during an upload; `--overwrite` begins a new plan; then it goes on."""
    new = {"min_tokens": 4, "dir": url}
    run(make_config(min_tokens=4), silent)
    paused, resumed = threading.Event(), threading.Event()
    upload = Bucket._upload

    def slow(self, path, entry, check):
        if not paused.is_set() and entry.name.endswith(".bin"):  # the old one began first
            paused.set()
            assert resumed.wait(300)
        return upload(self, path, entry, check)

    monkeypatch.setattr(Bucket, "_upload", slow)
    errors: list[BaseException] = []

    def write_old() -> None:
        try:
            run(make_config(dir=url), silent)
        except StateError as error:
            errors.append(error)

    old = threading.Thread(target=write_old)
    old.start()
    assert paused.wait(300)

    def execute(run, parts, report):
        for number, part in enumerate(parts):
            run_parts(run, [part], report)
            if number == 1 and wakes.startswith("before"):
                resumed.set()
                old.join(300)

    monkeypatch.setattr(RUN_PARTS, execute)
    run(make_config(**new), listener, overwrite=True)
    resumed.set()
    old.join(300)
    (error,) = errors
    assert "another run took this place over" in str(error)
    assert objects() == files(out)
    assert not problems(place)


def test_verify_finds_what_was_changed(url, place, make_config, listener):
    run(make_config(dir=url), listener)
    content = place.read("train-0000000-0000.bin")
    place.write("train-0000000-0000.bin", content[:-1] + bytes([content[-1] ^ 1]))
    place.remove("train-0000001-0000.idx")
    place.write(".hidden", b"")
    manifest = place.read("manifest.json")
    found = verify(place, plain_manifest_in(place))
    assert [problem.partition(" (")[0] for problem in found.problems] == [
        "train-0000000-0000.bin: its bytes have changed",
        "train-0000001-0000.idx: missing",
    ]
    assert found.notes == (".hidden",)
    with pytest.raises(VerifyError, match=f"^{url}: verification failed, 2 problems"):
        verify_dataset(Path(url)).check(Path(url))
    place.write("manifest.json", manifest + b" ")
    assert "its bytes are not the ones" in problems(place)[0]
    place.write("manifest.json", b"{}")
    with pytest.raises(VerifyError, match="damaged manifest"):
        problems(place)
