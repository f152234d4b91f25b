"""Documents by number for Grain and torchtitan, with labels that are shifted already."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import VerifyError
from tokmill.trainers import document_files
from tokmill.trainers.document_files import DocumentFiles
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def shifted(split: Dataset, number: int) -> tuple[list[int], list[int]]:
    """Return inputs and labels of a document: each label is the token after its input, or -100."""
    ids = split[number].tolist()
    trained = split.mask(number).tolist() if split.kind == "sft" else [1] * len(ids)
    labels = [token if on else -100 for token, on in zip(ids, trained, strict=True)]
    return ids[:-1], labels[1:]


def all_of(files: DocumentFiles) -> list[tuple[list[int], list[int]]]:
    rows = [files[i] for i in range(len(files))]
    return [(row["input_ids"].tolist(), row["labels"].tolist()) for row in rows]


@pytest.mark.parametrize("name", ["pretrained", "single", "wide", "chats", "unpacked"])
@pytest.mark.parametrize("merge", [False, True])
def test_every_document_comes_with_its_labels(name: str, merge: bool, tmp_path, request) -> None:
    dataset: Dataset = request.getfixturevalue(name)
    export(dataset.directory, "torchtitan", tmp_path / "e", ExportOptions(merge=merge))
    for one in dataset.splits:
        split = dataset.split(one)
        found = DocumentFiles(tmp_path / "e" / one)
        assert all_of(found) == [shifted(split, i) for i in range(len(split))]
        assert found[0]["input_ids"].dtype == found[0]["labels"].dtype == np.int64
        assert len(found.tokens) == 1 or not merge


def test_bodies_and_masks_are_links_to_the_shards(chats: Dataset, tmp_path) -> None:
    made = export(chats.directory, "torchtitan", tmp_path / "e", ExportOptions())
    shards = [shard.name for shard in chats.split("train").shards]
    assert len(shards) > 1
    for i, shard in enumerate(shards):
        for name, ending in (("tokens", "bin"), ("mask", "mask")):
            linked = tmp_path / "e" / "train" / f"{name}-{i:05d}.bin"
            assert linked.samefile(chats.directory / f"{shard}.{ending}")
    assert made.new_bytes < 8 * (len(chats) + 4) + 6000
    assert made.mask_alignment == "target"


def test_a_pickled_source_carries_no_tokens(single: Dataset, tmp_path) -> None:
    export(single.directory, "torchtitan", tmp_path / "e", ExportOptions())
    found = DocumentFiles(tmp_path / "e" / "train")
    data = pickle.dumps(found)
    assert len(data) < 500
    assert all_of(pickle.loads(data))[:3] == all_of(found)[:3]


def test_the_reader_stands_in_the_export_and_needs_numpy_alone(single, tmp_path) -> None:
    export(single.directory, "torchtitan", tmp_path / "e", ExportOptions())
    text = (tmp_path / "e" / "document_files.py").read_text()
    assert text == Path(document_files.__file__).read_text()
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if "import " in line}
    assert "tokmill" not in imported - {"export"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["pretrained", "chats", "wide"])
def test_grain_returns_every_document(name: str, tmp_path, request) -> None:
    pytest.importorskip("grain.python", reason="the oracle is not installed: make oracles")
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "grain", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("grain ")
    assert made.checked.compared.startswith(f"{len(dataset):,} documents, ")


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_offset_is_found(pretrained, tmp_path, monkeypatch) -> None:
    pytest.importorskip("grain.python", reason="the oracle is not installed: make oracles")

    def wrong(source, split, file) -> None:
        offsets = np.cumsum([0, *(len(one) for one in pretrained.split(split))])
        offsets[1] += 1
        np.save(file, offsets)

    monkeypatch.setattr("tokmill.trainers.torchtitan._write_offsets", wrong)
    with pytest.raises(VerifyError, match="row 0 of train: input_ids: expected"):
        export(pretrained.directory, "grain", tmp_path / "e", ExportOptions(), check=True)


@pytest.mark.filterwarnings("ignore")
def test_the_usage_runs_as_it_is_printed(chats, tmp_path, monkeypatch) -> None:
    pytest.importorskip("grain.python", reason="the oracle is not installed: make oracles")
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    made = export(chats.directory, "torchtitan", tmp_path / "e", ExportOptions())
    names: dict[str, Any] = {}
    exec(made.usage, names)
    found = sorted(row["labels"].tolist() for row in names["documents"])
    split = chats.split("train")
    assert found == sorted(shifted(split, i)[1] for i in range(len(split)))
