"""An export appears whole or not at all, and never touches files of others."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import ClassVar

import blake3
import pytest

import tokmill
from tokmill import extensions
from tokmill.api.dataset import Dataset
from tokmill.dataset.layout import EXPORT_RECORD as RECORD
from tokmill.errors import StateError, StorageError, UsageError, VerifyError
from tokmill.trainers import export as exporting
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import Checked, Layout, Linked, Written


class Plain:
    """A trainer whose files are the shards, and one file that is written."""

    title = "Plain"
    kinds = frozenset({"pretrain"})
    options: ClassVar[frozenset[str]] = frozenset()
    reader: tuple[str, ...] = ()
    fails = False

    def layout(self, source, options, output) -> Layout:
        linked = [
            Linked(f"{split}/{row.name}.bin", source.path(row.name, "bin"))
            for split in source.splits
            for row in source.entries(split)
        ]
        return Layout(
            [*linked, Written("list.txt", 6, partial(self.write))], "use it", "", ["note"]
        )

    def write(self, file) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        file.write(b"abc")
        file.write(b"def")

    def check(self, source, options, output) -> Checked:
        return Checked("plain 1", "all", 3)


@pytest.fixture
def plain(monkeypatch) -> Plain:
    """A trainer of the name `plain`."""
    trainer = Plain()
    found = extensions.TableEntry(trainer, None)
    monkeypatch.setattr("tokmill.trainers.export.find", lambda table, name: found)
    return trainer


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_an_export_has_every_file_and_its_record(plain, pretrained: Dataset, tmp_path) -> None:
    made = export(pretrained.directory, "plain", tmp_path / "e", ExportOptions(), check=True)
    shards = sorted(pretrained.shards, key=lambda shard: shard.split)
    names = [f"{shard.split}/{shard.name}.bin" for shard in shards]
    assert len(names) == 6
    assert files(tmp_path / "e") == sorted([*names, "list.txt", RECORD])
    record = json.loads((tmp_path / "e" / RECORD).read_bytes())
    assert [file["name"] for file in record["files"]] == [*names, "list.txt"]
    assert record["files"][-1] == {
        "name": "list.txt",
        "bytes": 6,
        "how": "written",
        "blake3": blake3.blake3(b"abcdef").hexdigest(),
    }
    assert record["dataset"]["identity"] == pretrained.identity
    assert made.checked == Checked("plain 1", "all", 3)
    assert made.new_bytes == 6
    assert made.n_bytes == 6 + 2 * pretrained.n_tokens


def test_linked_files_are_the_files_of_the_dataset(plain, single: Dataset, tmp_path) -> None:
    export(single.directory, "plain", tmp_path / "e", ExportOptions())
    name = single.shards[0].name
    linked = tmp_path / "e" / "train" / f"{name}.bin"
    assert linked.samefile(single.directory / f"{name}.bin")
    assert not linked.stat().st_mode & 0o222


def test_copies_are_files_of_their_own_that_may_be_changed(plain, single, tmp_path) -> None:
    made = export(single.directory, "plain", tmp_path / "e", ExportOptions(copy=True))
    name = single.shards[0].name
    copied = tmp_path / "e" / "train" / f"{name}.bin"
    original = single.directory / f"{name}.bin"
    assert not copied.samefile(original)
    assert copied.read_bytes() == original.read_bytes()
    with copied.open("r+b") as file:
        file.write(b"xx")
    assert made.new_bytes == made.n_bytes
    single.verify()


def test_a_file_system_without_links_gets_copies(plain, single, tmp_path, monkeypatch) -> None:
    def refuse(source: Path, target: str, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(exporting, "share_blocks", lambda old, new: False)
    made = export(single.directory, "plain", tmp_path / "e", ExportOptions())
    assert {file.how for file in made.files} == {"copy", "written"}
    name = single.shards[0].name
    written = (tmp_path / "e" / "train" / f"{name}.bin").read_bytes()
    assert written == (single.directory / f"{name}.bin").read_bytes()


def test_an_export_that_fails_leaves_nothing(plain: Plain, single, tmp_path) -> None:
    plain.fails = True
    with pytest.raises(StorageError, match="no space left on device"):
        export(single.directory, "plain", tmp_path / "e", ExportOptions())
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_cannot_fit_writes_nothing(plain, single, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tokmill.trainers.private_directory.free_bytes", lambda path: 5)
    with pytest.raises(StorageError, match="needs 6 B, 5 B are free"):
        export(single.directory, "plain", tmp_path / "e", ExportOptions())
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_replaced_only_when_asked(plain, single, tmp_path) -> None:
    output = tmp_path / "e"
    output.mkdir()
    export(single.directory, "plain", output, ExportOptions())
    with pytest.raises(StateError, match="--overwrite replaces it"):
        export(single.directory, "plain", output, ExportOptions())
    export(single.directory, "plain", output, ExportOptions(copy=True), overwrite=True)
    assert (output / "train" / f"{single.shards[0].name}.bin").stat().st_nlink == 1
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_files_of_others_are_never_replaced(plain, single, tmp_path) -> None:
    output = tmp_path / "e"
    export(single.directory, "plain", output, ExportOptions())
    (output / "mine.txt").write_text("mine")
    with pytest.raises(StateError, match=r"holds more than an export \(mine\.txt\)"):
        export(single.directory, "plain", output, ExportOptions(), overwrite=True)
    with pytest.raises(StateError, match="is inside"):
        export(single.directory, "plain", single.directory, ExportOptions(), overwrite=True)
    assert (output / "mine.txt").read_text() == "mine"


def test_a_trainer_without_masks_refuses_chats(chats, tmp_path) -> None:
    with pytest.raises(UsageError, match="reads no loss mask"):
        export(chats.directory, "nanogpt", tmp_path / "e", ExportOptions())


def test_a_missing_reader_is_named_before_anything_is_written(plain, single, tmp_path) -> None:
    plain.reader = ("no-such-reader",)
    with pytest.raises(UsageError, match="pip install no-such-reader"):
        export(single.directory, "plain", tmp_path / "e", ExportOptions(), check=True)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_trainer_gets_the_nearest_name(single, tmp_path) -> None:
    with pytest.raises(UsageError, match="did you mean nanogpt"):
        export(single.directory, "nanogtp", tmp_path / "e", ExportOptions())


def test_an_export_never_stands_inside_a_dataset(plain, single, tmp_path) -> None:
    mixed = tokmill.mix([single.directory], output=tmp_path / "mixed", progress=False)
    for dataset in (single, mixed):
        with pytest.raises(StateError, match=rf"is inside the dataset {dataset.directory}: name"):
            export(single.directory, "plain", dataset.directory / "a" / "e", ExportOptions())
        with pytest.raises(UsageError, match=f"is inside the dataset {dataset.directory}: name"):
            single.report(dataset.directory / "page.html")
        dataset.verify()


@pytest.mark.parametrize("ending", ["bin", "idx"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_dataset_is_not_exported(plain, single, tmp_path, ending, is_cut) -> None:
    broken = shutil.copytree(single.directory, tmp_path / "broken")
    path = broken / f"{single.shards[0].name}.{ending}"
    data = path.read_bytes()
    path.unlink()
    if is_cut:
        path.write_bytes(data[:-2])
    problem = "the manifest says" if is_cut else "missing"
    with pytest.raises(VerifyError, match=rf"{path.name}.*{problem}.*see tokmill verify"):
        export(broken, "plain", tmp_path / "e", ExportOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_shard_that_is_a_link_is_exported_as_its_file(plain, single, tmp_path) -> None:
    linked = shutil.copytree(single.directory, tmp_path / "linked")
    name = f"{single.shards[0].name}.bin"
    (linked / name).rename(tmp_path / "elsewhere")
    (linked / name).symlink_to(Path("..") / "elsewhere")
    export(linked, "plain", tmp_path / "a" / "e", ExportOptions())
    path = tmp_path / "a" / "e" / "train" / name
    assert not path.is_symlink()
    assert path.samefile(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (ModuleNotFoundError("No module named 'torch'"), UsageError, "cannot be imported"),
        (FileNotFoundError("no files\nhere"), VerifyError, "FileNotFoundError: no files"),
    ],
)
def test_what_a_reader_raises_is_one_line(
    plain, single, tmp_path, monkeypatch, error, kind, line
) -> None:
    def fail(source, options, output) -> None:
        raise error

    monkeypatch.setattr(plain, "check", fail)
    with pytest.raises(kind, match=line) as caught:
        export(single.directory, "plain", tmp_path / "e", ExportOptions(), check=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "auto", None, 5, ["nanogpt"]])
def test_only_a_name_of_a_trainer_is_one(single, tmp_path, name) -> None:
    with pytest.raises(UsageError, match="expected one of megatron, datatrove") as caught:
        export(single.directory, name, tmp_path / "e", ExportOptions())
    assert "auto," not in str(caught.value)
