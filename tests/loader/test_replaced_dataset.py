"""A dataset that was replaced, moved or removed after it was opened is noticed.

One that was packed, repaired or made again with the same tokens is the same, for a training that
goes on and for one that is resumed.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tokmill.dataset import documents as module
from tokmill.errors import StateError, VerifyError
from tokmill.loader import Loader, collate, documents, packs, windows

OTHERS = {
    "train-0000000-0000": [[1, 9, 8, 2], [1, 9, 2]],
    "val-0000000-0000": [[1, 10, 2]],
    "train-0000000-0001": [[1, 2], [1, 11, 12, 13, 2]],
}
"""Of the sizes of `DOCUMENTS`: a single id is another."""

Replace = Callable[[], None]


@pytest.fixture
def opened(make_dataset, monkeypatch) -> tuple[Path, Replace]:
    """A dataset, and a function that puts another one of equal sizes in its place."""
    monkeypatch.setattr(module, "LOOK_S", 0)
    directory, _ = make_dataset()

    def replace() -> None:
        shutil.rmtree(directory)
        make_dataset(OTHERS)

    return directory, replace


@pytest.mark.parametrize("make", [documents, lambda directory: windows(directory, 4, shift=False)])
def test_an_open_source_notices_another_dataset_of_equal_size(opened, make) -> None:
    directory, replace = opened
    source = make(directory)
    assert source[0]["input_ids"].tolist() == [1, 7, 8, 2]
    replace()
    for _ in range(2):
        with pytest.raises(VerifyError) as info:
            source[0]
        assert str(info.value) == (
            f"{directory}: the dataset was replaced after it was opened: open it again"
        )
    assert make(directory)[0]["input_ids"].tolist() == [1, 9, 8, 2]


def test_packs_notice_before_they_map_their_index(make_sft) -> None:
    directory, _ = make_sft(packed=5)
    source = packs(directory, shift=False)
    shutil.rmtree(directory)
    make_sft()
    with pytest.raises(VerifyError, match="replaced after it was opened"):
        source[0]


def test_a_file_of_another_dataset_is_not_called_damaged(make_dataset, monkeypatch) -> None:
    directory, _ = make_dataset()
    source = documents(directory)
    assert source[2]["input_ids"].tolist() == [1, 2]
    monkeypatch.setattr(module.time, "monotonic", lambda: -1)  # no look is due
    shutil.rmtree(directory)
    make_dataset({"train-0000000-0000": [[1, 2]]})
    with pytest.raises(VerifyError, match="replaced after it was opened"):
        source[0]


def test_a_dataset_that_is_gone_is_one_line(opened) -> None:
    directory, _ = opened
    source = documents(directory)
    shutil.rmtree(directory)
    with pytest.raises(VerifyError) as info:
        source[0]
    assert str(info.value) == f"{directory}: the dataset was moved or removed after it was opened"


def test_a_copy_of_the_same_dataset_is_the_same(opened, tmp_path: Path) -> None:
    directory, _ = opened
    source = documents(directory)
    shutil.copytree(directory, tmp_path / "copy")
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "copy", directory)
    assert source[0]["input_ids"].tolist() == [1, 7, 8, 2]


def test_an_epoch_and_a_state_begin_with_a_look(make_dataset) -> None:
    directory, _ = make_dataset()
    loader, other = (Loader(windows(directory, 2, shift=False), 1) for _ in range(2))
    list(loader.one_epoch())
    state = loader.state_dict()
    shutil.rmtree(directory)
    make_dataset(OTHERS)
    with pytest.raises(VerifyError, match="replaced"):
        loader.one_epoch()
    with pytest.raises(VerifyError, match="replaced"):
        other.load_state_dict(state)
    with pytest.raises(StateError, match="state of another sequence: fingerprint"):
        Loader(windows(directory, 2, shift=False), 1).load_state_dict(state)


def test_a_worker_of_torch_notices_in_one_line(opened) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs torch's DataLoader")
    directory, replace = opened
    source = windows(directory, 4, shift=False)
    replace()
    loader = torch.utils.data.DataLoader(source, num_workers=1, collate_fn=collate)
    for batches in (loader, Loader(source, 1, workers=1)):
        with pytest.raises(VerifyError) as info:
            next(iter(batches))
        assert str(info.value) == (
            f"{directory}: the dataset was replaced after it was opened: open it again"
        )


ROWS = [{"text": f"hello {i} there"} for i in range(12)]


def packed(make: Callable[..., Any], directory: Path) -> None:
    tokmill.pack(directory, 8)
    tokmill.pack(directory, 16)


def repaired(make: Callable[..., Any], directory: Path) -> None:
    (directory / "train-0000001-0000.bin").unlink()
    make(directory)


def remade(make: Callable[..., Any], directory: Path) -> None:
    shutil.rmtree(directory)
    make(directory)


def overwritten(make: Callable[..., Any], directory: Path) -> None:
    make(directory, overwrite=True)


def made_elsewhere(make: Callable[..., Any], directory: Path) -> None:
    make(directory.with_name("elsewhere"), workers=2)
    shutil.rmtree(directory)
    directory.with_name("elsewhere").rename(directory)


@pytest.fixture
def make(tmp_path: Path, tokenizer_dir: Path, write_rows) -> Callable[..., Any]:
    """Make the dataset of a run of several parts."""
    source = write_rows(tmp_path / "in.jsonl", ROWS)

    def make(directory: Path, **settings: Any) -> Any:
        given = {"tokenizer": tokenizer_dir, "engine": "reference", "threads": 1}
        return tokmill.pretrain(
            source, output=directory, progress=False, **given | {"part_bytes": 200} | settings
        )

    return make


@pytest.mark.parametrize("change", [packed, repaired, remade, overwritten, made_elsewhere])
def test_the_same_tokens_go_on_and_resume(make, out, change, monkeypatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0)
    make(out)
    loader = Loader(windows(out, 4, shift=True), 2, seed=1, epochs=2)
    expected = [batch["input_ids"].tolist() for batch in loader]
    loader = Loader(windows(out, 4, shift=True), 2, seed=1, epochs=2)
    pickled = pickle.dumps(windows(out, 4, shift=True))
    batches = iter(loader)
    read = [next(batches)["input_ids"].tolist()]
    state = loader.state_dict()

    change(make, out)

    read += [batch["input_ids"].tolist() for batch in batches]
    assert read == expected
    resumed = Loader(windows(out, 4, shift=True), 2, seed=1, epochs=2)
    resumed.load_state_dict(state)
    assert [batch["input_ids"].tolist() for batch in resumed] == expected[1:]
    assert len(pickle.loads(pickled)) == len(windows(out, 4, shift=True))


def test_a_run_of_other_records_in_its_place_ends_a_training(make, out, monkeypatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0)
    make(out)
    loader = Loader(windows(out, 4, shift=True), 1, seed=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    source = out.with_name("in.jsonl")
    source.write_bytes(source.read_bytes().replace(b"hello", b"hallo"))
    make(out, overwrite=True)
    with pytest.raises(VerifyError, match="was replaced after it was opened: open it again"):
        next(batches)
    with pytest.raises(StateError, match="sources, weights or shuffle changed"):
        Loader(windows(out, 4, shift=True), 1, seed=1).load_state_dict(state)


def test_a_training_goes_on_while_a_lost_file_is_made_again(make, out, monkeypatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0)
    make(out)
    source = windows(out, 4, shift=True)
    (out / "manifest.json").rename(out.with_name("kept"))  # as a run that repairs begins
    assert len(source[0]["input_ids"]) == 4
    (out / "plan.json").rename(out.with_name("plan"))
    (out / "plan.json").write_bytes(b"{}")  # of another run
    with pytest.raises(VerifyError, match="moved or removed after it was opened"):
        source[0]


def test_a_file_that_was_cut_is_read_again_once_it_is_repaired(make, out, monkeypatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0)
    make(out)
    source = windows(out, 4, shift=True)
    before = source[0]["input_ids"].tolist()
    path = out / "train-0000000-0000.bin"
    path.chmod(0o644)
    os.truncate(path, 2)
    with pytest.raises(VerifyError, match="it was cut while it was read"):
        source[0]
    make(out)
    assert source[0]["input_ids"].tolist() == before


def test_a_state_of_sums_of_another_algorithm_cannot_be_compared(make, tmp_path: Path) -> None:
    sums = [make(tmp_path / name, checksum=name).directory for name in ("blake3", "sha256")]
    one, other = (Loader(windows(directory, 4, shift=True), 1) for directory in sums)
    with pytest.raises(StateError) as info:
        other.load_state_dict(one.state_dict())
    assert "files have sums of blake3 there, of sha256 here: they cannot be compared" in str(
        info.value
    )
