"""Compacted counts say the same in less memory, and are not added to by mistake."""

from __future__ import annotations

import copy
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


def test_compacted_counts_are_summed_and_not_added_to():
    total, one = Counts(), filled().compacted()
    for _ in range(2):
        total.add(one)
    assert total.rejects == {"bad": 2}
    assert total.drops == {}
    with pytest.raises(TypeError, match="compacted counts"):
        one.drops["short"] += 1
    one.mutable().drops["short"] += 1
    assert one.drops == {"short": 1}
    assert filled().compacted().drops == Counts().drops == {}


CHANGES = {
    "__setitem__": lambda drops: operator.setitem(drops, "x", 1),
    "__delitem__": lambda drops: operator.delitem(drops, "x"),
    "update": lambda drops: drops.update({"x": 1}),
    "update by name": lambda drops: drops.update(x=1),
    "update of nothing": lambda drops: drops.update(),
    "subtract": lambda drops: drops.subtract({"x": 1}),
    "setdefault": lambda drops: drops.setdefault("x", 1),
    "pop": lambda drops: drops.pop("x", None),
    "popitem": lambda drops: drops.popitem(),
    "clear": lambda drops: drops.clear(),
    "__iadd__": lambda drops: operator.iadd(drops, Counter(x=1)),
    "__isub__": lambda drops: operator.isub(drops, Counter(x=-1)),
    "__ior__": lambda drops: operator.ior(drops, Counter(x=1)),
    "__iand__": lambda drops: operator.iand(drops, Counter(x=1)),
    "__ixor__": lambda drops: operator.ixor(drops, Counter(x=1)),
}
READS = {"copy", "elements", "fromkeys", "get", "items", "keys", "most_common", "total", "values"}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_changes_the_empty_counter_that_all_share(name):
    drops = Counts().compacted().drops
    with pytest.raises(TypeError, match=r"^compacted counts"):
        CHANGES[name](drops)
    assert drops == {}
    assert Counts().compacted().drops == {}


def test_each_method_that_changes_a_counter_is_tried():
    public = {name for name in dir(Counter) if not name.startswith("_")}
    in_place = {f"__i{name[2:]}" for name in ("__add__", "__sub__", "__or__", "__and__")}
    assert public - READS | in_place <= set(CHANGES)


def test_what_is_made_of_the_empty_counter_is_a_counter_of_its_own():
    drops = Counts().compacted().drops
    for made in (drops.copy(), drops + Counter(), drops | Counter(), Counter(drops)):
        made["short"] += 1
        assert made == {"short": 1}
    assert copy.deepcopy(drops) is copy.copy(drops) is drops
    assert drops == {}


def test_compacted_counts_take_less_than_half_the_memory():
    sizes = []
    for is_compacted in (False, True):
        tracemalloc.start()
        kept = [Counts().compacted() if is_compacted else Counts() for _ in range(1000)]
        sizes.append(tracemalloc.get_traced_memory()[0] / len(kept))
        tracemalloc.stop()
    assert sizes[1] < sizes[0] / 2
