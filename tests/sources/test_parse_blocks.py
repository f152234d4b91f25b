from __future__ import annotations

import pyarrow as pa
import pytest

from tokmill.sources.byte_reader import BytesBlock
from tokmill.sources.json_lines import JsonParser, parse_blocks
from tokmill.sources.text import TextParser
from tokmill.values import RecordPlace, Reject

SCHEMA = pa.schema([("text", pa.string())])
AFTER = (Reject(RecordPlace(9, 99), "truncated input", "broke off", b"tail"),)

DATA = [
    b'{"text": "a"}\n{"text": "b"}\n',
    b'{"text": "c"}',
    b"",
    b'\n\n{"text": "d"}\n{bad\n  {"text": "e"}',
    b"null\n\n",
    b'{"text": 1}\n{"text": "' + b"x" * 60 + b'"}\n{"text": "\xff"}\n{"text": "f"}\r\n',
    '{"text": "猫"}\n'.encode(),
]


def json_blocks(data=DATA) -> list[BytesBlock]:
    return [
        BytesBlock(
            piece, RecordPlace(100 * i, 1000 * i), JsonParser(SCHEMA, 50), 7, AFTER * (i == 1)
        )
        for i, piece in enumerate(data)
    ]


def told(records) -> tuple:
    """Give all that can be asked of records."""
    n_rows = records.batch.num_rows
    lookup = records.lookup
    rows = [(lookup.place(i), lookup.raw(i), lookup.keys(i)) for i in range(n_rows)]
    return records.batch.to_pylist(), rows, list(records.rejects)


def test_blocks_parsed_together_give_what_each_gives_alone():
    blocks = json_blocks()
    assert [told(records) for records in parse_blocks(blocks)] == [
        told(block.parse()) for block in blocks
    ]


@pytest.mark.parametrize("i", range(len(DATA)))
def test_one_block_is_parsed_as_ever(i):
    block = json_blocks()[i]
    assert [told(records) for records in parse_blocks([block])] == [told(block.parse())]


def test_kinds_are_not_mixed():
    text = BytesBlock(b"plain", RecordPlace(3, 4), TextParser(SCHEMA, b"", 50), 7)
    blocks = [*json_blocks()[:2], text, text, *json_blocks()[2:]]
    assert [told(records) for records in parse_blocks(blocks)] == [
        told(block.parse()) for block in blocks
    ]
