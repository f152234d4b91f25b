"""Closed texts: where a control token that is parsed in a text ends what other text goes on from.

A tokenizer that puts a prefix before a text puts it behind such a token as well. So a piece is cut
there, and what follows is encoded as the first of a text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tokmill.masks.segments import TEXT_ALONE
from tokmill.offsets import byte_offsets, text_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.masks.segments import TextSegments


def find_closed(
    segments: TextSegments, goes_on: npt.NDArray[np.bool_], pattern: str
) -> npt.NDArray[np.int64]:
    """Return where texts are closed, in bytes of the column of text: increasing.

    Args:
        segments: n segments.
        goes_on: (n,), whether a segment belongs to the piece of the one before.
        pattern: as `continuation.closed_texts` gives it.
    """
    offsets = byte_offsets(segments.text)
    starts = offsets[:-1][~goes_on[segments.control < 0]]
    pieces = text_column(segments.text, np.append(starts, offsets[-1]))
    found = pc.match_substring_regex(pieces, pattern).to_numpy(zero_copy_only=False)
    positions: list[int] = []
    for number in np.flatnonzero(found).tolist():
        text, start = pieces[number].as_py(), int(starts[number])
        # Only what closes a text is a group.
        ends = [match.end() for match in re.finditer(pattern, text) if match.lastindex]
        positions += [start + len(text[:end].encode()) for end in ends]
    return np.array(positions, np.int64)


def cut_at(segments: TextSegments, positions: npt.NDArray[np.int64]) -> TextSegments:
    """Cut texts at positions in bytes of their column; what begins there begins a piece."""
    is_text = segments.control < 0
    offsets = byte_offsets(segments.text)
    edges = np.union1d(offsets, positions)
    n_parts = np.ones(len(is_text), np.int64)
    n_parts[is_text] = np.diff(np.searchsorted(edges, offsets))
    index = np.repeat(np.arange(len(is_text)), n_parts)
    is_last = np.append(index[1:] != index[:-1], True)
    control = segments.control[index]
    control[np.flatnonzero(control < 0)[np.isin(edges[:-1], positions)]] = TEXT_ALONE
    return replace(
        segments,
        text=text_column(segments.text, edges),
        control=control,
        weights=segments.weights[index],
        ends_turn=segments.ends_turn[index] & is_last,
        sample=segments.sample[index],
    )
