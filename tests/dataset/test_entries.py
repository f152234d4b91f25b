from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.dataset.entries import dataset_entries
from tokmill.errors import StorageError


def test_a_directory_and_its_two_folders_are_listed_and_no_other(tmp_path: Path):
    for name in ("b.bin", "a.bin", "parts/0000000.json", "rejects/.x", "other/inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [name for name, _ in dataset_entries(tmp_path)] == [
        "a.bin", "b.bin", "other", "parts", "rejects", "parts/0000000.json", "rejects/.x"
    ]  # fmt: skip


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/parts").symlink_to("../elsewhere")
    assert [name for name, _ in dataset_entries(tmp_path / "out")] == ["parts"]


def test_a_directory_that_is_not_there_is_a_storage_error(tmp_path: Path):
    with pytest.raises(StorageError, match="none"):
        list(dataset_entries(tmp_path / "none"))
