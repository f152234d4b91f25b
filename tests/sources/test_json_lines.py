from __future__ import annotations

import functools
import itertools
import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from tokmill.settings.schema import InputSettings
from tokmill.sources.blocks import BytesBlock, Reading, json_record
from tokmill.sources.json_formats import _parse_block, parse_blocks
from tokmill.sources.json_lines import parser_entry, read_json
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


def parse_lines(data, schema, limit=1 << 40):
    reading = Reading(InputSettings(max_record_bytes=limit), schema, 1 << 20)
    records = parse_blocks([BytesBlock(data, RecordPlace(0, 0), reading, _parse_block)])
    return records.batch, records.places[:, 0] - 1, records.rejects


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
    for other in others if end == b"\n" else others[::5]:
        for lines in ([line, other], [GOOD, line, other, GOOD]):
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


def test_blocks_of_any_size_give_what_the_lines_give_alone(schema, tmp_path, read):
    lines = list(itertools.chain.from_iterable((quirk, GOOD) for quirk in [*QUIRKS, *BLANK]))
    data = b"\n".join(lines)
    (tmp_path / "a.jsonl").write_bytes(data)
    expected = [outcome(line, schema) for line in lines]
    for batch_bytes in [1, 2, 7, 20, 59, 500, 2000, 1 << 20]:
        records = read(tmp_path / "a.jsonl", batch_bytes=batch_bytes)
        assert records.rows == [row for found, _ in expected for row in found]
        refused = [reject for _, rejects in expected for reject in rejects]
        assert [(reason, raw) for _, _, reason, raw in records.rejects] == [
            (reason, raw) for reason, _, raw in refused
        ]
        assert records.messages == [message for _, message, _ in refused]
        for line, byte_offset, _, raw in records.rejects:
            assert data[byte_offset:].startswith(raw)
            assert data[:byte_offset].count(b"\n") == line - 1


# The parser against Python's own, and what its messages are


SECTION = pa.struct([("title", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema([("title", pa.string()), ("sections", pa.list_(SECTION))])
MESSAGES = {
    '{"title": 1}': ("wrong type", "title: expected text, found a number"),
    '{"title": ["a"]}': ("wrong type", "title: expected text, found a list"),
    '{"sections": [["a"]]}': ("wrong type", "sections[]: expected an object, found a list"),
    '{"title": "a", "title": "b"}': ("malformed JSON", "Column(/title) was specified twice"),
    '{"title": "lone \\ud800"}': (
        "malformed JSON",
        "The surrogate pair in string is invalid",
    ),
    '{"title": "a"}}': ("malformed JSON", "The document is empty"),
    '{"title": "a",}': ("malformed JSON", "Missing a name for object member"),
    '{"title" "a"}': ("malformed JSON", "Missing a colon after a name of object member"),
    '{"x": 1e999}': ("malformed JSON", "Number too big to be stored in double"),
    '{"x": 01}': ("malformed JSON", "Missing a comma or '}' after an object member"),
    '{"title": "tab\t"}': ("malformed JSON", "Invalid encoding in string"),
    '{"title": "a"} null {"title": "b"}': (
        "several records on a line",
        "3 JSON values on one line",
    ),
}
"""What the rejects of datasets say. A parser with other texts changes their bytes."""


def test_a_record_is_read_or_none():
    assert list(json_record(b'{"b": 1, "a": 2}')) == ["b", "a"]
    assert json_record(b"[1]") is None
    assert json_record(b'{"a":' + b"[" * 100_000) is None  # Arrow accepts deeper nesting


@pytest.mark.parametrize(("line", "expected"), MESSAGES.items())
def test_rejects_say_the_same_with_every_parser(line, expected):
    outcome = read_json(pa.py_buffer(line.encode()), 1, SCHEMA)
    assert outcome[:2] == expected


def test_the_version_of_pyarrow_has_an_upper_bound():
    """Its messages are read, and stand in rejects.

    Before the bound is raised: install the new version, and run the tests of this folder. If a
    message is another one, `read_json` must turn it into the text above.
    """
    project = Path(__file__).parents[2] / "pyproject.toml"
    needed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    (bound,) = [found[1] for one in needed if (found := re.match(r"pyarrow>=[\d.]+,<(\d+)$", one))]
    assert int(pa.__version__.partition(".")[0]) < int(bound)
    assert parser_entry() == {"name": "pyarrow", "version": pa.__version__}
