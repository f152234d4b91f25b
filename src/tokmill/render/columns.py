"""Column operations that the renderers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.batch import DocumentBatch, Records, Reject

if TYPE_CHECKING:
    from collections.abc import Sequence


def joined(*pieces: pa.StringArray | str) -> pa.StringArray:
    """Concatenate columns and literals row by row; there is at least one column."""
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, "")


def documents(records: Records, text: pa.StringArray, empty: pa.BooleanArray) -> DocumentBatch:
    """Give the rows of `text` that are not `empty` as documents, the others as rejects."""
    rows = np.arange(len(text), dtype=np.int64)
    rejects: list[Reject] = []
    if pc.any(empty).as_py():
        is_empty = empty.to_numpy(zero_copy_only=False)
        fields = records.batch.schema.names
        rejects = [_empty_reject(records, int(row), fields) for row in rows[is_empty]]
        rows = rows[~is_empty]
        text = text.filter(pc.invert(empty))
    return DocumentBatch(text.cast(pa.large_string()), rows, rejects)


def _empty_reject(records: Records, row: int, fields: Sequence[str]) -> Reject:
    keys = records.lookup.keys(row)
    if set(keys) & set(fields):
        reason, message = "empty", "all texts of the record are empty"
    else:
        reason = "no such fields"
        message = f"expected any of {', '.join(fields)}; found {', '.join(keys) or 'no keys'}"
    return Reject(records.lookup.place(row), reason, message, records.lookup.raw(row))
