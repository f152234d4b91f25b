"""Rows for axolotl: its three columns, with its own types, read with pyarrow alone."""

from __future__ import annotations

import pytest
import yaml

import tokmill
from tests.fixtures.datasets import CHATS, TOKENIZER
from tests.trainers.test_hf_datasets import labels_of, read
from tokmill.api.dataset import Dataset
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def test_rows_have_exactly_the_three_columns(chats: Dataset, tmp_path) -> None:
    made = export(chats.directory, "axolotl", tmp_path / "e", ExportOptions())
    split = chats.split("train")
    assert read(tmp_path / "e" / "train") == [
        {
            "input_ids": split[i].tolist(),
            "attention_mask": [1] * len(split[i]),
            "labels": labels_of(split, i),
        }
        for i in range(len(split))
    ]
    assert made.mask_alignment == "target"


def test_the_usage_is_yaml_with_an_empty_type(chats: Dataset, wide: Dataset, tmp_path) -> None:
    made = export(chats.directory, "axolotl", tmp_path / "e", ExportOptions())
    path = str(tmp_path / "e")
    assert yaml.safe_load(made.usage) == {
        "datasets": [{"path": path, "split": "train", "type": None}],
        "test_datasets": [{"path": path, "split": "val", "type": None}],
        "sequence_len": 4096,
        "sample_packing": True,
    }
    one = export(wide.directory, "axolotl", tmp_path / "f", ExportOptions())
    assert "test_datasets" not in yaml.safe_load(one.usage)


def test_sequence_len_has_room_for_the_longest_packed_chat(tmp_path) -> None:
    dataset = tokmill.sft(
        CHATS, tokenizer=TOKENIZER, output=tmp_path / "out", packing=8192, progress=False
    )
    made = dataset.export("axolotl", tmp_path / "e")
    assert yaml.safe_load(made.usage)["sequence_len"] == 8192


@pytest.mark.parametrize("name", ["a: b # c", 'it\'s "here" \\', "two\nlines", "{数据}", "- x"])
def test_the_usage_is_yaml_for_every_name(unpacked: Dataset, tmp_path, name: str) -> None:
    made = unpacked.export("axolotl", tmp_path / name)
    assert yaml.safe_load(made.usage)["datasets"][0]["path"] == str(tmp_path / name)
