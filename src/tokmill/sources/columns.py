"""Convert the columns of a table to a schema, and find the rows that cannot be converted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.sources.bad_text import ADVICE, bytes_for_text, change_leaves, replaced_rows
from tokmill.sources.blocks import (
    INVALID_UTF8,
    Refused,
    batch_of,
    row_batch,
    too_large,
    wants_record_json,
)
from tokmill.sources.json_lines import parse_lines
from tokmill.sources.utf8 import find_bad, is_valid

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokmill.settings.schema import InputSettings

_CELL = "c"


class Fitted(NamedTuple):
    """The converted rows: a batch, and the row of the input of each, (n_rows,) int64.

    `refused`: reason and message of the other rows. `replaced`: by row of the input, the characters
    that replace what is no text. `doubtful`: by row of the input, see `Records`.
    """

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    refused: Refused
    replaced: Mapping[int, int]
    doubtful: Refused


def fit_columns(
    batch: pa.RecordBatch, schema: pa.Schema, settings: InputSettings, where: str
) -> Fitted:
    """Return a batch with exactly the columns of `schema`; a missing column is all null.

    Numbers become those of the schema, but floating ones no whole ones. Text of any Arrow type
    becomes `string`. Text in a column that should be a list or a struct is parsed as JSON. Rows
    with text that is not UTF-8, with JSON that does not parse, or with more than `max_record_bytes`
    of text are refused. With `on_bad_text` replace, text that is not UTF-8 is replaced.

    Raises:
        UsageError: a column has a type that does not fit; `where` names the file.
    """
    refused: Refused = {}
    doubtful: Refused = {}
    replaced = Counter[int]() if settings.replaces_bad_text else None
    if wants_record_json(schema):
        fitted = row_batch(batch, refused, replaced, doubtful)
    else:
        columns = [_fit_column(batch, field, where, refused, replaced) for field in schema]
        fitted = batch_of(columns, schema, batch.num_rows)
    max_record_bytes = settings.max_record_bytes
    if fitted.nbytes > max_record_bytes:  # else no row is too large
        sizes = sum(map(_text_bytes, fitted.columns), np.zeros(batch.num_rows, np.int64))
        refused |= too_large(sizes, max_record_bytes)
    rows = np.delete(np.arange(batch.num_rows), sorted(refused))
    batch = fitted.take(pa.array(rows)) if refused else fitted
    return Fitted(batch, rows, refused, replaced or {}, doubtful)


def _fit_column(
    batch: pa.RecordBatch,
    field: pa.Field,
    where: str,
    refused: Refused,
    replaced: Counter[int] | None,
) -> pa.Array:
    """Return a column as the type of its field; rows that cannot be are refused, and null.

    `replaced`: see `row_batch`.
    """
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    fitted = _cast(column, field.type)
    is_json = fitted is None and pa.types.is_nested(field.type)
    if is_json:
        fitted = _cast(column, pa.string())
    if fitted is None:
        message = f"expected {field.type}, found {column.type}"
        raise UsageError(f"{where}: column {field.name!r}: {message}; name another column")

    def check(first: int, last: int) -> int | None:
        # take() copies these rows; a slice would be checked with the buffers of all rows
        is_all = last - first == len(fitted)
        part = fitted if is_all else fitted.take(pa.array(range(first, last)))
        return None if is_valid(part) else -1

    bad = find_bad(len(fitted), check)
    if bad and replaced is not None:
        fitted = replaced_rows(fitted, bad, replaced)
    elif bad:
        why = INVALID_UTF8, f"text that is not UTF-8{ADVICE}"
        refused.update(dict.fromkeys(bad, why) | refused)
        rows = np.arange(len(fitted))
        fitted = fitted.take(pa.array(rows, mask=np.isin(rows, bad)))
    return _parse_cells(fitted, field.type, refused, replaced) if is_json else fitted


def _cast(array: pa.Array, want: pa.DataType) -> Any:
    """Return the array as type `want`, or None if it cannot be; text is not checked."""
    if not _may_be(array.type, want):
        return None
    try:
        return array.cast(change_leaves(want, bytes_for_text)).view(want)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return None


_TEXTS = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary,
    pa.types.is_large_binary, pa.types.is_binary_view,
)  # fmt: skip
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _may_be(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether a cast keeps the meaning: Arrow's makes maps lists and numbers text."""
    if pa.types.is_dictionary(have):
        return _may_be(have.value_type, want)
    if have.equals(want) or pa.types.is_null(have):
        return True
    if pa.types.is_list(want):
        is_list = any(is_kind(have) for is_kind in _LISTS)
        return is_list and _may_be(have.value_type, want.value_type)
    if pa.types.is_struct(want):
        return pa.types.is_struct(have) and all(
            _may_be(have.field(index).type, field.type)
            for field in want
            if (index := have.get_field_index(field.name)) >= 0
        )
    if pa.types.is_integer(have):
        return bool(pa.types.is_integer(want) or pa.types.is_floating(want))
    if pa.types.is_floating(have):
        return bool(pa.types.is_floating(want))
    return pa.types.is_string(want) and is_text(have)


def is_text(kind: pa.DataType) -> bool:
    """Return whether the values of a type are text, or bytes that may be text."""
    return any(is_kind(kind) for is_kind in _TEXTS)


def _parse_cells(
    text: pa.Array, want: pa.DataType, refused: Refused, replaced: Counter[int] | None
) -> pa.Array:
    """Parse each cell with the JSON parser of this package; an empty cell is null."""
    cells = pc.fill_null(text.cast(pa.large_string()), "")
    cells = pc.replace_substring_regex(cells, "[\r\n]", " ")
    cells = pc.if_else(pc.equal(pc.utf8_trim_whitespace(cells), ""), "null", cells)
    around = (pa.scalar(text, pa.large_string()) for text in (f'{{"{_CELL}":', "}\n", ""))
    opening, closing, nothing = around
    lines = pc.binary_join_element_wise(opening, cells, closing, nothing)
    data = b"".join(lines.cast(pa.large_binary()).to_pylist())
    schema = pa.schema([(_CELL, want)])
    parsed = parse_lines(data, schema, replaces_bad_text=replaced is not None)
    if replaced is not None:
        replaced.update(parsed.replaced)
    places = np.full(len(text), -1, dtype=np.int64)
    places[parsed.rows] = np.arange(len(parsed.rows))
    refused.update(parsed.refused | refused)
    return parsed.batch.column(0).take(pa.array(places, mask=places < 0))


def _text_bytes(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of text in each row: (n_rows,) int64."""
    sizes = np.zeros(len(array), dtype=np.int64)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        sizes += pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            sizes += _text_bytes(child)
    elif pa.types.is_list(array.type):
        parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        np.add.at(sizes, parents, _text_bytes(array.flatten()))
    return sizes
