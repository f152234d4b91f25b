"""What a check compares, and what it says of a difference."""

from __future__ import annotations

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import VerifyError
from tokmill.trainers.checks.compare_rows import check_count, check_equal, compared, expected_rows
from tokmill.trainers.layouts.rows import DocumentRows, PackedRows
from tokmill.trainers.source import ExportSource


def test_samples_come_from_the_dataset_one_by_one(chats: Dataset) -> None:
    source = ExportSource(chats.directory)
    split, packs = chats.split("val"), chats.packs["val"]
    found = list(expected_rows(source, PackedRows(source, "val", source.packs["val"])))
    for row, samples in enumerate(found):
        numbers = packs.row(row).tolist()
        assert [one.ids.tolist() for one in samples] == [split[n].tolist() for n in numbers]
        masks = [split.mask(n) == 1 for n in numbers]
        assert [one.is_trained.tolist() for one in samples] == [mask.tolist() for mask in masks]
        for one in samples:
            assert (one.labels[one.is_trained] == one.ids[one.is_trained]).all()
            assert (one.labels[~one.is_trained] == -100).all()
    assert len(found) == packs.n_rows


def test_every_token_of_pretraining_is_trained(single: Dataset) -> None:
    source = ExportSource(single.directory)
    rows = list(expected_rows(source, DocumentRows(source, "val")))
    assert [len(samples) for samples in rows] == [1] * len(single.split("val"))
    assert all(samples[0].is_trained.all() for samples in rows)


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


def test_equal_values_of_another_type_are_equal() -> None:
    check_equal([1, 2, 3], np.array([1, 2, 3], np.uint16), "here", "ids")
    check_equal(np.array([], np.float64), np.array([], np.int64), "here", "ids")


def test_a_missing_row_is_named(single: Dataset) -> None:
    rows = DocumentRows(ExportSource(single.directory), "val")
    check_count(rows.n_rows, rows, "here")
    with pytest.raises(VerifyError, match=rf"expected {rows.n_rows} rows, found 3"):
        check_count(3, rows, "here")


def test_what_was_compared_is_counted_over_all_splits(chats: Dataset) -> None:
    source = ExportSource(chats.directory)
    plain = [DocumentRows(source, split) for split in source.splits]
    packs = [PackedRows(source, split, source.packs[split]) for split in source.splits]
    text = f"{len(chats)} documents, {chats.n_tokens:,} tokens"
    assert compared(plain) == text
    assert compared(packs) == f"{text} in {sum(one.n_rows for one in packs)} packs"
