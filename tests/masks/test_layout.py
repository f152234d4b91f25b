from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tokmill.masks.layout import SampleRules, lay_out

CHAT = [
    [
        *((1, 0), ("user\n", 0), ("Hi", 0), (2, 0), ("\n", 0)),
        *((1, 0), ("bot\n", 0), ("Yo", 1), (2, 1, True), ("\n", 0)),
    ],
    [("Q: ", 0), ("a", 1, True), ("\nQ: ", 0), ("b", 1, True)],
]


def laid_out(batch, *, split, **rules):
    return lay_out(batch, SampleRules("split" if split else "joint", **rules))


def texts(layout):
    return layout.texts.to_pylist()


def spans(layout):
    return list(zip(layout.control.tolist(), layout.weights.tolist(), strict=True))


def test_split_ends_a_text_where_the_weight_changes(sample_batch):
    layout = laid_out(sample_batch(CHAT), split=True)
    assert texts(layout) == ["user\nHi", "\n", "bot\n", "Yo", "\n", "Q: ", "a", "\nQ: ", "b"]
    assert layout.follows_text.tolist() == [0, 0, 0, 1, 0, 0, 1, 1, 1]
    assert layout.follows_control.tolist() == [1, 1, 1, 0, 1, 0, 0, 0, 0]
    assert layout.text_sample.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert not layout.is_inner.any()
    assert len(layout.boundary_text) == len(layout.boundary_bytes) == 0


def test_a_joint_text_goes_from_control_token_to_control_token(sample_batch):
    layout = laid_out(sample_batch(CHAT), split=False)
    assert texts(layout) == ["user\nHi", "\n", "bot\nYo", "\n", "Q: a\nQ: b"]
    assert layout.boundary_text.tolist() == [2, 4, 4, 4]
    assert layout.boundary_bytes.tolist() == [4, 3, 4, 8]
    assert not layout.follows_text.any()


@pytest.mark.parametrize("split", [True, False])
def test_each_span_has_one_weight(sample_batch, split):
    layout = laid_out(sample_batch(CHAT), split=split)
    assert spans(layout) == [
        *((1, 0), (-1, 0), (2, 0), (-1, 0), (1, 0), (-1, 0), (-1, 1), (2, 1), (-1, 0)),
        *((-1, 0), (-1, 1), (-1, 0), (-1, 1)),
    ]
    assert layout.sample.tolist() == [0] * 9 + [1] * 4
    assert np.flatnonzero(layout.ends_turn).tolist() == [7, 10, 12]


def test_a_turn_that_ends_inside_a_text_makes_a_boundary(sample_batch):
    batch = sample_batch([[("ab", 1, True), ("c", 1), ("d", 1)]])
    layout = laid_out(batch, split=True)
    assert texts(layout) == ["abcd"]
    assert (layout.boundary_bytes.tolist(), layout.is_inner.tolist()) == ([2], [False, True])
    assert layout.ends_turn.tolist() == [True, False]


@pytest.mark.parametrize("split", [True, False])
def test_text_that_must_not_merge_starts_a_text(sample_batch, split):
    layout = laid_out(sample_batch([[("a", 0), ("!b", 0), ("c", 0)]]), split=split)
    assert texts(layout) == ["a", "bc"]
    assert layout.follows_text.tolist() == [False, True]


@pytest.mark.parametrize("split", [True, False])
def test_empty_texts_are_left_out(sample_batch, split):
    batch = sample_batch(
        [
            [("", 1), (1, 0), ("", 1, True), ("a", 0), ("", 1), ("b", 0, True), ("", 1, True)],
            [("", 0, True), ("c", 0)],
            [("", 1, True)],
            [("d", 0), ("!", 1), ("e", 0), ("!", 1)],
        ]
    )
    layout = laid_out(batch, split=split)
    assert texts(layout) == ["ab", "c", "d", "e"]
    assert layout.control.tolist()[:3] == [1, -1, -1]
    assert layout.sample.tolist() == [0, 0, 1, 3, 3]
    assert layout.ends_turn.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("parts", "left", "right", "expected"),
    [
        (["a \n", 5, " \t\u3000b "], (), (5,), ["a \n", "b "]),
        (["a \n", 5, " \t\u3000b "], (5,), (), ["a", " \t\u3000b "]),
        (["a ", 5, " ", "\n", " b"], (), (5,), ["a ", "b"]),
        (["a ", " ", " ", 5, "b"], (5,), (), ["a", "b"]),
        ([" ", 5, "", " "], (5,), (5,), []),
        ([5, " ", 6, " a"], (6,), (5,), [" a"]),
        ([5, "\x1ca"], (), (5,), ["\x1ca"]),
        (["a ", 4, " b"], (5,), (5,), ["a ", " b"]),
    ],
)
def test_control_tokens_strip_white_space_of_their_own_sample(
    sample_batch, parts, left, right, expected
):
    batch = sample_batch([[(part, 0) for part in parts], [(" z ", 0)]])
    layout = laid_out(batch, split=True, strips_left=frozenset(left), strips_right=frozenset(right))
    assert texts(layout) == [*expected, " z "]


def test_a_slice_of_a_batch_is_laid_out_like_a_batch(sample_batch):
    batch = sample_batch([[("xx", 0), ("a", 0), (3, 0), ("b", 1)]])
    text = batch.text.slice(1)
    view = dataclasses.replace(
        batch,
        text=text,
        offsets=np.array([0, 3]),
        control=batch.control[1:],
        weights=batch.weights[1:],
        turn_ends=batch.turn_ends[1:],
    )
    assert texts(laid_out(view, split=True)) == ["a", "b"]
    assert texts(laid_out(view, split=False)) == ["a", "b"]


def test_no_samples_have_no_texts(sample_batch):
    layout = laid_out(sample_batch([]), split=True)
    assert (texts(layout), spans(layout)) == ([], [])


RESTARTS = r"(<c>[ \n]*)|<d>"


def texts_of(samples, sample_batch, *, split=True):
    layout = laid_out(sample_batch(samples), split=split, restart_pattern=RESTARTS)
    shown = zip(layout.texts.to_pylist(), layout.follows_text.tolist(), strict=True)
    return [f"+{text}" if behind else text for text, behind in shown]


def test_a_text_ends_after_a_parsed_control_token_and_the_next_is_no_continuation(sample_batch):
    sample = [("猫<c>\n b<d>c", 0), ("e", 1)]
    assert texts_of([sample], sample_batch) == ["猫<c>\n ", "b<d>c", "+e"]
    assert texts_of([sample], sample_batch, split=False) == ["猫<c>\n ", "b<d>ce"]


def test_a_restart_may_be_at_the_end_of_a_segment_or_inside_the_next(sample_batch):
    assert texts_of([[("a<c>", 0), ("b", 0), ("c", 1)]], sample_batch) == ["a<c>", "b", "+c"]
    assert texts_of([[("a<c>", 0), ("\nb", 0)]], sample_batch) == ["a<c>\n", "b"]
    assert texts_of([[("a<", 0), ("c>b", 0)]], sample_batch) == ["a<c>", "b"]


def test_trained_text_after_a_restart_is_no_continuation(sample_batch):
    assert texts_of([[("a<c>", 0), (" b", 1)]], sample_batch) == ["a<c>", " b"]
    assert texts_of([[("a<d>", 0), (" b", 1)]], sample_batch) == ["a<d>", "+ b"]


def test_a_restart_changes_nothing_in_the_next_sample(sample_batch):
    samples = [[("a<c>", 0)], [(7, 0), ("b", 0), ("c", 1)]]
    assert texts_of(samples, sample_batch) == ["a<c>", "b", "+c"]


@pytest.mark.parametrize("split", [True, False])
def test_weights_and_turn_ends_stay_with_their_text(sample_batch, split):
    sample = [("a<c>b", 1, True), (7, 0), ("<c>", 0), ("c", 1, True)]
    layout = laid_out(sample_batch([sample]), split=split, restart_pattern=RESTARTS)
    assert layout.texts.to_pylist() == ["a<c>", "b", "<c>", "c"]
    assert layout.control.tolist() == [-1, -2, 7, -1, -2 if not split else layout.control[-1]]
    assert layout.weights.tolist() == [1, 1, 0, 0, 1]
    assert layout.ends_turn.tolist() == [False, True, False, False, True]


def test_texts_without_control_tokens_are_laid_out_as_without_a_pattern(sample_batch):
    batch = sample_batch([[("a", 0), ("b", 1)], [("<d>", 0)]])
    found, expected = (
        laid_out(batch, split=True, restart_pattern=RESTARTS),
        laid_out(batch, split=True),
    )
    assert found.texts.equals(expected.texts)
    assert found.follows_text.tolist() == expected.follows_text.tolist() == [False, True, False]
