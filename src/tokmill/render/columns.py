"""Column operations that the renderers share."""

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
    """Concatenate columns and literals row by row; there is at least one column."""
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*map(_typed, pieces), _typed(""))


def _typed(piece: pa.StringArray | str) -> pa.StringArray | pa.StringScalar:
    # Arrow takes 50 µs to find out that a str is text: with small blocks, as long as the joining.
    return pa.scalar(piece, pa.string()) if isinstance(piece, str) else piece


def documents(
    records: Records, text: pa.StringArray, empty: npt.NDArray[np.bool_]
) -> DocumentBatch:
    """Give the rows of `text` that are not `empty` as documents, the others as rejects."""
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
