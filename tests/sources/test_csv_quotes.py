from __future__ import annotations

import csv
import io
import time

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.sources.csv import CsvSplitter


def split(data, size=1 << 20):
    """The records of data, fed in chunks of a size, with the end marks that are not quoted off."""
    splitter = CsvSplitter(",")
    ends = []
    for start in range(0, len(data), size):
        ends += (splitter.ends(data[start : start + size]) + start).tolist()
    pieces = [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]
    return [piece for piece in pieces if piece.strip(b"\r\n")], splitter.unfinished


@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b"a,b\nc,d\n", [b"a,b\n", b"c,d\n"]),
        (b"a\r\nb\rc", [b"a\r", b"b\r", b"c"]),
        (b'"a\nb",c\nd', [b'"a\nb",c\n', b"d"]),
        (b'"a""\n""b"\nc', [b'"a""\n""b"\n', b"c"]),
        (b'5" disk\n"x"\n', [b'5" disk\n', b'"x"\n']),
        (b'"a"b"\nc"\nd', [b'"a"b"\n', b'c"\n', b"d"]),
        (b'a,""\n"",b', [b'a,""\n', b'"",b']),
    ],
)
def test_records_end_at_line_ends_outside_quotes(data, records):
    for size in range(1, len(data) + 1):
        assert split(data, size) == (records, "")


def test_an_open_quote_is_said_at_the_end():
    assert split(b'a\n"b\nc\n')[1] == "a quoted field is not closed before the end of the file"


def cells(data):
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False, column_names=["a", "b"], block_size=len(data) + 1),
        pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip"),
        pa.csv.ConvertOptions(
            column_types={"a": pa.string(), "b": pa.string()}, strings_can_be_null=False
        ),
    )
    return table.to_pylist()


@settings(max_examples=300)
@given(st.text(alphabet='a,"\n\r', max_size=24).map(str.encode), st.integers(1, 5))
def test_records_alone_have_the_cells_that_they_have_together(data, size):
    records, unfinished = split(data, size)
    if records and not unfinished:
        assert [row for record in records for row in cells(record)] == cells(data)
    assert (records, unfinished) == split(data)


def test_many_short_quoted_fields_take_less_time_to_split_than_python_takes_to_parse_them():
    data = b'"an","id","of","many","short","words"\n' * 20_000

    def seconds(call):
        start_s = time.process_time()
        call()
        return time.process_time() - start_s

    parse_s = min(seconds(lambda: list(csv.reader(io.StringIO(data.decode())))) for _ in range(3))
    assert min(seconds(lambda: CsvSplitter(",").ends(data)) for _ in range(3)) < parse_s
