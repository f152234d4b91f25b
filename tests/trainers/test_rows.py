"""Rows of a split: where parts begin, what a batch holds, and which packs are read."""

from __future__ import annotations

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.rows import DocumentRows, PackedRows, check_equal, check_rows, rows_of
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


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([1, 2], r"^here: ids: expected 3 values, found 2$"),
        ([1, 5, 3], r"^here: ids\[1\]: expected 2, found 5$"),
        ([[1, 2, 3]], r"^here: ids: expected 3 values, found 1$"),
    ],
)
def test_a_difference_is_named_with_its_place(found, message) -> None:
    with pytest.raises(VerifyError, match=message):
        check_equal(found, np.array([1, 2, 3]), "here", "ids")


def test_a_missing_row_is_named(single: Dataset, tmp_path) -> None:
    source = ExportSource(single.directory)
    rows = DocumentRows(source, "val")
    with pytest.raises(VerifyError, match=rf"val: expected {rows.n_rows} rows, found 3"):
        check_rows(source, [rows], tmp_path, lambda split: [1, 2, 3], lambda *_: None, "reader")
