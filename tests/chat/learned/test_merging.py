from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tokmill.chat.learned.merging import equal, merged, placed, selected
from tokmill.values import UnreadKeys

CHATS = (
    [("user", "a"), ("assistant", "b")],
    [("assistant", "c")],
    [("system", "s"), ("user", "d"), ("assistant", "e"), ("user", "f"), ("assistant", "g")],
    [("user", "<think>"), ("assistant", "h")],
)


@pytest.fixture
def write(make_renderer):
    """Write the chats of these numbers one by one."""
    writer = make_renderer("chatml").writer

    def of(*numbers: int):
        chats = [
            {"messages": [{"role": role, "content": text} for role, text in CHATS[number]]}
            for number in numbers
        ]
        return writer.write(pa.array(map(json.dumps, chats), pa.large_string()))

    return of


@pytest.mark.parametrize("order", [[0], [2, 0], [3, 1, 2, 0], [1, 1]])
def test_selected_samples_are_those_that_would_have_been_written(write, order):
    assert equal(selected(write(0, 1, 2, 3).columns, np.array(order)), write(*order).columns)


@pytest.mark.parametrize("first", [[0, 2], [1], [0, 1, 2], [3, 0]])
def test_samples_of_two_writers_stand_in_the_order_of_their_rows(write, first):
    second = [number for number in range(4) if number not in first]
    one = write(*first)._replace(rows=np.array(first), refused=[(9, "a", "b")], drops={"c": [8]})
    whole, both = write(0, 1, 2, 3), merged(one, write(*second)._replace(rows=np.array(second)))
    assert equal(both.columns, whole.columns)
    assert both.rows.tolist() == [0, 1, 2, 3]
    assert (both.refused, both.drops) == ([(9, "a", "b")], {"c": [8]})
    assert {k: n.tolist() for k, n in both.noticed.items()} == {
        k: n.tolist() for k, n in whole.noticed.items()
    }


def test_samples_that_differ_in_one_column_are_not_equal(write):
    columns = write(0, 2).columns
    assert equal(columns, write(0, 2).columns)
    assert not equal(columns, write(0, 3).columns)
    for name in ("kinds", "turns", "roles", "samples"):
        changed = getattr(columns.table, name).copy()
        changed[-1] -= 1
        assert not equal(columns, columns._replace(table=columns.table._replace(**{name: changed})))
    given = columns.table.given.copy()
    given[0] = 1
    assert not equal(columns, columns._replace(table=columns.table._replace(given=given)))
    assert not equal(columns, columns._replace(ids=columns.ids + 1))
    assert not equal(columns, columns._replace(offsets=columns.offsets + 1))


def test_refused_and_dropped_rows_of_both_writers_stand_in_order(write):
    one = write(0)._replace(refused=[(5, "a", "b")], drops={"c": [2, 8], "d": [3]})
    other = write(1)._replace(rows=np.array([1]), refused=[(4, "e", "f")], drops={"c": [7]})
    both = merged(one, other)
    assert both.refused == [(4, "e", "f"), (5, "a", "b")]
    assert both.drops == {"c": [2, 7, 8], "d": [3]}


def test_unread_keys_of_both_writers_are_kept(write):
    one = write(0, 2)._replace(unread=UnreadKeys([("id",)], np.array([0, -1], np.int32)))
    other = write(1)._replace(unread=UnreadKeys([("id", "url")], np.array([0], np.int32)))
    parts = [placed(one, np.array([0, 2]), 3), placed(other, np.array([1]), 3)]
    both = merged(*parts).unread
    assert [both.sets[i] if i >= 0 else () for i in both.of_row] == [("id",), ("id", "url"), ()]
    for without in (
        [parts[0], parts[1]._replace(unread=None)],
        [parts[0]._replace(unread=None), parts[1]],
    ):
        left = merged(*without).unread
        assert sum(left.of_row >= 0) == 1


def test_rows_are_placed_among_all(write):
    part = write(0, 2)._replace(refused=[(1, "a", "b")], drops={"c": [0, 1]})
    found = placed(part, np.array([4, 7]), 9)
    assert found.rows.tolist() == [4, 7]
    assert (found.refused, found.drops, found.unread) == ([(7, "a", "b")], {"c": [4, 7]}, None)
