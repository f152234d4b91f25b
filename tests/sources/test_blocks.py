from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokmill.settings.schema import InputSettings
from tokmill.sources.blocks import BytesBlock, Reading, span_records
from tokmill.values import RecordPlace


def test_spans_give_place_bytes_and_keys():
    data = b"..one...two" + b"x" * 2000
    reading = Reading(InputSettings(), pa.schema([]), 1 << 20)
    block = BytesBlock(data, RecordPlace(10, 100), reading, lambda _: records)
    records = span_records(
        [block],
        [0],
        data,
        (np.array([2, 7, 7, 8]), np.array([5, 7, 7, 2011])),
        pa.RecordBatch.from_struct_array(pa.nulls(2, pa.struct([]))),
        np.array([0, 3]),
        {},
        lambda line: {line.decode()[:3]: len(line)},
    )
    assert records.places.tolist() == [[11, 102], [14, 108]]
    assert (records.raw(0), records.raw(1)) == (b"one", b"two" + b"x" * 1021)
    assert records.keys(1) == ["two"]
