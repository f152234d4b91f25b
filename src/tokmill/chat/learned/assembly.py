"""Puts the contents of a block into the patterns of its records, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.chat.segments import Columns, SegmentTable
from tokmill.offsets import byte_offsets, offsets_of, text_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.chat.learned.pattern import Pattern


def assembled(
    contents: pa.StringArray,
    first_messages: npt.NDArray[np.int64],
    of_row: npt.NDArray[np.int64],
    found: Sequence[Pattern | None],
) -> Columns:
    """Return the n samples of some records.

    `contents`: of all messages. `first_messages`: (n,) where those of each record begin. `of_row`:
    (n,) the pattern of each in `found`.
    """
    known = [(kind, pattern) for kind, pattern in enumerate(found) if pattern is not None]
    sizes = np.zeros((3, len(found)), np.int64)
    for kind, pattern in known:
        sizes[:, kind] = len(pattern.pieces), len(pattern.segments), len(pattern.roles)
    of_pieces, of_segments, of_turns = (offsets_of(sizes[i][of_row]) for i in range(3))
    pool = np.empty(int(of_pieces[-1]), np.int64)
    first_piece = np.empty(int(of_segments[-1]), np.int64)
    ids = np.empty(len(first_piece), np.int32)
    kinds, turns = np.empty_like(first_piece), np.empty_like(first_piece)
    roles = np.empty(int(of_turns[-1]), np.int64)
    literals: list[str] = []
    for kind, pattern in known:
        here = np.flatnonzero(of_row == kind)
        message = first_messages[here][:, None] + pattern.contents
        literal = len(contents) + len(literals) + np.arange(len(pattern.pieces))
        at = of_pieces[here][:, None] + np.arange(len(pattern.pieces))
        pool[at] = np.where(pattern.contents >= 0, message, literal)
        at = of_segments[here][:, None] + np.arange(len(pattern.segments))
        first_piece[at] = of_pieces[here][:, None] + pattern.segments
        ids[at], kinds[at] = pattern.ids, pattern.kinds
        turns[at] = of_turns[here][:, None] + pattern.turns
        roles[of_turns[here][:, None] + np.arange(len(pattern.roles))] = pattern.roles
        literals += pattern.pieces
    parts = pa.concat_arrays([contents, pa.array(literals, pa.string())]).cast(pa.large_string())
    taken = parts.take(pa.array(pool))
    edges = byte_offsets(taken)
    table = SegmentTable(
        kinds,
        turns,
        roles,
        np.full(len(roles), np.nan, np.float32),
        np.repeat(np.arange(len(first_messages)), np.diff(of_turns)),
    )
    text = text_column(taken, np.append(edges[first_piece], edges[-1]))
    return Columns(text, ids, table, of_segments)
