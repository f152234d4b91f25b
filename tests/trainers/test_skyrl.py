"""Rows for SkyRL: whole chats with a mask of 0 and 1, read with pyarrow alone."""

from __future__ import annotations

import pytest

from tests.trainers.test_hf_datasets import read
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


@pytest.mark.parametrize("name", ["chats", "unpacked"])
def test_a_row_is_a_chat_with_its_whole_mask(name: str, request, tmp_path) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "skyrl", tmp_path / "e", ExportOptions(), check=True)
    split = dataset.split("train")
    assert read(tmp_path / "e" / "train") == [
        {"input_ids": split[i].tolist(), "loss_mask": split.mask(i).tolist()}
        for i in range(len(split))
    ]
    assert made.usage == (
        f"""'pretokenized_dataset_paths=["{tmp_path / "e" / "train"}"]'\n"""
        f"""'eval_pretokenized_dataset_paths=["{tmp_path / "e" / "val"}"]'"""
    )
    assert made.checked is not None


def test_skyrl_is_for_chats(single: Dataset, tmp_path) -> None:
    with pytest.raises(UsageError, match="SkyRL is for chats with loss masks"):
        export(single.directory, "skyrl", tmp_path / "e", ExportOptions())
