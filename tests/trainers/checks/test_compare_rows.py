"""What a check compares, and what it says of a difference."""

from __future__ import annotations

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import VerifyError
from tokmill.trainers.checks.compare_rows import check_count, check_equal
from tokmill.trainers.layouts.rows import DocumentRows
from tokmill.trainers.source import ExportSource


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


def test_a_missing_row_is_named(single: Dataset) -> None:
    rows = DocumentRows(ExportSource(single.directory), "val")
    check_count(rows.n_rows, rows, "here")
    with pytest.raises(VerifyError, match=rf"expected {rows.n_rows} rows, found 3"):
        check_count(3, rows, "here")
