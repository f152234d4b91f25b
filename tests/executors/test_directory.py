from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.errors import StateError
from tokmill.executors.directory import clear, is_unstarted, refuse_foreign, refuse_stdin, sweep
from tokmill.sources.files import SourceFile

DATASET = [
    "plan.json",
    "manifest.json",
    "train-0000000-0000.bin",
    "train-0000000-0000.idx",
    "train-0000000-0000.mask",
    "train-0000000-0000.weight",
    "val-0000000-12345.bin",
    "packs-train-rows.bin",
    "packs-train-samples.bin",
    "packed-train-0000.bin",
    "packed-train-0000.idx",
    "packed-train-0000.mask",
    "parts/0000000.json",
    "rejects/0000000-0000.jsonl",
]


@pytest.fixture
def directory(tmp_path) -> Path:
    """A directory that holds the files of a dataset."""
    for name in [*DATASET, ".lock"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def names(directory: Path) -> set[str]:
    return {p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()}


def test_clear_removes_a_dataset_and_nothing_hidden(directory):
    (directory / ".notes").write_bytes(b"x")
    clear(directory)
    assert {path.name for path in directory.iterdir()} == {".lock", ".notes"}


def test_clear_copes_with_half_a_dataset(directory):
    for name in ("manifest.json", "train-0000000-0000.idx", "parts/0000000.json"):
        (directory / name).unlink()
    (directory / "parts").rmdir()
    clear(directory)
    assert names(directory) == {".lock"}


@pytest.mark.parametrize("name", ["thesis.tex", "train.bin", "train-1.bin", "plan.json.bak"])
def test_clear_removes_nothing_where_more_than_a_dataset_stands(directory, name):
    (directory / name).write_bytes(b"years of work")
    before = names(directory)
    with pytest.raises(StateError) as caught:
        clear(directory)
    assert str(caught.value) == (
        f"{directory}: holds more than the dataset to overwrite ({name}, …): "
        "move that away, or choose another --output"
    )
    assert names(directory) == before


def test_clear_leaves_a_directory_without_a_plan_alone(directory):
    (directory / "plan.json").unlink()
    before = names(directory)
    clear(directory)
    assert names(directory) == before


def test_sweep_removes_temporaries_alone(directory):
    before = names(directory)
    for name in (".train-0000000-0001.bin.1-ab.tmp", "parts/.x.tmp", "rejects/.y.tmp"):
        (directory / name).write_bytes(b"x")
    sweep(directory)
    assert names(directory) == before


def test_only_an_empty_directory_or_hidden_files_are_nobody_s(tmp_path):
    (tmp_path / ".lock").touch()
    refuse_foreign(tmp_path)
    for name in ("b", "a"):
        (tmp_path / name).touch()
    with pytest.raises(StateError, match=r"holds files but no plan of a run \(a, …\): choose an"):
        refuse_foreign(tmp_path)


def test_standard_input_is_not_continued(tmp_path):
    file = SourceFile("in.jsonl", "jsonl", "", 1, 1, "")
    refuse_stdin([file], tmp_path)
    with pytest.raises(StateError, match="standard input cannot be continued"):
        refuse_stdin([file, SourceFile("-", "jsonl", "", 0, 0, "")], tmp_path)


def test_a_run_is_unstarted_until_its_first_record(directory):
    assert not is_unstarted(directory)
    (directory / "parts" / "0000000.json").rename(directory / "parts" / "0000000-0000.json")
    assert not is_unstarted(directory)
    (directory / "parts" / "0000000-0000.json").unlink()
    assert is_unstarted(directory)
    (directory / "plan.json").unlink()
    assert not is_unstarted(directory)
