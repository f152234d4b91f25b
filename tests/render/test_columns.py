from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokmill.render.columns import documents, joined
from tokmill.values import RAW_LIMIT_BYTES, Place, Reject

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string())])


def test_columns_and_literals_are_joined_row_by_row():
    column = pa.array(["x", "", "猫"])
    assert joined(column, ":", column, "。").to_pylist() == ["x:x。", ":。", "猫:猫。"]


def test_one_column_alone_is_given_as_it_is():
    column = pa.array(["x", "y"])
    assert joined(column) is column


def test_documents_without_an_empty_one_are_all_rows(records):
    rows = [{"a": "x"}, {"a": "y"}]
    batch = documents(records(rows, SCHEMA), pa.array(["x", "y"]), np.zeros(2, bool))
    assert batch.text.type == pa.large_string()
    assert batch.text.to_pylist() == ["x", "y"]
    assert batch.rows.tolist() == [0, 1]
    assert batch.rejects == []


def test_a_batch_without_rows_gives_no_documents(records):
    batch = documents(records([], SCHEMA), pa.array([], pa.string()), np.zeros(0, bool))
    assert (len(batch.text), batch.rows.tolist(), batch.rejects) == (0, [], [])
    assert batch.text.type == pa.large_string()


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ({"a": "", "c": "x"}, "empty", "all texts of the record are empty"),
        ({"a": None}, "empty", "all texts of the record are empty"),
        ({"c": "x", "d": 1}, "no such fields", "expected any of a, b; found c, d"),
        ({}, "no such fields", "expected any of a, b; found no keys"),
    ],
)
def test_an_empty_record_says_whether_its_keys_or_its_texts_were_missing(
    records, row, reason, message
):
    batch = documents(
        records([{"a": "x"}, row], SCHEMA), pa.array(["x", ""]), np.array([False, True])
    )
    assert [(r.place, r.reason, r.message) for r in batch.rejects] == [
        (Place(2, 10), reason, message)
    ]
    assert batch.text.to_pylist() == ["x"]


def test_all_records_may_be_rejected_in_order(records):
    rows = [{"a": ""}] * 3
    batch = documents(records(rows, SCHEMA), pa.array([""] * 3), np.ones(3, bool))
    assert len(batch.text) == 0
    assert [reject.place.line for reject in batch.rejects] == [1, 2, 3]


def test_a_reject_keeps_no_more_than_the_limit(records):
    batch = documents(records([{"c": "x" * 5000}], SCHEMA), pa.array([""]), np.ones(1, bool))
    (reject,) = batch.rejects
    assert isinstance(reject, Reject)
    assert len(reject.raw) == RAW_LIMIT_BYTES
