"""Rows for TRL: samples or packs, in its columns, read with pyarrow alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.test_hf_datasets import labels_of, read
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def samples(split: Dataset) -> list[tuple[list[int], list[int]]]:
    return [(split[i].tolist(), labels_of(split, i)) for i in range(len(split))]


def in_row(row: dict[str, list[int]]) -> list[tuple[list[int], list[int]]]:
    """Return the samples of a pack as its `seq_lengths` divide it."""
    stops = np.cumsum(row["seq_lengths"])
    assert stops[-1] == len(row["input_ids"]) == len(row["labels"])
    spans = [slice(stop - n, stop) for stop, n in zip(stops, row["seq_lengths"], strict=True)]
    return [(row["input_ids"][span], row["labels"][span]) for span in spans]


def test_a_packed_dataset_becomes_its_packs(chats: Dataset, tmp_path) -> None:
    made = export(chats.directory, "trl", tmp_path / "e", ExportOptions())
    for name in ("train", "val"):
        split = chats.split(name)
        ours = samples(split)
        packs = chats.packs[name]
        found = [in_row(row) for row in read(tmp_path / "e" / name)]
        assert found == [[ours[i] for i in packs.row(row)] for row in range(packs.n_rows)]
    assert list(read(tmp_path / "e" / "train")[0]) == ["input_ids", "labels", "seq_lengths"]
    assert "padding_free=True" in made.usage
    assert "cu_seq_lens" in made.notes[0]


def test_packs_are_made_of_a_dataset_without_them(unpacked: Dataset, tmp_path) -> None:
    export(unpacked.directory, "trl", tmp_path / "e", ExportOptions(packing=5000))
    rows = read(tmp_path / "e" / "train")
    found = [sample for row in rows for sample in in_row(row)]
    assert sorted(found) == sorted(samples(unpacked.split("train")))
    assert max(len(row["input_ids"]) for row in rows) <= 5000
    assert len(rows) == -(-unpacked.split("train").n_tokens // 5000)


def test_a_packed_dataset_can_be_one_row_a_sample(chats: Dataset, tmp_path) -> None:
    made = export(chats.directory, "trl", tmp_path / "e", ExportOptions(unpacked=True))
    rows = read(tmp_path / "e" / "train")
    assert [(row["input_ids"], row["labels"]) for row in rows] == samples(chats.split("train"))
    assert "padding_free=False" in made.usage


def test_pretraining_has_no_labels_and_trl_makes_the_rows(single: Dataset, tmp_path) -> None:
    made = export(single.directory, "trl", tmp_path / "e", ExportOptions())
    assert list(read(tmp_path / "e" / "train")[0]) == ["input_ids"]
    assert 'packing_strategy="wrapped"' in made.usage
    assert "skip_prepare_dataset" not in made.usage


@pytest.mark.parametrize(
    ("fixture", "options", "named"),
    [
        ("unpacked", {"packing": 100}, r"fits in no row of 100: make the rows longer"),
        ("single", {"packing": 4096}, "documents of any length"),
        ("chats", {"packing": 4096, "unpacked": True}, "exclude each other"),
        ("single", {"unpacked": True}, "--unpacked is for packs, and this dataset has none"),
    ],
)
def test_packs_that_cannot_be_made_are_refused(fixture, options, named, request, tmp_path) -> None:
    dataset = request.getfixturevalue(fixture)
    with pytest.raises(UsageError, match=named):
        export(dataset.directory, "trl", tmp_path / "e", ExportOptions(**options))
    assert list(tmp_path.iterdir()) == []
