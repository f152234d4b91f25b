"""Parse several small blocks of JSON Lines in one call, with the same records as one by one.

A call of Arrow takes 0.5 ms to start, the time of 300 KB of lines.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tokmill.sources.json_lines import JsonBlock, Parsed, parse_lines
from tokmill.values import RecordPlace, Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.sources.blocks import Block


def parse_blocks(blocks: Sequence[Block]) -> list[Records]:
    """Return the records of each block; thread safe."""
    parsed: list[Records] = []
    for _, group in groupby(blocks, type):
        alike = list(group)
        lines = [block for block in alike if isinstance(block, JsonBlock)]
        parsed += _parse_lines(lines) if len(lines) > 1 else [block.parse() for block in alike]
    return parsed


def _parse_lines(blocks: Sequence[JsonBlock]) -> list[Records]:
    """Parse the lines of all blocks as one block: each line is parsed independently of others."""
    pieces = [block.raw.data for block in blocks]
    pieces = [data if not data or data.endswith(b"\n") else data + b"\n" for data in pieces]
    data = b"".join(pieces)
    parsed = parse_lines(data, blocks[0].schema, blocks[0].max_record_bytes)
    bytes_before = np.cumsum([0, *map(len, pieces)]).tolist()
    lines_before = np.cumsum([0, *(piece.count(b"\n") for piece in pieces)]).tolist()
    row_cuts = np.searchsorted(parsed.rows, lines_before).tolist()
    bad_lines = [bad.place.line - 1 for bad in parsed.rejects]
    bad_cuts = np.searchsorted(bad_lines, lines_before).tolist()
    records = []
    for i, block in enumerate(blocks):
        rows, bad = slice(*row_cuts[i : i + 2]), slice(*bad_cuts[i : i + 2])
        own = Parsed(
            parsed.batch.slice(rows.start, rows.stop - rows.start),
            parsed.rows[rows],
            parsed.starts[rows],
            parsed.stops[rows],
            parsed.rejects[bad],
        )
        origin = block.raw.origin
        shifted = (origin.line - lines_before[i], origin.byte_offset - bytes_before[i])
        records.append(block.records(data, own, RecordPlace(*shifted)))
    return records
