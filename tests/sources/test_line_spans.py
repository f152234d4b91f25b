from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.sources.json_lines import find_lines, parse_lines


def found(data):
    return [data[start:stop] for start, stop in zip(*find_lines(data), strict=True)]


def stripped(data):
    """The numbers and bytes of the lines that are not blank: here, all are refused."""
    parsed = parse_lines(data, pa.schema([]))
    spans = list(zip(parsed.line_starts.tolist(), parsed.line_stops.tolist(), strict=True))
    return [(row, data[slice(*spans[row])]) for row in sorted(parsed.refused)]


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


def test_long_runs_of_blanks_are_trimmed():
    data = b" " * 100 + b"a" + b"\t" * 100 + b"\n" + b" " * 100 + b"\nb" + b"\r" * 65
    assert stripped(data) == [(0, b"a"), (2, b"b")]
