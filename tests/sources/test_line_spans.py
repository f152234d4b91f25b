from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.sources.json_lines import find_lines, trimmed


def found(data):
    lines = find_lines(data)
    assert lines.rows.tolist() == list(range(len(lines.rows)))
    spans = zip(lines.starts.tolist(), lines.stops.tolist(), strict=True)
    return [data[start:stop] for start, stop in spans]


def stripped(data):
    """The numbers and bytes of the lines that are not blank."""
    lines = trimmed(data, np.frombuffer(data, np.uint8), find_lines(data))
    spans = zip(*(column.tolist() for column in lines), strict=True)
    return [(row, data[start:stop]) for row, start, stop in spans]


@pytest.mark.parametrize("n_bytes", [0, 1, 60, 900, 1100, 70_000])
@pytest.mark.parametrize("head", [b"", b"\n" * 3, b"\n" * 100, b"x" * 70_000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_short_and_long_lines_begin_where_they_stand(n_bytes, head, end):
    data = head + b"\n".join(b"x" * (n_bytes + i) for i in range(200)) + end
    assert found(data) == data.split(b"\n")


@given(st.lists(st.sampled_from([b"", b" ", b"\r", b"\t\t", b"a", b" a ", b"a b\r"])))
def test_blank_lines_go_and_blanks_around_others(lines):
    data = b"\n".join(lines)
    expected = [(i, line.strip(b" \t\r")) for i, line in enumerate(data.split(b"\n"))]
    assert stripped(data) == [(i, line) for i, line in expected if line]


def test_more_blanks_than_rounds_are_trimmed():
    data = b" " * 100 + b"a" + b"\t" * 100 + b"\n" + b" " * 100 + b"\nb" + b"\r" * 65
    assert stripped(data) == [(0, b"a"), (2, b"b")]


def test_lines_are_picked_by_mask_and_by_index():
    lines = find_lines(b"a\nbb\nccc")
    assert lines.pick(np.array([True, False, True])).rows.tolist() == [0, 2]
    assert lines.pick(np.array([1])).stops.tolist() == [4]
