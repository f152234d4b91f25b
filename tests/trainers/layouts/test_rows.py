"""Rows of a split: where parts begin, what a batch holds, and which packs are read."""

from __future__ import annotations

import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.layouts.rows import PackedRows, rows_of
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.source import ExportSource


@pytest.fixture
def packed(chats: Dataset) -> PackedRows:
    source = ExportSource(chats.directory)
    return PackedRows(source, "train", source.packs["train"])


def test_options_choose_the_rows(chats: Dataset, unpacked: Dataset) -> None:
    with_packs, without = ExportSource(chats.directory), ExportSource(unpacked.directory)
    found = rows_of(with_packs, "train", ExportOptions())
    assert found.packs is with_packs.packs["train"]
    assert rows_of(with_packs, "train", ExportOptions(unpacked=True)).packs is None
    assert rows_of(without, "train", ExportOptions()).packs is None
    made = rows_of(without, "train", ExportOptions(packing=4096)).packs
    assert made is not None
    assert made.samples.tolist() == chats.packs["train"].samples.tolist()
    assert made.row_offsets.tolist() == chats.packs["train"].row_offsets.tolist()


def test_unpacked_text_is_refused(pretrained: Dataset) -> None:
    with pytest.raises(UsageError, match="--unpacked is for packs, and this dataset has none"):
        rows_of(ExportSource(pretrained.directory), "train", ExportOptions(unpacked=True))
