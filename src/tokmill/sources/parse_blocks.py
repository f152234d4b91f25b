"""Parse several small blocks of JSON Lines in one call, with the same records as one by one.

A call of Arrow takes 0.5 ms to start, the time of 300 KB of lines.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tokmill.sources.blocks import SpanLookup
from tokmill.sources.field_samples import json_samples
from tokmill.sources.json_lines import JsonBlock, json_keys, parse_block, shift
from tokmill.values import Place, Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.sources.blocks import Block
    from tokmill.sources.json_lines import Parsed


def parse_blocks(blocks: Sequence[Block]) -> list[Records]:
    """Return the records of each block; thread safe."""
    if len(blocks) == 1:
        return [blocks[0].parse()]
    parsed: list[Records] = []
    for is_json, group in groupby(blocks, lambda block: isinstance(block, JsonBlock)):
        if is_json:
            parsed += _parse_json([block for block in group if isinstance(block, JsonBlock)])
        else:
            parsed += [block.parse() for block in group]
    return parsed


def _parse_json(blocks: Sequence[JsonBlock]) -> list[Records]:
    """Parse the lines of all blocks as one block: each line is parsed independently of others."""
    ended = [_ended(block.raw.data) for block in blocks]
    data = b"".join(ended)
    parsed = parse_block(data, blocks[0].schema, blocks[0].max_record_bytes)
    bytes_before = np.cumsum([0, *map(len, ended)])
    lines_before = np.cumsum([0, *(piece.count(b"\n") for piece in ended)])
    rows = np.searchsorted(parsed.rows, lines_before).tolist()
    rejected = [reject.place.line - 1 for reject in parsed.rejects]
    rejects = np.searchsorted(rejected, lines_before).tolist()
    return [
        _records(
            block,
            data,
            parsed,
            Place(int(lines_before[i]), int(bytes_before[i])),
            slice(*rows[i : i + 2]),
            slice(*rejects[i : i + 2]),
        )
        for i, block in enumerate(blocks)
    ]


def _ended(data: bytes) -> bytes:
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _records(
    block: JsonBlock, data: bytes, parsed: Parsed, before: Place, rows: slice, rejects: slice
) -> Records:
    """Return the records of one block; `before` counts the lines and bytes of the blocks before."""
    origin = block.raw.origin
    own = Place(origin.line - before.line, origin.byte_offset - before.byte_offset)
    lookup = SpanLookup(
        data, parsed.starts[rows], parsed.stops[rows], parsed.rows[rows], own, json_keys
    )
    batch = parsed.batch.slice(rows.start, rows.stop - rows.start)
    shifted = [shift(reject, own) for reject in parsed.rejects[rejects]]
    found = [*shifted, *block.raw.after]
    samples = json_samples(lookup, block.schema, head=block.samples_head)
    return Records(batch, lookup, found, block.raw.unread, samples)
