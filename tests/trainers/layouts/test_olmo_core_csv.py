"""The lines of `.csv.gz`, for numbers of every width, in chunks, with the same bytes each time."""

from __future__ import annotations

import gzip
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.trainers.layouts import olmo_core_csv
from tokmill.trainers.layouts.olmo_core_csv import csv_text, most_bytes, write_csv


def plain(numbers: list[int]) -> bytes:
    return "".join(f"{a},{b}\n" for a, b in pairwise(numbers)).encode()


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=60))
def test_lines_are_those_of_plain_formatting(steps: list[int]) -> None:
    numbers = sorted(steps)
    assert csv_text(np.array(numbers, np.int64)) == plain(numbers)


def test_every_number_of_digits_is_written_right() -> None:
    numbers = sorted({max(0, 10**k + d) for k in range(16) for d in (-2, -1, 0, 1, 2)})
    assert csv_text(np.array(numbers, np.int64)) == plain(numbers)


def test_no_document_is_no_line() -> None:
    assert csv_text(np.zeros(1, np.int64)) == b""


def test_chunks_are_one_text() -> None:
    ends = np.cumsum(np.random.default_rng(1).integers(1, 900, 1000))
    chunks = [ends[i : i + 64] for i in range(0, 1000, 64)]
    file = io.BytesIO()
    write_csv(file, chunks)
    assert gzip.decompress(file.getvalue()) == plain([0, *ends.tolist()])


@pytest.mark.parametrize("n", [1, 1000, 300_000])
def test_the_bound_of_the_size_holds(n: int) -> None:
    ends = np.cumsum(np.random.default_rng(2).integers(1, 1 << 20, n))
    step = olmo_core_csv.CHUNK_DOCUMENTS
    file = io.BytesIO()
    write_csv(file, [ends[i : i + step] for i in range(0, n, step)])
    assert len(file.getvalue()) <= most_bytes(n, int(ends[-1]))
