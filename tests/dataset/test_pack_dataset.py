"""A finished dataset is packed: an index beside it, then another manifest, or nothing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.dataset.verifying import changed, check, problems
from tests.fixtures.datasets import RECORDS, TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.dataset import packing, packs
from tokmill.dataset.layout import pack_names
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.packs import pack_dataset
from tokmill.errors import StateError, VerifyError
from tokmill.loader import packs as rows_of
from tokmill.place import open_place
from tokmill.place.directory import locked

RULE = (4, "fragment")
ROWS, SAMPLES, PIECES = pack_names("train", *RULE)
TRAIN = {
    "capacity": 4, "rows": 4, "samples": 4, "tokens": 14, "fill": 0.875, "last": "fragment",
    "pieces": 5, "padding": 2, "left_out": 0,
}  # fmt: skip


@pytest.fixture
def copied(pretrained: Dataset, tmp_path: Path) -> Path:
    """A dataset of text that is not packed."""
    return Path(shutil.copytree(pretrained.directory, tmp_path / "copied"))


def named(directory: Path) -> dict[str, bytes]:
    """Return the files of a dataset, except its lock."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def packed(directory: Path, length: int = 4, **options: Any) -> dict[str, Any]:
    return pack_dataset(open_place(str(directory)), length, **options).plain


def numbers(directory: Path, name: str, dtype: str = "<i8") -> list[int]:
    found: list[int] = np.fromfile(directory / name, dtype).tolist()
    return found


def test_an_index_of_pieces_is_three_files_and_an_entry(make_dataset):
    directory, before = make_dataset()  # of 4, 3, 2 and 5 tokens in train, 3 in val
    manifest = packed(directory)
    assert numbers(directory, ROWS) == [0, 1, 3, 4, 5]
    assert numbers(directory, SAMPLES) == [0, 1, 3, 2, 3]
    assert numbers(directory, PIECES, "<i4") == [0, 4, 0, 3, 4, 1, 0, 2, 0, 4]
    assert manifest["packs"]["train"] == TRAIN
    assert manifest["packs"]["val"] == {
        **TRAIN, "rows": 1, "samples": 1, "tokens": 3, "fill": 0.75, "pieces": 1, "padding": 1,
    }  # fmt: skip
    assert json.loads((directory / "manifest.json").read_bytes()) == manifest
    kept = {
        key: value for key, value in manifest.items() if key not in ("packs", "files", "sha256")
    }
    assert kept == {key: value for key, value in before.items() if key not in ("files", "sha256")}
    assert manifest["files"][: len(before["files"])] == before["files"]
    assert problems(directory, manifest) == []


def test_last_pieces_that_are_dropped_are_counted(make_dataset):
    directory, _ = make_dataset()
    manifest = packed(directory, last="drop")
    assert manifest["packs"]["train"] == {
        **TRAIN, "last": "drop", "rows": 4, "tokens": 13, "fill": 0.8125, "pieces": 4,
        "padding": 3, "left_out": 1,
    }  # fmt: skip
    assert problems(directory, manifest) == []


def test_packing_again_replaces_the_index_and_leaves_no_file_of_the_old_one(copied):
    before = named(copied)
    first = packed(copied, 64)
    assert packed(copied, 64) == first
    files = named(copied)
    second = packed(copied, 100, last="drop")
    assert {n for n in named(copied) if n.startswith("packs-")} == {
        name for split in ("train", "val") for name in pack_names(split, 100, "drop")
    }
    assert check(copied, second).notes == ()
    assert packed(copied, 64) == first
    assert named(copied) == files
    assert {n: data for n, data in files.items() if n in before and n != "manifest.json"} == {
        name: data for name, data in before.items() if name != "manifest.json"
    }


def test_one_split_can_be_packed_alone(copied):
    alone = packed(copied, 64, split="val")
    assert list(alone["packs"]) == ["val"]
    assert problems(copied, alone) == []
    both = packed(copied, 100, split="train")
    assert both["packs"]["val"] == alone["packs"]["val"]
    assert problems(copied, both) == []
    packed(copied, 64, split="train")
    files = named(copied)
    packed(copied, 64)
    assert named(copied) == files


def test_a_run_that_packs_writes_the_same_index(copied, pieces: Dataset):
    manifest = tokmill.pack(copied, 100).manifest
    assert manifest["packs"] == pieces.manifest["packs"]
    found, wanted = named(copied), named(pieces.directory)
    indexes = [name for name in found if name.startswith("packs-")]
    assert len(indexes) == 6
    assert [found[name] for name in indexes] == [wanted[name] for name in indexes]
    pieces.verify()


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.mark.parametrize("at", range(1, 9))
def test_a_process_that_is_killed_leaves_the_old_dataset_or_the_new_one(at, copied, monkeypatch):
    packed(copied, 64)
    before, manifest = named(copied), tokmill.open(copied).manifest
    n_renamed = 0
    rename = os.replace

    def killed(*names: str, **folders: int) -> None:
        nonlocal n_renamed
        n_renamed += 1
        if n_renamed == at:
            raise Killed
        rename(*names, **folders)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        # A process that is killed cleans nothing up.
        patched.setattr("tokmill.storage.PendingFile.__exit__", lambda self, *_: self.file.close())
        if at < 8:
            with pytest.raises(Killed):
                packed(copied, 100)
        else:
            packed(copied, 100)
    now = tokmill.open(copied).manifest
    verified = check(copied, now)
    assert verified.problems == ()
    if at < 8:
        assert now == manifest
        assert verified.notes
        left = {name: data for name, data in named(copied).items() if name not in verified.notes}
        assert left == before
    packed(copied, 100)
    assert check(copied, tokmill.open(copied).manifest).notes == ()


def test_a_run_continues_over_an_index_and_removes_it_with_its_files(copied, pretrained: Dataset):
    packed(copied, 64)
    settings = pretrained.manifest["config"]
    run = {
        "tokenizer": TOKENIZER, "output": copied, "progress": False, "val_fraction": 0.1,
        "part_bytes": settings["output"]["part_bytes"],
    }  # fmt: skip
    complete = tokmill.pretrain(RECORDS, **run)
    assert complete.manifest["packs"]["train"]["capacity"] == 64
    (copied / "manifest.json").unlink()
    assert "packs" not in tokmill.pretrain(RECORDS, **run).manifest
    tokmill.pretrain(RECORDS, overwrite=True, **run)
    assert [name for name in named(copied) if name.startswith("packs-")] == []


# What is refused


def test_two_processes_do_not_pack_at_once(copied):
    with locked(copied), pytest.raises(StateError, match="another run is writing here"):
        tokmill.pack(copied, 64)


# Verify


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        (ROWS, [0, 1, 2, 4, 5], "entry 2 is 2, packing the samples gives 3"),
        (ROWS, [0, 1, 3, 5], "4 numbers, packing the samples gives 5"),
        (SAMPLES, [0, 1, 3, 0, 3], "entry 3 is 0, packing the samples gives 2"),
        (PIECES, [0, 4, 0, 3, 3, 1, 0, 2, 0, 4], "entry 4 is 3, packing the samples gives 4"),
    ],
)
def test_a_wrong_index_is_found_even_if_the_sums_fit(make_dataset, rewrite, name, values, told):
    directory, _ = make_dataset()
    forged = rewrite(directory, packed(directory), name, lambda _: bytes_of(name, values))
    assert problems(directory, forged) == [f"{name}: {told}"]


def bytes_of(name: str, values: list[int]) -> bytes:
    return np.array(values, "<i4" if name == PIECES else "<i8").tobytes()


@pytest.mark.parametrize(
    ("key", "value"),
    [("fill", 0.9), ("pieces", 4), ("padding", 1), ("left_out", 3), ("tokens", 13), ("rows", 5)],
)
def test_a_wrong_count_is_found(make_dataset, key, value):
    directory, _ = make_dataset()
    manifest = packed(directory)
    forged = changed(manifest, "packs", "train", key, to=value)
    assert problems(directory, forged) == [
        f"manifest.json: says {value} {key} of packs of train, found {TRAIN[key]}"
    ]


def test_an_index_of_several_groups_is_compared_group_by_group(make_dataset, rewrite, monkeypatch):
    monkeypatch.setattr(packing, "GROUP_PIECES", 2)
    directory, _ = make_dataset()
    manifest = packed(directory)
    assert numbers(directory, SAMPLES) == [0, 1, 2, 3, 3]
    assert numbers(directory, ROWS) == [0, 1, 2, 3, 4, 5]
    assert problems(directory, manifest) == []
    changed_piece = bytes_of(PIECES, [0, 4, 0, 3, 0, 2, 0, 4, 3, 2])
    forged = rewrite(directory, manifest, PIECES, lambda _: changed_piece)
    assert problems(directory, forged) == [f"{PIECES}: entry 8 is 3, packing the samples gives 4"]


def test_an_index_that_names_what_is_not_there_is_no_traceback(make_dataset, rewrite):
    directory, _ = make_dataset()
    manifest = packed(directory)
    for name, values in ((SAMPLES, [0, 1, 9, 2, 3]), (PIECES, [0, 4, 0, 3, 5, 1, 0, 2, 0, 4])):
        data, kept = bytes_of(name, values), (directory / name).read_bytes()
        rewrite(directory, manifest, name, lambda _, data=data: data)
        with pytest.raises(VerifyError, match="names samples that are not there"):
            packs.open_rows(directory, Manifest.of(manifest, directory), "train").rows(0, 4)
        with pytest.raises(VerifyError, match="names samples that are not there"):
            rows_of(directory, shift=True)[1]
        (directory / name).unlink()
        (directory / name).write_bytes(kept)
