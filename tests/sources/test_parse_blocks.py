from __future__ import annotations

import pyarrow as pa

from tokmill.settings.schema import InputSettings
from tokmill.sources.blocks import BytesBlock, Reading
from tokmill.sources.json_formats import _parse_block, parse_blocks
from tokmill.sources.text import parse_text
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


READING = Reading(InputSettings(max_record_bytes=50), SCHEMA, 1 << 20, samples_head=True)


def json_blocks(data=DATA) -> list[BytesBlock]:
    return [
        BytesBlock(
            piece, RecordPlace(100 * i, 1000 * i), READING, _parse_block, 7, AFTER * (i == 1)
        )
        for i, piece in enumerate(data)
    ]


def told(records) -> list[tuple]:
    """Give all that can be asked of records, for each block."""
    found = []
    first = first_reject = 0
    for n_rows, n_rejects, unread in records.ends:
        rows = range(first, n_rows)
        found.append(
            (
                records.batch.slice(first, n_rows - first).to_pylist(),
                [(records.places[i].tolist(), records.raw(i), records.keys(i)) for i in rows],
                list(records.rejects[first_reject:n_rejects]),
                [(row - first, record) for row, record in records.samples if row in rows],
                unread,
            )
        )
        first, first_reject = n_rows, n_rejects
    return found


def check_together(blocks) -> None:
    alone = [of_block for block in blocks for of_block in told(block.parse())]
    assert told(parse_blocks(blocks)) == alone
    assert len(alone) == len(blocks)


def test_blocks_parsed_together_give_what_each_gives_alone():
    check_together(json_blocks())
    check_together(json_blocks()[::-1])


def test_kinds_are_not_mixed():
    text = BytesBlock(b"plain", RecordPlace(3, 4), READING, parse_text, 7)
    check_together([*json_blocks()[:2], text, text, *json_blocks()[2:]])
