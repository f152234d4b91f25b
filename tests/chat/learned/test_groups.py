from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.learned.groups import LONGEST, ends_of, grouped, with_blank_ends
from tokmill.chat.learned.pattern import BLANKS, KEEPS, STRIPS, UNKNOWN
from tokmill.chat.reading.columns import Regular


def regular(*rows: list[int]) -> Regular:
    roles = np.array([role for row in rows for role in row], np.int64)
    offsets = np.cumsum([0, *map(len, rows)])
    return Regular(pa.array(["x"] * len(roles), pa.string()), roles, offsets)


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=8))
def test_records_are_grouped_by_their_roles(rows):
    groups = grouped(regular(*rows))
    assert [list(groups.kinds[number]) for number in groups.of_row] == rows
    assert len(set(groups.kinds)) == len(groups.kinds)


def test_records_that_are_too_long_have_no_group():
    groups = grouped(regular([2, 3], [2] * (LONGEST + 1), [3] * LONGEST, [2] * (LONGEST + 1)))
    assert groups.of_row.tolist() == [0, -1, 1, -1]
    assert groups.kinds == [(2, 3), (3,) * LONGEST]
    assert grouped(regular([2] * (LONGEST + 1))).kinds == []


@given(st.lists(st.text(st.sampled_from(BLANKS + "a中\u2003é\u200b\ufeff\u200e"), max_size=4)))
def test_texts_with_white_space_at_an_end_are_found(texts):
    found = with_blank_ends(pa.array(texts, pa.string()))
    expected = [i for i, text in enumerate(texts) if text != text.strip() or not text]
    assert found.tolist() == expected
    sliced = pa.array(["x", *texts], pa.string()).slice(1)
    assert with_blank_ends(sliced).tolist() == expected


@pytest.mark.parametrize("message", [0, 1, 2, 3, 4])
def test_the_ends_of_a_message_are_those_of_its_pattern(message):
    class Known:
        def __init__(self, *ends: int) -> None:
            self.ends = np.array(ends)

    rows = regular([2, 3], [3], [3, 2])
    groups = grouped(rows)
    found = [
        {(2, 3): Known(KEEPS, STRIPS), (3, 2): Known(STRIPS, UNKNOWN)}.get(k) for k in groups.kinds
    ]
    row = np.searchsorted(rows.offsets, message, "right") - 1
    ways = ends_of(np.array([message]), np.array([row]), rows.offsets, groups, [*found, None])
    assert ways.tolist() == [[KEEPS, STRIPS, UNKNOWN, STRIPS, UNKNOWN][message]]
