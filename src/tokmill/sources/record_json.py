"""Whole records as JSON text, for readers that take a record's keys as they come.

Chats are nested, and their records differ in shape, so no schema of columns holds them all. Asked
for with the schema `WHOLE_RECORD` (see `batch`), every format gives one column: the record's JSON.
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

    from tokmill.sources.blocks import Bytes


def is_whole(schema: pa.Schema) -> bool:
    """Say whether whole records are asked for."""
    return bool(schema.names == [WHOLE_RECORD])


def wanted_names(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Give the columns of a file, out of `names`, that must be read for a schema."""
    if is_whole(schema):
        return list(dict.fromkeys(names))
    return [name for name in dict.fromkeys(schema.names) if name in names]


def text_batch(
    data: Bytes, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """Give the whole records that stand in `data` as JSON, in valid UTF-8: (n,) spans of bytes."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(stops - starts, out=offsets[1:])
    view = memoryview(data)
    text = b"".join([view[start:stop] for start, stop in zip(starts, stops, strict=True)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return _batch(pa.Array.from_buffers(pa.large_string(), len(starts), buffers))


def row_batch(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Give the rows of a table as whole records, and why some cannot be: null there."""
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
    """Give what JSON has for a value that it lacks: bytes are text, dates and decimals strings."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def json_text(text: pa.StringArray, name: str) -> pa.RecordBatch:
    """Give texts, without nulls, as whole records with the one key `name`."""
    rows = [json.dumps({name: value}, ensure_ascii=False) for value in text.to_pylist()]
    return _batch(pa.array(rows, pa.large_string()))


def _batch(text: pa.LargeStringArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([text], names=[WHOLE_RECORD])
