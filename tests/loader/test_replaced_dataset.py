"""A dataset that was replaced, moved or removed after it was opened is noticed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
