from __future__ import annotations

import numpy as np
import pytest

from tokmill.masks.assemble import assemble
from tokmill.masks.boundaries import BoundaryTokens
from tokmill.masks.layout import SampleRules, lay_out
from tokmill.values import TokenBatch


def tokens(*lengths):
    """Make tokens of texts of these lengths; ids count up from 100."""
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    return TokenBatch(np.arange(100, 100 + offsets[-1], dtype=np.uint32), offsets)


def marks(*found):
    first, first_behind, is_known = np.array(found or np.zeros((0, 3)), np.int64).T
    return BoundaryTokens(first, first_behind, is_known.astype(bool))


def assembled(batch, tokens, marks, *, split=False, straddling="train"):
    layout = lay_out(batch, SampleRules("split" if split else "joint"))
    n_samples = len(batch.offsets) - 1
    return assemble(layout, tokens, marks, n_samples, straddling=straddling)


def test_control_tokens_stand_between_those_of_text(sample_batch):
    batch = sample_batch([[(1, 1), ("ab", 0), (2, 1), (3, 0)], [("c", 1), ("d", 1), (4, 0.5)]])
    found, mixed = assembled(batch, tokens(2, 3), marks())
    assert found.ids.tolist() == [1, 100, 101, 2, 3, 102, 103, 104, 4]
    assert found.ids.dtype == np.uint32
    assert found.weights.tolist() == [0, 0, 0, 1, 0, 0, 1, 1, 0.5]
    assert found.weights.dtype == np.float32
    assert found.offsets.tolist() == [0, 5, 9]
    assert mixed.tolist() == []


def test_tokens_of_a_text_are_weighed_by_the_boundaries_between(sample_batch):
    batch = sample_batch([[(1, 0), ("ab", 0), ("c", 1), ("d", 0)]])
    found, _ = assembled(batch, tokens(4), marks((2, 2, 1), (3, 3, 1)))
    assert found.weights.tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(("straddling", "weight"), [("train", 1), ("mask", 0), ("reject", 1)])
def test_a_straddling_token_is_weighed_by_the_rule(sample_batch, straddling, weight):
    batch = sample_batch([[("z", 0)], [(1, 0), ("ab", 0), ("c", 1), (2, 0)]])
    found, mixed = assembled(batch, tokens(1, 3), marks((2, 3, 1)), straddling=straddling)
    assert found.weights.tolist() == [0, 0, 0, weight, 1, 0]
    assert mixed.tolist() == [1]


def test_a_token_of_many_spans_is_one_straddling_token(sample_batch):
    batch = sample_batch([[(1, 0), ("a", 0), ("b", 0.5), ("c", 0), ("d", 1), ("e", 1)]])
    found, mixed = assembled(batch, tokens(2), marks((0, 1, 1), (0, 1, 1), (0, 1, 1)))
    assert found.weights.tolist() == [0, 1, 1]
    assert mixed.tolist() == [0]


def test_a_token_of_two_trained_spans_is_not_counted(sample_batch):
    batch = sample_batch([[(1, 0), ("a", 0.5), ("b", 1)]])
    found, mixed = assembled(batch, tokens(1), marks((0, 1, 1)), straddling="mask")
    assert found.weights.tolist() == [0, 1]
    assert mixed.tolist() == []


def test_several_tokens_may_straddle_a_boundary(sample_batch):
    batch = sample_batch([[(1, 0), ("a", 0), ("b", 1), ("c", 0)]])
    found, mixed = assembled(batch, tokens(4), marks((1, 3, 1), (3, 3, 1)), straddling="mask")
    assert found.weights.tolist() == [0, 0, 0, 0, 0]
    assert mixed.tolist() == [0, 0]


def test_turns_end_after_their_last_token(sample_batch):
    batch = sample_batch(
        [[(1, 0), ("a", 1, True), ("b", 0), (2, 0, True)], [("c", 1, True), ("d", 1, True)]]
    )
    found, _ = assembled(batch, tokens(3, 2), marks((1, 2, 1), (4, 4, 1)))
    assert found.turn_ends.tolist() == [3, 5, 6, 7]


def test_a_turn_with_an_unknown_end_has_no_end(sample_batch):
    batch = sample_batch([[(1, 0), ("a", 1, True), ("b", 1), (2, 0, True)]])
    found, _ = assembled(batch, tokens(3), marks((3, 3, 0)))
    assert found.turn_ends.tolist() == [5]
    assert found.weights.tolist() == [0, 1, 1, 1, 0]


def test_a_sample_may_have_no_tokens(sample_batch):
    batch = sample_batch([[("", 1)], [(1, 1), (2, 1)], [("", 1)], [("", 0)]])
    found, _ = assembled(batch, tokens(), marks())
    assert found.offsets.tolist() == [0, 0, 2, 2, 2]
    assert found.weights.tolist() == [0, 1]
