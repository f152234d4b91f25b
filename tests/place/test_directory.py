"""A directory is listed as a dataset: its own entries, and those of its two folders."""

from __future__ import annotations

from pathlib import Path

from tokmill.place import open_place


def test_a_directory_and_its_two_folders_are_listed_and_no_other(tmp_path: Path):
    for name in ("b.bin", "a.bin", "parts/0000000.json", "rejects/.x", "other/inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert open_place(str(tmp_path)).entries() == {
        "a.bin": 0, "b.bin": 0, "other": None, "parts/0000000.json": 0, "rejects/.x": 0
    }  # fmt: skip
    assert open_place(str(tmp_path / "none")).entries() == {}


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/parts").symlink_to("../elsewhere")
    assert open_place(str(tmp_path / "out")).entries() == {"parts": None}
