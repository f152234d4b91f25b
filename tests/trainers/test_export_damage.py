"""A dataset whose bytes changed at equal size is found where an export reads them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tokmill import tables
from tokmill.api.dataset import Dataset
from tokmill.api.dataset import open as open_dataset
from tokmill.errors import VerifyError
from tokmill.extensions import find

CHANGED = r"are not those of the manifest \(blake3\): the dataset is damaged; see tokmill.verify"


def damaged(dataset: Dataset, tmp_path: Path, ending: str, shard: int = 0, at: int = -1) -> Dataset:
    """Return a copy in which a byte of a file of a shard differs, by default the last."""
    copy = shutil.copytree(dataset.directory, tmp_path / "damaged")
    path = copy / f"{dataset.shards[shard].name}.{ending}"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.unlink()
    path.write_bytes(data)
    return open_dataset(copy)


def kind_of(trainer: str) -> str:
    kinds = find(tables.TRAINERS, trainer).value.kinds
    return "chats" if "sft" in kinds else "pretrained"


CASES = [
    (trainer, ending)
    for trainer in tables.TRAINERS.rows
    for ending in ("bin", "idx", "mask")
    if ending != "mask" or kind_of(trainer) == "chats"
]


@pytest.mark.parametrize(("trainer", "ending"), CASES)
def test_a_copy_of_damaged_files_is_refused(trainer: str, ending: str, request, tmp_path) -> None:
    shard = -1 if ending == "bin" else 0
    dataset = damaged(request.getfixturevalue(kind_of(trainer)), tmp_path, ending, shard)
    with pytest.raises(VerifyError) as found:
        dataset.export(trainer, tmp_path / "out", copy=True)
    assert "damaged" in str(found.value)
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


def test_damage_of_linked_files_is_found_by_check(single: Dataset, tmp_path) -> None:
    dataset = damaged(single, tmp_path, "bin")
    with pytest.raises(VerifyError, match=CHANGED):  # its time says that it was changed
        dataset.export("nanogpt", tmp_path / "out")
    os.utime(dataset.directory / f"{dataset.shards[0].name}.bin", (1, 1))
    dataset.export("nanogpt", tmp_path / "out")
    for overwrite in (False, True):
        with pytest.raises(VerifyError, match=CHANGED):
            dataset.export("nanogpt", tmp_path / "two", check=True, overwrite=overwrite)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "out"]


def test_damage_of_another_dataset_of_a_blend_is_found(
    pretrained: Dataset, single: Dataset, tmp_path
) -> None:
    other = damaged(single, tmp_path, "bin")
    tokens = [f"{pretrained.directory}=1k", f"{other.directory}=1k"]
    with pytest.raises(VerifyError, match=CHANGED):
        pretrained.export("megatron", tmp_path / "out", tokens=tokens, copy=True)
    tokens[1] = f"{other.directory}=0"
    pretrained.export("megatron", tmp_path / "out", tokens=tokens, copy=True)
    path = other.directory / f"{single.shards[0].name}.bin"
    path.write_bytes(path.read_bytes()[:-2])
    tokens[1] = f"{other.directory}=1k"
    with pytest.raises(VerifyError, match="the manifest says"):
        pretrained.export("megatron", tmp_path / "three", tokens=tokens)
