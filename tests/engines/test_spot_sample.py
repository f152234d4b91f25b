from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.engines.spot_check import LONGEST_BYTES, pick_windows

SHARE = 1 / 64
MANY = [f"document {i} 猫{i * 7919 % 1000}" for i in range(6000)]


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def picked(text: pa.LargeStringArray, share: float = SHARE) -> list[int]:
    return [window.number for window in pick_windows(text, share)]


def n_bytes(text: pa.LargeStringArray, share: float) -> int:
    return sum(window.stop - window.start for window in pick_windows(text, share))


@pytest.mark.parametrize("share", [1 / 8, 1 / 64, 0.001])
def test_the_share_of_the_bytes_is_picked_of_short_documents_and_of_long_ones(share):
    letters = np.random.default_rng(0).integers(97, 123, 16 << 20).astype(np.uint8).tobytes()
    sizes = {1 << 9: 30_000, 20_000: 800, 3 * LONGEST_BYTES: 160, 8 << 20: 2}
    for size, n in sizes.items():
        text = strings([letters[i * size : (i + 1) * size].decode() for i in range(n)])
        expected = share * size * n
        spread = (share * size * n * min(size, LONGEST_BYTES)) ** 0.5
        assert abs(n_bytes(text, share) - expected) < 5 * spread, size


@given(st.lists(st.integers(0, len(MANY)), max_size=6))
def test_the_same_documents_are_picked_however_the_batch_is_split(cuts):
    whole = strings(MANY)
    bounds = [0, *sorted(cuts), len(MANY)]
    found: list[int] = []
    for start, stop in itertools.pairwise(bounds):
        view, copied = whole.slice(start, stop - start), strings(MANY[start:stop])
        assert picked(view) == picked(copied)
        found += [start + i for i in picked(view)]
    assert found == picked(whole)


def test_a_picked_document_is_picked_alone_too():
    whole = strings(MANY)
    found = picked(whole)
    assert len(found) > 0
    for i in found:
        assert picked(whole.slice(i, 1)) == [0]
        assert picked(strings([MANY[i]])) == [0]
    others = np.setdiff1d(np.arange(200), found).tolist()
    assert all(picked(whole.slice(i, 1)) == [] for i in others)


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""]])
def test_texts_without_bytes_are_never_picked(texts):
    assert picked(strings(texts), 1.0) == []


def test_a_long_document_is_split_into_windows_that_cover_it():
    texts = ["a", "b" * LONGEST_BYTES, "猫" * (2 * LONGEST_BYTES // 3 + 1), ""]
    windows = pick_windows(strings(texts), 1.0)
    assert [window.number for window in windows] == [0, 1, 2, 2, 2]
    assert all(before.stop == after.start for before, after in itertools.pairwise(windows))
    assert windows[-1].stop == sum(len(text.encode()) for text in texts)
    assert all(window.stop - window.start <= LONGEST_BYTES for window in windows)


def test_windows_of_the_same_text_are_not_picked_all_or_none():
    assert 20 < len(picked(strings(["a" * (400 * LONGEST_BYTES)]), 1 / 8)) < 100
