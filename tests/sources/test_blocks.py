from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokmill.sources.blocks import RowLookup, SpanLookup, first_bytes
from tokmill.values import RecordPlace


def test_spans_give_place_bytes_and_keys():
    lookup = SpanLookup(
        b"..one...two" + b"x" * 2000,
        np.array([2, 8]),
        np.array([5, 2011]),
        np.array([0, 3]),
        RecordPlace(10, 100),
        lambda line: {line.decode()[:3]: len(line)},
    )
    assert (lookup.place(0), lookup.place(1)) == (RecordPlace(11, 102), RecordPlace(14, 108))
    assert lookup.raw(0) == b"one"
    assert lookup.raw(1) == b"two" + b"x" * 1021
    assert lookup.record(1) == {"two": 2003}
    assert lookup.keys(1) == ["two"]


def test_rows_give_place_json_and_columns():
    batch = pa.RecordBatch.from_pydict({"t": ["a", "b" * 2000]})
    lookup = RowLookup(batch, np.array([1]), 4, ["t", "u"])
    assert lookup.place(0) == RecordPlace(6, -1)
    assert lookup.raw(0) == b'{"t": "' + b"b" * 1017
    assert lookup.keys(0) == ["t", "u"]


def test_first_bytes_are_bounded():
    assert first_bytes(bytearray(b"abc"), 1, 3) == b"bc"
    assert len(first_bytes(bytes(5000), 0, 5000)) == 1024
