"""Records as JSON text, for recipes that read nested records of different shapes, such as chats.

With the schema `WHOLE_RECORD` (see `values`), every format yields one column: the JSON of a record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.sources.utf8 import Bytes


def wants_record_json(schema: pa.Schema) -> bool:
    """Return whether a schema asks for records as JSON."""
    return bool(schema.names == [WHOLE_RECORD])


def columns_to_read(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the columns of a file, out of `names`, that must be read for a schema."""
    if wants_record_json(schema):
        return list(dict.fromkeys(names))
    return [name for name in dict.fromkeys(schema.names) if name in names]


def text_batch(
    data: Bytes, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """Return the spans of `data`, (n,) int64 each, as records; they are JSON in valid UTF-8."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(stops - starts, out=offsets[1:])
    view = memoryview(data)
    text = b"".join([view[start:stop] for start, stop in zip(starts, stops, strict=True)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return _batch(pa.Array.from_buffers(pa.large_string(), len(starts), buffers))


def row_batch(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the rows of a table as JSON, and the reasons of rows that cannot be: null there."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        texts: list[str | None] = [_as_json(row) for row in rows]
    except (UnicodeDecodeError, ValueError):
        return _one_by_one(batch)
    return _batch(pa.array(texts, pa.large_string())), {}


def _one_by_one(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    for i in range(batch.num_rows):
        try:
            texts.append(_as_json(batch.slice(i, 1).to_pylist()[0]))
        except (UnicodeDecodeError, ValueError) as error:
            bad[i] = f"cannot be read as text: {error}"
            texts.append(None)
    return _batch(pa.array(texts, pa.large_string())), bad


def _as_json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as text: bytes are decoded, dates and decimals written."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def json_text(text: pa.StringArray, name: str) -> pa.RecordBatch:
    """Return texts, without nulls, as JSON records with the single key `name`."""
    rows = [json.dumps({name: value}, ensure_ascii=False) for value in text.to_pylist()]
    return _batch(pa.array(rows, pa.large_string()))


def _batch(text: pa.LargeStringArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([text], names=[WHOLE_RECORD])
