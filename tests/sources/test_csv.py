from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.errors import UsageError
from tokmill.sources.csv import CsvSplitter
from tokmill.sources.csv_dialect import Dialect
from tokmill.values import RecordPlace

TEXTS = pa.schema([("b", pa.string()), ("a", pa.string())])


@pytest.fixture
def read_csv(tmp_path, read):
    def read_data(data, name="a.csv", **options):
        (tmp_path / name).write_bytes(data)
        return read(tmp_path / name, **{"schema": TEXTS, **options})

    return read_data


@pytest.mark.parametrize("batch_bytes", [1, 9, 1 << 20])
def test_cells_are_text_as_they_stand(batch_bytes, read_csv):
    found = read_csv(b'a,b,c\r\n01,,x\n"q""\n,",NULL,\n\n 1 ,"",y', batch_bytes=batch_bytes)
    assert [(row["a"], row["b"]) for row in found.rows] == [
        ("01", ""),
        ('q"\n,', "NULL"),
        (" 1 ", ""),
    ]
    assert found.places == [RecordPlace(1, 7), RecordPlace(2, 13), RecordPlace(3, 28)]
    assert found.raw[1] == b'"q""\n,",NULL,'


@pytest.mark.parametrize("batch_bytes", [1, 9, 1 << 20])
def test_bad_rows_are_rejects_with_their_places(batch_bytes, read_csv):
    data = b"a,b\n1,2\n3\n\xff,4\n5,6,7\n8,9\n"
    found = read_csv(data, batch_bytes=batch_bytes)
    assert [row["a"] for row in found.rows] == ["1", "8"]
    assert [place.line for place in found.places] == [1, 5]
    assert found.rejects == [
        (2, 8, "malformed CSV", b"3"),
        (3, 10, "invalid UTF-8", b"\xff,4"),
        (4, 14, "malformed CSV", b"5,6,7"),
    ]
    assert found.messages[0] == "expected 2 columns, found 1"


@pytest.mark.parametrize("batch_bytes", [1, 9, 1 << 20])
@pytest.mark.parametrize("limit", [5, 1 << 20])
def test_an_open_quote_gives_the_rows_before_and_the_rest_is_unread(batch_bytes, limit, read_csv):
    data = b'a,b\n1,2\n3,"4\n5,6\n'
    found = read_csv(data, batch_bytes=batch_bytes, max_record_bytes=limit)
    assert [row["a"] for row in found.rows] == ["1"]
    assert found.rejects == []
    assert found.unread == [(2, 8, "open quote", 9, -1, 0)]
    (message,) = found.messages
    assert message.startswith("a quoted field is not closed before the end of the file: ")
    assert message.endswith("--csv-quote=none, which makes quotes text")


def test_a_header_with_an_open_quote_is_unread_and_no_column(read_csv):
    found = read_csv(b'a,"b\n1,2\n3,4\n')
    assert (found.rows, found.rejects) == ([], [])
    assert found.unread == [(1, 0, "open quote", 13, -1, 0)]


@pytest.mark.parametrize("batch_bytes", [1, 9, 1 << 20])
def test_a_record_over_the_limit_is_one_reject(batch_bytes, read_csv):
    data = b'a,b\n1,2\n3,"' + b"x\n" * 50 + b'"\n5,6\n'
    found = read_csv(data, batch_bytes=batch_bytes, max_record_bytes=20)
    assert [row["a"] for row in found.rows] == ["1", "5"]
    assert found.rejects == [(2, 8, "record too large", data[8:112])]
    assert found.messages == ["104 bytes, over max_record_bytes = 20"]


def test_a_missing_column_is_null_and_no_column_counts_rows(read_csv):
    assert read_csv(b"a\nx\n").rows == [{"b": None, "a": "x"}]
    assert read_csv(b"c,d\nx,y\nz,w\n", schema=pa.schema([])).rows == [{}, {}]
    assert read_csv(b"c,d\nx,y\n").rows == [{"a": None, "b": None}]


def test_the_first_of_two_columns_of_a_name_counts(read_csv):
    assert read_csv(b"a,a\nx,y\n").rows == [{"b": None, "a": "x"}]


def test_the_delimiter_is_a_setting(read_csv):
    assert read_csv(b"a;b\nx,;y\n", csv_delimiter=";").rows == [{"b": "y", "a": "x,"}]
    for wrong in ("", ",,", "，", '"'):
        with pytest.raises(UsageError, match=r"csv_delimiter: expected one ASCII char"):
            read_csv(b"a;b\n", csv_delimiter=wrong)


def test_a_header_may_be_quoted_over_lines_and_typed_like_numbers(read_csv):
    schema = pa.schema([("x\ny", pa.string()), ("01", pa.string())])
    rows = read_csv(b'\n"x\ny",01\n1,2\n', schema=schema, csv_header="yes").rows
    assert rows == [{"x\ny": "1", "01": "2"}]


@pytest.mark.parametrize(
    "first",
    [
        *("1,The cat sat on the mat.", "7,2024-01-31", "https://a.b/c,x", "a@b.org,x", "3.5%,x"),
        *("猫在夜里捕食，白天睡觉。,动物", "9f86d081884c7d659a2feaa0c55ad015,x", '"two\nlines",x'),
        *("one two three four five six seven eight,x", f"{'long' * 30},x", "What is it now?,x"),
    ],
)
def test_a_header_that_looks_like_data_is_a_usage_error_unless_the_user_says_what_it_is(
    first, read_csv
):
    data = f"{first}\n2,Another one.\n".encode()
    with pytest.raises(UsageError, match=r"a\.csv: the first line looks like a record: .* found '"):
        read_csv(data)
    schema = pa.schema([("column_1", pa.string()), ("column_2", pa.string())])
    read = read_csv(data, schema=schema, csv_header="no")
    assert (len(read.rows), read.rows[1]) == (2, {"column_1": "2", "column_2": "Another one."})
    assert read.places[0] == RecordPlace(1, 0)
    assert len(read_csv(data, csv_header="yes").rows) == 1


@pytest.mark.parametrize(
    "header",
    [
        "id,text",
        ",text",
        "Unnamed: 0,body text",
        "标题,正文",
        "What?,Why?",
        "date of birth,text",
        "q1,q2",
    ],
)
def test_names_of_columns_do_not_look_like_data(header, read_csv):
    assert len(read_csv(f"{header}\n1,The cat sat on the mat.\n".encode()).rows) == 1


def test_a_header_that_cannot_be_read_is_a_usage_error(read_csv):
    with pytest.raises(UsageError, match=r"a\.csv: the CSV header cannot be read"):
        read_csv(b"\xff\n")
    with pytest.raises(UsageError, match=r"a\.csv: the CSV header is longer than"):
        read_csv(b'"' + b"a\n" * 100, max_record_bytes=5)


def test_text_where_sections_are_wanted_is_parsed_as_json(read_csv, schema):
    rows = b't,"[{""title"": ""a\nb""}]"\nu,\nv,[1]\nw,"[]}{""c"":[]"\nx,[]\n'
    found = read_csv(b"title,sections\n" + rows, schema=schema)
    assert found.rows == [
        {"title": "t", "sections": [{"title": "a b", "content": None}]},
        {"title": "u", "sections": None},
        {"title": "x", "sections": []},
    ]
    assert [reject[2] for reject in found.rejects] == ["wrong type", "several records on a line"]


# Where records end, and which cells they have, in each dialect

DIALECTS = [Dialect(","), Dialect(",", '"', "\\"), Dialect(",", "", "\\"), Dialect(",", "")]
DIALECTS += [Dialect("^", "'", "~")]


def split(data, size=1 << 20, dialect=DIALECTS[0]):
    """The records of data, fed in chunks of a size, with the end marks that are not quoted off."""
    splitter = CsvSplitter(dialect)
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


@pytest.mark.parametrize(
    ("dialect", "data", "records"),
    [
        (DIALECTS[1], b'"a\\"\nb",c\nd', [b'"a\\"\nb",c\n', b"d"]),
        (DIALECTS[1], b'a\\\nb,"c\\\\"\nd', [b'a\\\nb,"c\\\\"\n', b"d"]),
        (DIALECTS[1], b'\\"a\nb"\n"x\\""\n', [b'\\"a\n', b'b"\n', b'"x\\""\n']),
        (DIALECTS[2], b'"a\nb\\\nc\n', [b'"a\n', b"b\\\nc\n"]),
        (DIALECTS[3], b'"a\nb\\\nc"\n', [b'"a\n', b"b\\\n", b'c"\n']),
        (DIALECTS[4], b"'a~'\nb'^\"c\nd", [b"'a~'\nb'^\"c\n", b"d"]),
    ],
)
def test_a_line_end_behind_an_escape_or_where_nothing_is_quoted(dialect, data, records):
    for size in range(1, len(data) + 1):
        assert split(data, size, dialect) == (records, "")


def cells(data, dialect=DIALECTS[0]):
    columns = ["a", "b"]
    table = pa.csv.read_csv(
        pa.BufferReader(dialect.with_doubled_escapes(data)),
        pa.csv.ReadOptions(use_threads=False, column_names=columns, block_size=2 * len(data) + 1),
        pa.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            escape_char=dialect.escape or False,
            newlines_in_values=True,
            invalid_row_handler=lambda _: "skip",
        ),
        pa.csv.ConvertOptions(
            column_types={"a": pa.string(), "b": pa.string()}, strings_can_be_null=False
        ),
    )
    return table.to_pylist()


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=300)
@given(data=st.data(), size=st.integers(1, 5))
def test_records_alone_have_the_cells_that_they_have_together(dialect, data, size):
    marks = f"{dialect.delimiter}{dialect.quote}{dialect.escape}"
    text = data.draw(st.text(alphabet=f"aN\n\r{marks}", max_size=24)).encode()
    records, unfinished = split(text, size, dialect)
    is_open = bool(dialect.escape) and text.endswith(dialect.escape.encode())
    if records and not unfinished and not is_open:
        assert [row for r in records for row in cells(r, dialect)] == cells(text, dialect)
    assert (records, unfinished) == split(text, dialect=dialect)
