"""An import replaces an imported dataset if asked to, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tokmill
from tests.trainers.importing.conftest import EOS, ids, write_megatron
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError, VerifyError
from tokmill.trainers import private_directory

OLD, NEW = [[5, EOS]], [[6, 7, EOS], [8, EOS]]


@pytest.fixture
def old(bring, tmp_path) -> Dataset:
    """An imported dataset at `out`."""
    return bring(write_megatron(tmp_path / "old", OLD), "megatron")


@pytest.fixture
def new(tmp_path) -> Path:
    return write_megatron(tmp_path / "new", NEW)


@pytest.mark.parametrize("in_one_step", [True, False])
def test_an_imported_dataset_is_replaced_only_when_asked(
    bring, old, new, tmp_path, monkeypatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(private_directory, "_exchange", lambda one, other: False)
    with pytest.raises(StateError, match="already holds a dataset: overwrite=True"):
        bring(new, "megatron")
    assert ids(tokmill.open(tmp_path / "out")) == OLD
    assert ids(bring(new, "megatron", overwrite=True)) == NEW
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_import_that_fails_leaves_the_old_dataset(bring, old, new, tmp_path) -> None:
    write_megatron(tmp_path / "new", [[6]])
    with pytest.raises(VerifyError, match="does not end with eos"):
        bring(new, "megatron", overwrite=True)
    old.verify()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("old")
def test_an_import_that_is_killed_while_it_replaces_leaves_one_of_the_two(
    bring, new, tmp_path, monkeypatch
) -> None:
    class Killed(BaseException):
        """A signal."""

    def kill(path: Path, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", kill)
        with pytest.raises(Killed):
            bring(new, "megatron", overwrite=True)
    made = tokmill.open(tmp_path / "out")
    made.verify()
    assert ids(made) == NEW
    bring(new, "megatron", overwrite=True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


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
        with pytest.raises(StateError, match=rf"{name}: is inside .*out: name another output"):
            bring(place / name, "megatron", overwrite=True)
    old.verify()
