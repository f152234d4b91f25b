"""The records of a block by their roles, and contents with white space at their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.chat.learned.pattern import BLANKS, UNKNOWN
from tokmill.offsets import offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.chat.learned.pattern import Pattern
    from tokmill.chat.reading.columns import Regular

LONGEST = 128
"""Messages of the longest conversation with a pattern: longer ones seldom have the same roles."""


class Groups(NamedTuple):
    """Records by their roles.

    `kinds`: the different sequences of roles. `of_row`: (n,) int64, their numbers, -1 for a record
    that is too long.
    """

    kinds: Sequence[tuple[int, ...]]
    of_row: npt.NDArray[np.int64]


def grouped(regular: Regular) -> Groups:
    """Return the records of a block by their roles."""
    lengths = np.diff(regular.offsets)
    of_row = np.full(len(lengths), -1, np.int64)
    short = np.flatnonzero(lengths <= LONGEST)
    width = int(lengths[short].max(initial=1))
    matrix = np.full((len(lengths), width), -1, np.int8)
    row = np.repeat(np.arange(len(lengths)), lengths)
    inside = np.arange(len(row)) - np.repeat(regular.offsets[:-1], lengths)
    fits = lengths[row] <= LONGEST
    matrix[row[fits], inside[fits]] = regular.roles[fits]
    keys = np.ascontiguousarray(matrix[short]).view(f"V{width}").ravel()
    kinds, of_row[short] = np.unique(keys, return_inverse=True)
    sequences = kinds.view(np.int8).reshape(len(kinds), width).tolist()
    return Groups([tuple(role for role in kind if role >= 0) for kind in sequences], of_row)


def ends_of(
    messages: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    groups: Groups,
    found: Sequence[Pattern | None],
) -> npt.NDArray[np.int64]:
    """Return what is done with white space at the ends of messages; `rows`: their records."""
    ends = [np.zeros(0, np.int64) if p is None else p.ends for p in found]
    starts = offsets_of(np.array([len(way) for way in ends]))
    kind = groups.of_row[rows]
    has_pattern = np.array([p is not None for p in found])[kind]
    ways = np.full(len(messages), UNKNOWN)
    inside = (messages - offsets[rows])[has_pattern]
    ways[has_pattern] = np.concatenate(ends)[starts[kind[has_pattern]] + inside]
    return ways


_FIRST_BYTES = (0xC2, 0xE1, 0xE2, 0xE3)
"""White space outside ASCII begins with one of these, and ends at most three bytes later."""


def with_blank_ends(contents: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return which texts are empty, or begin or end with white space: indices."""
    offsets = np.frombuffer(contents.buffers()[1], np.int32)
    offsets = offsets[contents.offset : contents.offset + len(contents) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    data = np.frombuffer(contents.buffers()[2] or b"\0", np.uint8)
    top = len(data) - 1
    first = data[np.minimum(offsets[:-1], top)]
    last = data[np.maximum(offsets[1:] - 1, 0)]
    third = data[np.maximum(offsets[1:] - 3, 0)]
    second = data[np.maximum(offsets[1:] - 2, 0)]
    maybe = (first <= 0x20) | (last <= 0x20) | np.isin(first, _FIRST_BYTES)
    maybe |= np.isin(third, _FIRST_BYTES) | (second == _FIRST_BYTES[0])
    index = np.flatnonzero(maybe | (lengths == 0))
    candidates = contents.take(pa.array(index))
    trimmed = pc.binary_length(pc.utf8_trim(candidates, characters=BLANKS)).to_numpy()
    changed: npt.NDArray[np.int64] = index[(trimmed != lengths[index]) | (trimmed == 0)]
    return changed
