"""Segments of rows: positions from their starts, and starts from positions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokmill.loader.segments import cu_seqlens, position_ids


def test_positions_begin_anew_in_each_segment() -> None:
    found = position_ids(np.array([0, 3, 4]), 6)
    assert (found.tolist(), found.dtype) == ([0, 1, 2, 0, 0, 1], np.int64)


def test_cumulative_lengths_are_those_of_all_rows() -> None:
    found = cu_seqlens(np.array([[0, 1, 0], [0, 1, 2]]))
    assert (found.tolist(), found.dtype) == ([0, 2, 3, 6], np.int32)
    assert cu_seqlens(np.empty((0, 4), np.int64)).tolist() == [0]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_starts_are_found_again_in_the_positions(lengths: list[int]) -> None:
    ends = np.cumsum(lengths)
    positions = position_ids(ends - lengths, int(ends[-1]))
    assert positions.tolist() == [place for length in lengths for place in range(length)]
    assert cu_seqlens(positions).tolist() == [0, *ends.tolist()]
