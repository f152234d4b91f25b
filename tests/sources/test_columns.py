from __future__ import annotations

import pyarrow as pa
import pytest

from tokmill.errors import UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.columns import fit_columns


def fit_array(array, kind):
    """Return a column as another type."""
    batch = pa.RecordBatch.from_arrays([array], ["c"])
    return fit_columns(batch, pa.schema([("c", kind)]), InputSettings(), "f").batch.column(0)


SECTION = pa.struct([("title", pa.string()), ("content", pa.string())])


@pytest.mark.parametrize(
    "have",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
)
def test_text_of_any_layout_becomes_string(have):
    array = pa.array(["a", None, "é"], pa.string())
    array = array.dictionary_encode() if pa.types.is_dictionary(have) else array.cast(have)
    found = fit_array(array[1:], pa.string())
    assert (found.type, found.to_pylist()) == (pa.string(), [None, "é"])


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_nested_columns_are_fitted_by_name_at_any_slice(make):
    struct = pa.struct([("n", pa.int64()), ("content", pa.large_string()), ("title", pa.string())])
    values = [
        [{"n": 1, "content": "c", "title": "t"}],
        None,
        [None, {"n": 2, "content": None, "title": "u"}],
        [],
    ]
    expected = [
        [{"title": "t", "content": "c"}],
        None,
        [None, {"title": "u", "content": None}],
        [],
    ]
    array = pa.array(values, make(struct))
    for start in range(4):
        found = fit_array(array[start:], pa.list_(SECTION))
        found.validate(full=True)
        assert found.type == pa.list_(SECTION)
        assert found.to_pylist() == expected[start:]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("user", "hello")]], pa.map_(pa.string(), pa.string())),
        pa.array([["hello"]], pa.list_view(pa.string())),
        pa.array([b"0123456789abcdef"], pa.binary(16)),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string()), pa.list_(SECTION)])
def test_what_a_cast_would_give_another_meaning_is_refused(column, kind):
    with pytest.raises(UsageError, match=r"expected .*, found "):
        fit_array(column, kind)


def test_rows_that_are_not_utf8_are_left_out():
    texts = pa.array([b"a", b"\xff", None, b"b"]).view(pa.string())
    batch = pa.RecordBatch.from_arrays([texts], ["t"])
    schema = pa.schema([("t", pa.string()), ("u", pa.string())])
    fitted = fit_columns(batch, schema, InputSettings(max_record_bytes=100), "f")
    assert fitted.batch.to_pylist() == [{"t": t, "u": None} for t in ("a", None, "b")]
    assert fitted.rows.tolist() == [0, 2, 3]
    assert {row: why[0] for row, why in fitted.refused.items()} == {1: "invalid UTF-8"}
