"""Functions on Arrow columns that the built-in renderers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.values import DocumentBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.values import Records, Reject


def joined(*pieces: pa.StringArray | str) -> pa.StringArray:
    """Return columns and literals joined row by row; at least one is a column."""
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*map(_typed, pieces), _typed(""))


def _typed(piece: pa.StringArray | str) -> pa.StringArray | pa.StringScalar:
    # A plain str costs Arrow 50 µs to convert: as much as joining a small block.
    return pa.scalar(piece, pa.string()) if isinstance(piece, str) else piece


def documents(
    records: Records, text: pa.StringArray, empty: npt.NDArray[np.bool_]
) -> DocumentBatch:
    """Return a document for each row of `text`; rows that are `empty` become rejects."""
    rows = np.arange(len(text), dtype=np.int64)
    rejects: list[Reject] = []
    if empty.any():
        fields = records.batch.schema.names
        rejects = [_empty_reject(records, int(row), fields) for row in rows[empty]]
        rows = rows[~empty]
        text = text.filter(pa.array(~empty))
    return DocumentBatch(text.cast(pa.large_string()), rows, rejects)


def _empty_reject(records: Records, row: int, fields: Sequence[str]) -> Reject:
    keys = records.lookup.keys(row)
    if set(keys) & set(fields):
        reason, message = "empty", "all texts of the record are empty"
    else:
        reason = "no such fields"
        message = f"expected any of {', '.join(fields)}; found {', '.join(keys) or 'no keys'}"
    return records.reject(row, reason, message)
