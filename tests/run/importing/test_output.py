"""An import replaces an imported dataset if asked to, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tokmill
from tests.run.importing.conftest import EOS, ids, write_megatron
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError, UsageError

OLD, NEW = [[5, EOS]], [[6, 7, EOS], [8, EOS]]


@pytest.fixture
def old(bring, tmp_path) -> Dataset:
    """An imported dataset at `out`."""
    return bring(write_megatron(tmp_path / "old", OLD), "megatron")


@pytest.fixture
def new(tmp_path) -> Path:
    return write_megatron(tmp_path / "new", NEW)


def test_an_imported_dataset_is_replaced_only_when_asked(bring, old, new, tmp_path) -> None:
    with pytest.raises(
        StateError, match=r"holds a run of other inputs .*: overwrite=True|run with"
    ):
        bring(new, "megatron")
    assert ids(tokmill.open(tmp_path / "out")) == OLD
    assert ids(bring(new, "megatron", overwrite=True)) == NEW


@pytest.mark.parametrize("wrong", [{"trainer": "datatrove"}, {"add_eos": True, "val": "x"}])
def test_an_import_that_cannot_begin_leaves_the_old_dataset(bring, old, new, wrong) -> None:
    options = {"trainer": "megatron", **wrong}
    with pytest.raises(UsageError):
        bring(new, overwrite=True, **options)
    old.verify()


@pytest.mark.usefixtures("old")
def test_the_same_import_is_done_at_once(bring, tmp_path) -> None:
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    assert ids(bring(tmp_path / "old", "megatron")) == OLD
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before


def test_a_dataset_that_was_not_imported_is_replaced_as_well(bring, single, new, tmp_path) -> None:
    shutil.copytree(single.directory, tmp_path / "out")
    assert ids(bring(new, "megatron", overwrite=True)) == NEW


@pytest.mark.usefixtures("old")
def test_files_of_others_are_never_replaced(bring, new, tmp_path) -> None:
    (tmp_path / "out" / "rejects" / ".notes").write_text("mine")
    with pytest.raises(StateError, match=r"holds more than a dataset \(rejects/\.notes\)"):
        bring(new, "megatron", overwrite=True)


@pytest.mark.usefixtures("new")
def test_a_dataset_with_a_damaged_manifest_is_replaced(bring, old, new, tmp_path) -> None:
    path = old.directory / "manifest.json"
    data = path.read_bytes().replace(b'"documents":1', b'"documents":2')
    path.unlink()
    path.write_bytes(data)
    assert ids(bring(new, "megatron", overwrite=True)) == NEW


def test_a_source_inside_the_output_is_refused(bring, old, tmp_path) -> None:
    (tmp_path / "link").symlink_to(old.directory)
    name = old.shards[0].name
    for place in (old.directory, tmp_path / "link"):
        with pytest.raises(StateError, match=rf"{name}\.bin: is inside .*out, which would be"):
            bring(place / name, "megatron", overwrite=True)
    old.verify()
