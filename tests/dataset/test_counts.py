"""Compacted counts say the same in less memory, and are not added to by mistake."""

from __future__ import annotations

import operator
import pickle
import tracemalloc
from collections import Counter

import pytest

from tokmill.dataset.counts import Counts


def filled() -> Counts:
    return Counts(3, 2, 70, 300, 400, rejects=Counter({"bad": 1}), fields=Counter(text=300))


def test_compacted_counts_are_equal_and_say_the_same():
    assert filled().compacted() == filled()
    assert filled().compacted().as_json() == filled().as_json()
    assert Counts.from_json(filled().as_json()) == filled()
    again = pickle.loads(pickle.dumps(filled().compacted()))
    assert again == filled()
    assert again.drops is filled().compacted().drops  # one for all, in other processes too


@pytest.mark.parametrize(
    "change",
    [
        lambda drops: drops.update({"x": 1}),
        lambda drops: drops.update(x=1),
        lambda drops: drops.subtract({"x": 1}),
        lambda drops: drops.setdefault("x", 1),
        lambda drops: operator.setitem(drops, "x", 1),
        lambda drops: operator.iadd(drops, Counter(x=1)),
    ],
)
def test_nothing_is_added_to_the_empty_counter_that_all_share(change):
    with pytest.raises(TypeError, match=r"^compacted counts"):
        change(Counts().compacted().drops)
    assert Counts().compacted().drops == {}


def test_compacted_counts_take_less_than_half_the_memory():
    sizes = []
    for is_compacted in (False, True):
        tracemalloc.start()
        kept = [Counts().compacted() if is_compacted else Counts() for _ in range(1000)]
        sizes.append(tracemalloc.get_traced_memory()[0] / len(kept))
        tracemalloc.stop()
    assert sizes[1] < sizes[0] / 2
