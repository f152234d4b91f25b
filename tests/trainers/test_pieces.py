"""Exports of documents that are cut and packed: each row, or each piece, as the index says."""

from __future__ import annotations

from itertools import pairwise

import pyarrow.parquet as pq
import pytest
import yaml

import tokmill
from tests.trainers.test_hf_datasets import read
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

SPLITS = ("train", "val")


def ours(dataset: Dataset, split: str) -> list[list[list[int]]]:
    """Return the ids of the pieces of every row."""
    packs, documents = dataset.packs[split], dataset.split(split)
    return [
        [
            documents[number][span].tolist()
            for number, span in zip(packs.row(row), packs.row_pieces(row), strict=True)
        ]
        for row in range(packs.n_rows)
    ]


def joined(row: list[list[int]]) -> list[int]:
    return [token for piece in row for token in piece]


def labels(row: list[list[int]]) -> list[int]:
    return [label for piece in row for label in (-100, *piece[1:])]


def test_trl_gets_rows_with_the_lengths_of_their_pieces(pieces: Dataset, tmp_path) -> None:
    made = export(pieces.directory, "trl", tmp_path / "e", ExportOptions())
    for split in SPLITS:
        assert read(tmp_path / "e" / split) == [
            {"input_ids": joined(row), "seq_lengths": list(map(len, row))}
            for row in ours(pieces, split)
        ]
    assert "padding_free=True" in made.usage
    assert "skip_prepare_dataset" in made.usage
    assert "cu_seq_lens" in made.notes[0]


def test_datasets_gets_labels_within_pieces(pieces: Dataset, tmp_path) -> None:
    export(pieces.directory, "datasets", tmp_path / "e", ExportOptions())
    for split in SPLITS:
        assert read(tmp_path / "e" / split) == [
            {"input_ids": joined(row), "labels": labels(row), "seq_lengths": list(map(len, row))}
            for row in ours(pieces, split)
        ]


@pytest.mark.parametrize("trainer", ["trl", "datasets"])
def test_the_documents_can_be_exported_whole(trainer, pieces, pretrained, tmp_path) -> None:
    export(pieces.directory, trainer, tmp_path / "e", ExportOptions(unpacked=True))
    export(pretrained.directory, trainer, tmp_path / "f", ExportOptions())
    for split in SPLITS:
        assert read(tmp_path / "e" / split) == read(tmp_path / "f" / split)


def test_axolotl_which_packs_itself_gets_pieces(pieces: Dataset, tmp_path) -> None:
    made = export(pieces.directory, "axolotl", tmp_path / "e", ExportOptions())
    for split in SPLITS:
        assert read(tmp_path / "e" / split) == [
            {"input_ids": piece, "attention_mask": [1] * len(piece), "labels": [-100, *piece[1:]]}
            for row in ours(pieces, split)
            for piece in row
        ]
    assert yaml.safe_load(made.usage)["sequence_len"] == 100


@pytest.mark.parametrize("multiple", [1, 4])
def test_megatron_bridge_gets_pieces_that_train_something(pieces, tmp_path, multiple) -> None:
    options = ExportOptions(pad_samples_to=multiple)
    made = export(pieces.directory, "megatron-bridge", tmp_path / "e", options)
    assert made.mask_alignment == "predictor"
    for split in SPLITS:
        found = []
        rows = pq.read_table(tmp_path / "e" / f"{split}.idx.parquet").to_pylist()
        for row in rows:
            ends = [*row["seq_start_id"], len(row["input_ids"])]
            assert len(row["input_ids"]) - len(row["seq_start_id"]) <= 100
            for start, stop in pairwise(ends):
                n = sum(row["loss_mask"][start:stop]) + 1
                assert row["loss_mask"][start:stop] == [1] * (n - 1) + [0] * (stop - start - n + 1)
                assert (stop - start - 1) % multiple == 0
                found.append(row["input_ids"][start : start + n])
        expected = [piece for row in ours(pieces, split) for piece in row if len(piece) > 1]
        assert found == expected if multiple == 1 else sorted(found) == sorted(expected)


def test_rows_of_lone_tokens_are_left_out_for_megatron_bridge(make_dataset, tmp_path) -> None:
    directory, _ = make_dataset({"train-0000000-0000": [[5, 6, 7, 2], [2], [8, 9, 3, 4]]})
    assert ours(tokmill.pack(directory, 4), "train") == [[[5, 6, 7, 2]], [[2]], [[8, 9, 3, 4]]]
    export(directory, "megatron-bridge", tmp_path / "e", ExportOptions())
    rows = pq.read_table(tmp_path / "e" / "train.idx.parquet").to_pylist()
    assert [row["input_ids"] for row in rows] == [[5, 6, 7, 2], [8, 9, 3, 4]]


def test_a_split_of_lone_tokens_is_refused_for_megatron_bridge(make_dataset, tmp_path) -> None:
    directory, _ = make_dataset({"train-0000000-0000": [[2], [2], [2]]})
    tokmill.pack(directory, 4)
    with pytest.raises(UsageError, match="all documents of train are single tokens"):
        export(directory, "megatron-bridge", tmp_path / "e", ExportOptions())


def test_other_exports_do_not_see_packs(pieces: Dataset, pretrained: Dataset, tmp_path) -> None:
    for name, dataset in (("e", pieces), ("f", pretrained)):
        export(dataset.directory, "nanogpt", tmp_path / name, ExportOptions())
    files = [path.name for path in (tmp_path / "f").glob("*.bin")]
    assert [(tmp_path / "e" / name).read_bytes() for name in files] == [
        (tmp_path / "f" / name).read_bytes() for name in files
    ]


def test_new_packs_are_made_by_tokmill_pack(pieces: Dataset, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"run tokmill pack \S+ --length 64 first"):
        export(pieces.directory, "trl", tmp_path / "e", ExportOptions(packing=64))
