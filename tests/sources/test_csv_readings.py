from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from tokmill.errors import UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.file_kinds import check_kind
from tokmill.sources.files import discover

SPARK = b'id,text\n1,"he said \\"hi\\", and left"\n2,\\alpha\n'


def check(path, **settings):
    given = InputSettings(paths=(str(path),), **settings)
    (file,) = discover(given).files
    check_kind(file, given)


def texts(read, path, **settings):
    schema = pa.schema([("text", pa.string())])
    found = read(path, schema=schema, **settings)
    assert not found.rejects
    return [row["text"] for row in found.rows]


ESCAPES = [
    (SPARK, ['he said "hi", and left', "\\alpha"]),
    (b'id,text\n1,"a ""b"" \\\\ c"\n', ['a "b" \\ c']),
    (b"id,text\n1,one\\, two\n", ["one, two"]),
    (b"id,text\n1,one\\\ntwo\n", ["one\ntwo"]),
    (b"id,text\n1,\\N\n2,x y\n", [None, "x y"]),
    (b'id,text\n1,"x \\""\n2,y z\n', ['x "', "y z"]),
    (b"\xef\xbb\xbf" + SPARK, ['he said "hi", and left', "\\alpha"]),
]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("data", "expected"), ESCAPES)
def test_cells_that_backslashes_may_change_stop_the_run_and_an_option_reads_them(
    data, expected, compressed, tmp_path, read
):
    path = tmp_path / ("a.csv.gz" if compressed else "a.csv")
    path.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(
        UsageError, match=r"use --csv-escape='\\', or --csv-escape=none if"
    ) as error:
        check(path)
    assert "\n" not in str(error.value)
    for option in ("\\", "none"):
        check(path, csv_escape=option)
    for batch_bytes in (1, 7, 1 << 20):
        assert texts(read, path, csv_escape="\\", batch_bytes=batch_bytes) == expected


@pytest.mark.parametrize(
    "data",
    [
        b'id,text\n1,"C:\\dir\\"\n2,"a b"\n',  # an escape would leave the quote open
        b'id,dir,text\n1,"C:\\dir\\","a b"\n',
        b'id,text\n1,"[{""a"": ""x \\""y\\"" z""}]"\n',  # JSON in a cell
        b"id,text\n1,\\alpha and \\n\n",
        b'id,text\n1,"a ""b"" c"\n2,5" disk\n',
        b'id,text\n1,"two\nlines"\n2,"one, two"\n',
        b'text\n"two\nlines"\n',
        b'id,text\n1,"3,4\n5,6"\n2,"x, y"\n',
    ],
)
def test_a_file_that_fits_one_reading_runs_as_before(data, tmp_path):
    (tmp_path / "a.csv").write_bytes(data)
    check(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'id\ttext\n1\t"Hello," he said.\n', ['"Hello," he said.']),
        (b'id\ttext\n1\t"Hi\n2\tThe "cat".\n3\tbye"\n', ['"Hi', 'The "cat".', 'bye"']),
        (b'text\n"Hello" he said\n', ['"Hello" he said']),
    ],
)
def test_quotes_that_may_be_text_stop_the_run_and_an_option_reads_them(
    data, expected, tmp_path, read
):
    path = tmp_path / "a.tsv"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"use --csv-quote=none if .* or --csv-quote='\"'$"):
        check(path)
    check(path, csv_quote='"')
    check(path, csv_quote="none")
    assert texts(read, path, csv_quote="none") == expected


def test_a_long_file_is_compared_without_the_record_that_the_sample_cuts(tmp_path):
    row = b'1,"one, ""two"" C:\\dir"\n'
    (tmp_path / "a.csv").write_bytes(b"id,text\n" + row * (3 << 20 // len(row)))
    check(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes(SPARK + row * (3 << 20 // len(row)))
    with pytest.raises(UsageError, match="csv-escape"):
        check(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"csv_quote": "''"}, "input.csv_quote: expected one ASCII character; found \"''\""),
        ({"csv_escape": "，"}, "input.csv_escape: expected one ASCII character; found"),
        ({"csv_escape": '"'}, "input.csv_escape: .* another one than the delimiter and the quote"),
        ({"csv_quote": ","}, "input.csv_quote: .* another one than the delimiter"),
    ],
)
def test_marks_are_different_ascii_characters(settings, message, tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a b\n")
    with pytest.raises(UsageError, match=message):
        check(tmp_path / "a.csv", **settings)
