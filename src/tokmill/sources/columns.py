"""Convert the columns of a table to a schema, and find the rows that cannot be converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.sources.blocks import too_large_message
from tokmill.sources.json_lines import parse_lines
from tokmill.sources.record_json import row_batch, wants_record_json
from tokmill.sources.utf8 import find_bad, is_valid

if TYPE_CHECKING:
    import numpy.typing as npt

_CELL = "c"


class BadRow(NamedTuple):
    """A row that cannot be converted."""

    row: int
    reason: str
    message: str


class Fitted(NamedTuple):
    """The converted rows: a batch, the row of the input of each ((n_rows,) int64), the bad rows."""

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    bad: list[BadRow]


def fit_columns(
    batch: pa.RecordBatch, schema: pa.Schema, max_record_bytes: int, where: str
) -> Fitted:
    """Return a batch with exactly the columns of `schema`; a missing column is all null.

    Text of any Arrow type becomes `string`. Text in a column that should be a list or a struct is
    parsed as JSON. Rows with text that is not UTF-8, with JSON that does not parse, or with more
    than `max_record_bytes` of text are left out and listed, in order.

    Raises:
        UsageError: a column has a type that does not fit; `where` names the file.
    """
    if wants_record_json(schema):
        return _fit_whole(batch, max_record_bytes)
    bad: dict[int, BadRow] = {}
    columns = []
    for field in schema:
        column, failed = _fit_column(batch, field, where)
        columns.append(column)
        for failure in failed:
            bad.setdefault(failure.row, failure)
    for failure in _too_large(columns, batch.num_rows, max_record_bytes):
        bad[failure.row] = failure
    rows = np.delete(np.arange(batch.num_rows), sorted(bad))
    fitted = _as_batch(columns, schema, batch.num_rows)
    if bad:
        fitted = fitted.take(pa.array(rows))
    return Fitted(fitted, rows, [bad[row] for row in sorted(bad)])


def _fit_whole(batch: pa.RecordBatch, max_record_bytes: int) -> Fitted:
    whole, reasons = row_batch(batch)
    bad = {row: BadRow(row, "invalid UTF-8", why) for row, why in reasons.items()}
    lengths = pc.fill_null(pc.binary_length(whole.column(0)), 0).to_numpy()
    for row in np.flatnonzero(lengths > max_record_bytes).tolist():
        message = too_large_message(int(lengths[row]), max_record_bytes)
        bad[row] = BadRow(row, "record too large", message)
    rows = np.delete(np.arange(batch.num_rows), sorted(bad))
    kept = whole.take(pa.array(rows)) if bad else whole
    return Fitted(kept, rows, [bad[row] for row in sorted(bad)])


def _as_batch(columns: list[pa.Array], schema: pa.Schema, n_rows: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.nulls(n_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fit_column(
    batch: pa.RecordBatch, field: pa.Field, where: str
) -> tuple[pa.Array, list[BadRow]]:
    """Return a column as the type of its field, with null in bad rows, and these rows."""
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type), []
    column = batch.column(index)
    if pa.types.is_nested(field.type) and _is_text(column.type):
        text = fit_array(column, pa.string())
        bad = _bad_text(text)
        return _parse_cells(_without(text, bad), field.type, bad)
    fitted = fit_array(column, field.type)
    if fitted is None:
        message = f"expected {field.type}, found {column.type}"
        raise UsageError(f"{where}: column {field.name!r}: {message}; name another column")
    bad = _bad_text(fitted)
    return _without(fitted, bad), bad


def fit_array(array: pa.Array, want: pa.DataType) -> pa.Array | None:
    """Return the array as type `want`, or None if it cannot be; text is not checked."""
    have = array.type
    if have.equals(want):
        return array
    if pa.types.is_null(have):
        return pa.nulls(len(array), want)
    if pa.types.is_dictionary(have):
        return fit_array(array.dictionary_decode(), want)
    if pa.types.is_string(want) and _is_text(have):
        return _as_string(array)
    if pa.types.is_list(want) and _is_list(have):
        return _fit_list(array, want)
    if pa.types.is_struct(want) and pa.types.is_struct(have):
        return _fit_struct(array, want)
    return None


def _as_string(array: pa.Array) -> pa.Array:
    # Via binary: a cast to string checks the text, and one bad row would fail the whole array.
    if array.type in (pa.binary(), pa.string()):
        return array.view(pa.string())
    return array.cast(pa.binary()).view(pa.string())


def _is_text(have: pa.DataType) -> bool:
    if pa.types.is_dictionary(have):
        return _is_text(have.value_type)
    kinds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(is_kind(have) for is_kind in kinds)


def _is_list(have: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(have) for is_kind in kinds)


def _fit_list(array: pa.Array, want: pa.DataType) -> pa.Array | None:
    # flatten() leaves out values under nulls and outside the slice; so do the new offsets.
    values = fit_array(array.flatten(), want.value_type)
    if values is None:
        return None
    lengths = pc.if_else(array.is_valid(), pc.list_value_length(array), 0)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    nulls = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=want, mask=nulls)


def _fit_struct(array: pa.Array, want: pa.DataType) -> pa.Array | None:
    children = []
    for field in want:
        index = array.type.get_field_index(field.name)
        have = pa.nulls(len(array), field.type) if index < 0 else array.field(index)
        child = fit_array(have, field.type)
        if child is None:
            return None
        children.append(child)
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(want), mask=nulls)


def _bad_text(array: pa.Array) -> list[BadRow]:
    """Return the rows whose text is not UTF-8."""

    def are_good(first: int, last: int) -> bool:
        # take() copies these rows; a slice would be checked with the buffers of all rows
        is_all = last - first == len(array)
        return is_valid(array if is_all else array.take(pa.array(range(first, last))))

    rows = find_bad(len(array), are_good)
    return [BadRow(row, "invalid UTF-8", "text that is not UTF-8") for row in rows]


def _without(array: pa.Array, bad: list[BadRow]) -> pa.Array:
    """Return the array with null in the bad rows."""
    if not bad:
        return array
    rows = np.arange(len(array))
    gone = np.isin(rows, [failure.row for failure in bad])
    return array.take(pa.array(rows, mask=gone))


def _parse_cells(
    text: pa.Array, want: pa.DataType, bad: list[BadRow]
) -> tuple[pa.Array, list[BadRow]]:
    """Parse each cell with the JSON parser of this package; an empty cell is null."""
    cells = pc.fill_null(text.cast(pa.large_string()), "")
    cells = pc.replace_substring_regex(cells, "[\r\n]", " ")
    cells = pc.if_else(pc.equal(pc.utf8_trim_whitespace(cells), ""), "null", cells)
    around = (pa.scalar(text, pa.large_string()) for text in (f'{{"{_CELL}":', "}\n", ""))
    opening, closing, nothing = around
    lines = pc.binary_join_element_wise(opening, cells, closing, nothing)
    data = b"".join(lines.cast(pa.large_binary()).to_pylist())
    parsed = parse_lines(data, pa.schema([(_CELL, want)]))
    places = np.full(len(text), -1, dtype=np.int64)
    places[parsed.rows] = np.arange(len(parsed.rows))
    column = parsed.batch.column(0).take(pa.array(places, mask=places < 0))
    failed = [BadRow(row, *why) for row, why in sorted(parsed.refused.items())]
    return column, [*bad, *failed]


def _too_large(columns: list[pa.Array], n_rows: int, limit: int) -> list[BadRow]:
    if sum(column.nbytes for column in columns) <= limit:  # then no row is too large
        return []
    sizes = np.zeros(n_rows, dtype=np.int64)
    for column in columns:
        sizes += _text_bytes(column)
    over = np.flatnonzero(sizes > limit).tolist()
    return [
        BadRow(row, "record too large", too_large_message(int(sizes[row]), limit)) for row in over
    ]


def _text_bytes(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of text in each row: (n_rows,) int64."""
    sizes = np.zeros(len(array), dtype=np.int64)
    if pa.types.is_string(array.type):
        sizes += pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            sizes += _text_bytes(child)
    elif pa.types.is_list(array.type):
        parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        np.add.at(sizes, parents, _text_bytes(array.flatten()))
    return sizes
