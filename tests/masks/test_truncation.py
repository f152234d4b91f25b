from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.masks.truncation import truncate
from tokmill.values import SampleTokens


def samples(*weights, turn_ends=()):
    """Make samples of these weights, but for the first; ids count up through all of them."""
    lengths = [len(sample) for sample in weights]
    flat = [weight if i else 0 for sample in weights for i, weight in enumerate(sample)]
    return SampleTokens(
        np.arange(len(flat), dtype=np.uint32),
        np.cumsum([0, *lengths], dtype=np.int64),
        np.array(flat, np.float32),
        np.array(turn_ends, np.int64),
    )


def shown(tokens):
    bounds = zip(tokens.offsets[:-1].tolist(), tokens.offsets[1:].tolist(), strict=True)
    return [(tokens.ids[a:b].tolist(), tokens.weights[a:b].tolist()) for a, b in bounds]


def n_cut(found):
    return len(np.unique(found.source[found.is_cut]))


def dropped(found):
    return {reason: found.tolist() for reason, found in found.dropped.items()}


GIVEN = samples([0, 1, 1], [0, 0, 1, 0, 1], [0, 1], turn_ends=[3, 6, 8, 10])


@pytest.mark.parametrize("limit", [0, 5, 9])
@pytest.mark.parametrize(
    "rule", ["drop", "drop-turns", "truncate-left", "truncate-right", "window"]
)
def test_samples_within_the_limit_are_unchanged(limit, rule):
    found = truncate(GIVEN, limit, rule)
    assert found.samples is GIVEN
    assert found.source.tolist() == [0, 1, 2]
    assert (dropped(found), n_cut(found), len(found.untrained_windows)) == ({}, 0, 0)


def test_turns_are_dropped_from_the_end():
    found = truncate(GIVEN, 4, "drop-turns")
    assert shown(found.samples) == [
        ([0, 1, 2], [0, 1, 1]),
        ([3, 4, 5], [0, 0, 1]),
        ([8, 9], [0, 1]),
    ]
    assert found.samples.turn_ends.tolist() == [3, 6, 8]
    assert (n_cut(found), found.is_cut.tolist()) == (1, [False, True, False])


def test_a_turn_that_ends_at_the_limit_stays():
    found = truncate(samples([0, 1, 1, 0, 1], turn_ends=[3, 5]), 3, "drop-turns")
    assert shown(found.samples) == [([0, 1, 2], [0, 1, 1])]


def test_a_sample_whose_first_turn_is_too_long_is_dropped():
    found = truncate(samples([0, 1, 1], [0, 1], [0, 1, 1], turn_ends=[3, 5, 8]), 2, "drop-turns")
    assert dropped(found) == {"more than max_tokens": [0, 2]}
    assert shown(found.samples) == [([3, 4], [0, 1])]


def test_a_sample_cut_before_its_first_trained_token_is_dropped():
    found = truncate(samples([0, 0, 0, 1], turn_ends=[2, 4]), 3, "drop-turns")
    assert dropped(found) == {"no trained token": [0]}
    assert (found.source.tolist(), n_cut(found)) == ([], 0)


def test_long_samples_are_dropped_whole():
    found = truncate(GIVEN, 4, "drop")
    assert shown(found.samples) == [([0, 1, 2], [0, 1, 1]), ([8, 9], [0, 1])]
    assert found.samples.turn_ends.tolist() == [3, 5]
    assert (found.source.tolist(), n_cut(found)) == ([0, 2], 0)
    assert dropped(found) == {"more than max_tokens": [1]}


def test_the_first_tokens_stay():
    found = truncate(GIVEN, 4, "truncate-right")
    assert shown(found.samples)[1] == ([3, 4, 5, 6], [0, 0, 1, 0])
    assert found.samples.turn_ends.tolist() == [3, 6, 9]
    assert found.is_cut.tolist() == [False, True, False]
    last = found.selected(np.array([1, 2]))
    assert shown(last.samples) == shown(found.samples)[1:]
    assert (last.source.tolist(), last.is_cut.tolist()) == ([1, 2], [True, False])


def test_the_last_tokens_stay_and_the_first_of_them_is_untrained():
    found = truncate(GIVEN, 3, "truncate-left")
    assert shown(found.samples)[1] == ([5, 6, 7], [0, 0, 1])
    assert found.samples.turn_ends.tolist() == [3, 4, 6, 8]


def test_a_sample_of_one_token_trains_nothing():
    found = truncate(GIVEN, 1, "truncate-left")
    assert dropped(found) == {"no trained token": [0, 1, 2]}


def test_windows_without_a_trained_token_are_left_out_and_counted():
    found = truncate(samples([0, 0, 0, 0, 1], [0, 0, 0, 0]), 2, "window")
    assert shown(found.samples) == [([3, 4], [0, 1])]
    assert (found.source.tolist(), found.untrained_windows.tolist()) == ([0], [0, 0, 0])
    assert dropped(found) == {"no trained token": [1]}
    assert dropped(truncate(samples([0, 0, 0, 0, 1]), 2, "window")) == {}


def test_samples_without_a_trained_token_are_dropped_whatever_the_limit():
    found = truncate(samples([0, 0], [1], [], [0, 1]), 0, "drop")
    assert shown(found.samples) == [([3, 4], [0, 1])]
    assert dropped(found) == {"no trained token": [0, 1, 2]}


WEIGHTS = st.lists(st.lists(st.sampled_from([0, 0.5, 1]), max_size=30), max_size=6)


@given(WEIGHTS, st.integers(2, 8), st.integers(0, 7))
def test_every_trained_token_is_trained_in_exactly_one_window(weights, limit, overlap):
    overlap = min(overlap, limit - 1)
    given_samples = samples(*weights)
    found = truncate(given_samples, limit, "window", overlap)
    trained = found.samples.ids[found.samples.weights > 0].tolist()
    expected = given_samples.weights
    assert trained == np.flatnonzero(expected > 0).tolist()
    assert np.array_equal(found.samples.weights[found.samples.weights > 0], expected[expected > 0])
    assert (found.samples.weights >= 0).all()
    assert (np.diff(found.samples.offsets) <= limit).all()


@given(
    WEIGHTS,
    st.integers(1, 8),
    st.sampled_from(["drop", "drop-turns", "truncate-left", "truncate-right"]),
    st.randoms(use_true_random=False),
)
def test_each_kept_range_is_of_its_sample_and_has_a_target(weights, limit, rule, random):
    total = sum(map(len, weights))
    ends = sorted(random.sample(range(1, total + 1), k=min(total, 4)))
    given_samples = samples(*weights, turn_ends=ends)
    found = truncate(given_samples, limit, rule)
    kept = found.source.tolist()
    for (ids, kept_weights), source in zip(shown(found.samples), kept, strict=True):
        first, last = given_samples.offsets[source : source + 2].tolist()
        assert ids == list(range(ids[0], ids[-1] + 1))
        assert first <= ids[0]
        assert ids[-1] < last
        assert len(ids) <= limit
        assert kept_weights == [0, *given_samples.weights[ids[1:]].tolist()]
        assert any(kept_weights)
        if rule == "drop-turns" and ids[-1] + 1 < last:
            assert ids[-1] + 1 in ends
    gone = [index for found in found.dropped.values() for index in found.tolist()]
    assert sorted(gone + kept) == list(range(len(weights)))
