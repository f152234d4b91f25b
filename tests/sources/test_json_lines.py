from __future__ import annotations

import functools
import itertools

import pyarrow as pa
import pytest

from tokmill.sources import json_lines
from tokmill.sources.byte_reader import BlockCutter, LineSplitter
from tokmill.sources.json_lines import json_keys
from tokmill.values import RecordPlace

GOOD = b'{"title": "good"}'

QUIRKS = {
    b'{"title": "plain", "other": [1, {"x": 2}]}': "",
    b'{"title": null, "sections": [{"title": null}, null, {}]}': "",
    b'  \t{"title": "indented"}  ': "",
    b'{"title": "crlf"}\r': "",
    b"{}": "",
    b'{"title": "\\ud83d\\ude00 \\u0000"}': "",
    b'{"unknown": 1, "unknown": 2}': "",
    b'{"x": ' + b"[" * 2000 + b"]" * 2000 + b"}": "",
    b'{"title": 1}': "wrong type",
    b'{"title": ["a"]}': "wrong type",
    b'{"title": true}': "wrong type",
    b'{"sections": "text"}': "wrong type",
    b'{"sections": [["a"]]}': "wrong type",
    b'{"title": "a"}{"title": "b"}': "several records on a line",
    b'{"title": "a"} null {"title": "b"}': "several records on a line",
    b'{"title": "a"}\r{"title": "b"}': "several records on a line",
    b'{"title": "a", "title": "b"}': "malformed JSON",
    b'{"title": "lone \\ud800"}': "malformed JSON",
    b'{"title": "a"}}': "malformed JSON",
    b'{{"title": "a"}': "malformed JSON",
    b'{"title": "a",}': "malformed JSON",
    b"{'title': 'a'}": "malformed JSON",
    b'{"title": "a\x00b"}': "malformed JSON",
    b'{"title": "a"}\x00{"title": "b"}': "malformed JSON",
    b'{"title": "a"}\x00}': "malformed JSON",
    b'{"title": "tab\t"}': "malformed JSON",
    b'{"title": "a}': "malformed JSON",
    b'{"x": 1e999}': "malformed JSON",
    b'{"title": "\xff"}': "invalid UTF-8",
    b'{"title": "\xed\xa0\x80"}': "invalid UTF-8",
    b'{"t\xff": "a"}': "invalid UTF-8",
    b'{"title": "a"},': "not an object",
    b"null": "not an object",
    b"true": "not an object",
    b"1": "not an object",
    b'"text"': "not an object",
    b'[{"title": "a"}]': "not an object",
    b"[]": "not an object",
    b'\xef\xbb\xbf{"title": "mark"}': "not an object",
    b'{"title": "a"} // why': "not an object",
    b'{"title":': "not an object",
    b'"over two lines"}': "not an object",
    b"\x00": "not an object",
    b"{": "not an object",
}
BLANK = [b"", b" ", b"\t \r", b"\r", b" " * 300]


def parse_lines(data, schema, *limit):
    parsed = json_lines.parse_lines(data, schema, *limit)
    return parsed.batch, parsed.rows, parsed.rejects


@functools.cache
def outcome(line, schema):
    """What a line gives by itself: its row, or why not."""
    batch, _, rejects = parse_lines(line, schema)
    assert len(batch) + len(rejects) <= 1
    return batch.to_pylist(), [(reject.reason, reject.message, reject.raw) for reject in rejects]


@pytest.mark.parametrize(("line", "reason"), QUIRKS.items())
def test_a_line_alone_is_a_row_or_one_reject(line, reason, schema):
    rows, rejects = outcome(line, schema)
    assert [found[0] for found in rejects] == ([reason] if reason else [])
    assert len(rows) == (not reason)


@pytest.mark.parametrize("line", QUIRKS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_gives_the_same_beside_every_other_line(line, end, schema):
    others = [*QUIRKS, *BLANK, GOOD]
    for other in others:
        for lines in ([line, other], [other, line], [GOOD, line, other, GOOD]):
            expected = [outcome(each, schema) for each in lines]
            batch, rows, rejects = parse_lines(end.join(lines), schema)
            assert batch.to_pylist() == [row for found, _ in expected for row in found]
            assert [(r.reason, r.message, r.raw) for r in rejects] == [
                reject for _, found in expected for reject in found
            ]
            assert rows.tolist() == [i for i, (found, _) in enumerate(expected) if found]
            assert [r.place.line - 1 for r in rejects] == [
                i for i, (_, found) in enumerate(expected) if found
            ]


def test_blocks_of_any_size_give_what_the_lines_give_alone(schema):
    lines = list(itertools.chain.from_iterable((quirk, GOOD) for quirk in [*QUIRKS, *BLANK]))
    data = b"\n".join(lines)
    expected = [outcome(line, schema) for line in lines]
    for batch_bytes in [*range(1, 60), 500, 2000, 1 << 20]:
        rows, rejects = [], []
        cutter = BlockCutter(LineSplitter(), batch_bytes, 1 << 20, RecordPlace(0, 0))
        for block in cutter.blocks(iter([data])):
            batch, _, refused = parse_lines(block.data, schema)
            rows += batch.to_pylist()
            rejects += [
                (r.place.shifted(block.origin), r.reason, r.message, r.raw) for r in refused
            ]
        assert rows == [row for found, _ in expected for row in found]
        assert [reject[1:] for reject in rejects] == [one for _, found in expected for one in found]
        for place, _, _, raw in rejects:
            assert data[place.byte_offset :].startswith(raw)
            assert data[: place.byte_offset].count(b"\n") == place.line - 1


def test_blank_lines_are_no_records(schema):
    for data in (b"", b"\n", b" \n\t\r\n\n"):
        batch, rows, rejects = parse_lines(data, schema)
        assert (batch.num_rows, len(rows), rejects) == (0, 0, [])
        assert batch.schema == schema


def test_no_columns_still_count_rows():
    batch, rows, rejects = parse_lines(b'{"a": 1}\nx\n{}', pa.schema([]))
    assert batch.num_rows == 2
    assert rows.tolist() == [0, 2]
    assert [reject.reason for reject in rejects] == ["not an object"]


def test_a_line_over_the_limit_is_refused_and_its_neighbours_stay(schema):
    data = b'{"title": "a"}\n{"title": "' + b"x" * 2000 + b'"}\n{"title": "b"}'
    batch, _, (reject,) = parse_lines(data, schema, 14)
    assert batch.column(0).to_pylist() == ["a", "b"]
    assert reject.place == RecordPlace(2, 15)
    assert reject.message == "2013 bytes, over max_record_bytes = 14"
    assert reject.raw == data[15 : 15 + 1024]


def test_a_number_that_does_not_fit_its_column_is_a_wrong_type():
    schema = pa.schema([("n", pa.int64())])
    batch, _, rejects = parse_lines(b'{"n": 1}\n{"n": 1.5}\n{"n": 2}', schema)
    assert batch.to_pylist() == [{"n": 1}, {"n": 2}]
    assert [reject.reason for reject in rejects] == ["wrong type"]


def test_messages_name_no_row():
    schema = pa.schema([("title", pa.string())])
    _, _, (reject,) = parse_lines(b'{"title": "a"}\n{"title": 1}', schema)
    assert reject.message == "title: expected text, found a number"


def test_keys_come_in_order_and_never_fail():
    assert json_keys(b'{"b": 1, "a": 2}') == ["b", "a"]
    assert json_keys(b"[1]") == []
    assert json_keys(b"{") == []
    assert json_keys(b'{"a":' + b"[" * 100000) == []
