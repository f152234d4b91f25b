"""Groups of shards that get tokens of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.blend import groups, paths_of_shards
from tokmill.trainers.source import ExportSource


def write(path: Path, word: str, n: int) -> Path:
    rows = [{"text": f"{word} " * (10 + i)} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def three(tmp_path_factory, pretrained) -> Dataset:
    """A dataset of three input files in parts of their own, with a val split."""
    folder = tmp_path_factory.mktemp("three")
    paths = [write(folder / f"{name}.jsonl", name, 40) for name in ("books", "code", "wiki")]
    return tokmill.pretrain(
        paths, tokenizer=pretrained.manifest["tokenizer"]["name"], output=folder / "out",
        part_bytes=4096, val_fraction=0.2, progress=False,
    )  # fmt: skip


def test_without_tokens_a_split_is_a_group(three) -> None:
    found = groups(ExportSource(three.directory), ())
    assert [(one.split, one.folder, one.wanted) for one in found] == [
        ("train", "", 0),
        ("val", "", 0),
    ]
    assert sum(one.n_tokens for one in found) == three.n_tokens


def test_every_shard_is_known_to_be_of_its_file(three) -> None:
    source = ExportSource(three.directory)
    found = paths_of_shards(source)
    assert set(found) == {shard.name for shard in three.shards}
    number = 0
    for shard in three.shards:
        (path,) = found[shard.name]
        part = three.split(shard.split)
        first = sum(one.documents for one in part.shards if one.name < shard.name)
        for i in range(first, first + shard.documents):
            assert part.text(i).startswith(Path(path).stem)
            number += 1
    assert number == len(three) == 120


def test_a_dataset_of_one_file_needs_no_records(pretrained) -> None:
    source = ExportSource(pretrained.directory)
    path = source.manifest["sources"][0]["path"]
    assert paths_of_shards(source) == {shard.name: [path] for shard in pretrained.shards}


def test_a_lost_record_is_an_error(three, tmp_path) -> None:
    copy = Path(shutil.copytree(three.directory, tmp_path / "copy"))
    part = three.shards[-1].name.split("-")[1]
    (copy / "parts" / f"{part}.json").unlink()
    with pytest.raises(VerifyError, match=rf"{part}\.json: damaged or missing record"):
        paths_of_shards(ExportSource(copy))


def test_train_is_divided_by_source_and_val_is_not(three) -> None:
    tokens = ["books.jsonl=2k", "*/code.jsonl=1.5k", "w*=500"]
    found = groups(ExportSource(three.directory), tokens)
    assert [(one.label, one.split, one.wanted) for one in found] == [
        ("books.jsonl", "train", 2000),
        ("*/code.jsonl", "train", 1500),
        ("w*", "train", 500),
        (str(three.directory), "val", 0),
    ]
    names = [entry["name"] for one in found for entry in one.entries]
    assert sorted(names) == sorted(shard.name for shard in three.shards)


def test_the_exported_dataset_is_named_whole_or_by_its_files(three) -> None:
    tokens = [f"{three.directory}=1k", "books.jsonl=1k"]
    with pytest.raises(UsageError, match=r"is the exported dataset, and so is books\.jsonl"):
        groups(ExportSource(three.directory), tokens)


def test_chats_are_no_part_of_a_blend_of_text(pretrained, unpacked) -> None:
    with pytest.raises(UsageError, match="has another kind than"):
        groups(ExportSource(pretrained.directory), [f"{unpacked.directory}=1k"])


def test_a_dataset_under_two_names_is_refused(three, tmp_path) -> None:
    other = shutil.copytree(three.directory, tmp_path / "other")
    (tmp_path / "link").symlink_to(other)
    for first, second in ((three.directory, f"{three.directory}/."), (other, tmp_path / "link")):
        tokens = [f"{first}=1k", f"{second}/=1k"]
        with pytest.raises(UsageError, match=r"is the dataset .*: name it once"):
            groups(ExportSource(three.directory), tokens)
