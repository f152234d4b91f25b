"""Counts at rest say the same in less memory, and are not added to by mistake."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter

import pytest

from tokmill.dataset.counts import Counts


def filled() -> Counts:
    return Counts(3, 2, 70, 300, 400, rejects=Counter({"bad": 1}), fields=Counter(text=300))


def test_counts_at_rest_are_equal_and_say_the_same():
    assert filled().at_rest() == filled()
    assert filled().at_rest().as_json() == filled().as_json()
    assert Counts.from_json(filled().as_json()) == filled()
    again = pickle.loads(pickle.dumps(filled().at_rest()))
    assert again == filled()
    assert again.drops is filled().at_rest().drops  # one for all, in other processes too


def test_counts_at_rest_are_summed_and_not_added_to():
    total, one = Counts(), filled().at_rest()
    for _ in range(2):
        total.add(one)
    assert total.rejects == {"bad": 2}
    assert total.drops == {}
    with pytest.raises(TypeError, match="at rest"):
        one.drops["short"] += 1
    one.awake().drops["short"] += 1
    assert one.drops == {"short": 1}
    assert filled().at_rest().drops == Counts().drops == {}


def test_counts_at_rest_take_less_than_half_the_memory():
    sizes = []
    for is_at_rest in (False, True):
        tracemalloc.start()
        kept = [Counts().at_rest() if is_at_rest else Counts() for _ in range(1000)]
        sizes.append(tracemalloc.get_traced_memory()[0] / len(kept))
        tracemalloc.stop()
    assert sizes[1] < sizes[0] / 2
