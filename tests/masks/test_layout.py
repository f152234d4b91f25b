from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tokmill.masks.layout import lay_out

CHAT = [
    [
        *((1, 0), ("user\n", 0), ("Hi", 0), (2, 0), ("\n", 0)),
        *((1, 0), ("bot\n", 0), ("Yo", 1), (2, 1, True), ("\n", 0)),
    ],
    [("Q: ", 0), ("a", 1, True), ("\nQ: ", 0), ("b", 1, True)],
]


def pieces(layout):
    return layout.pieces.to_pylist()


def items(layout):
    return list(zip(layout.control.tolist(), layout.weights.tolist(), strict=True))


def test_split_ends_a_piece_where_the_weight_changes(sample_batch):
    layout = lay_out(sample_batch(CHAT), split=True)
    assert pieces(layout) == ["user\nHi", "\n", "bot\n", "Yo", "\n", "Q: ", "a", "\nQ: ", "b"]
    assert layout.behind_text.tolist() == [0, 0, 0, 1, 0, 0, 1, 1, 1]
    assert layout.behind_control.tolist() == [1, 1, 1, 0, 1, 0, 0, 0, 0]
    assert layout.piece_sample.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert not layout.is_mark.any()
    assert len(layout.mark_piece) == len(layout.mark_bytes) == 0


def test_joint_goes_from_control_token_to_control_token(sample_batch):
    layout = lay_out(sample_batch(CHAT), split=False)
    assert pieces(layout) == ["user\nHi", "\n", "bot\nYo", "\n", "Q: a\nQ: b"]
    assert layout.mark_piece.tolist() == [2, 4, 4, 4]
    assert layout.mark_bytes.tolist() == [4, 3, 4, 8]
    assert not layout.behind_text.any()


@pytest.mark.parametrize("split", [True, False])
def test_items_have_one_weight_each(sample_batch, split):
    layout = lay_out(sample_batch(CHAT), split=split)
    assert items(layout) == [
        *((1, 0), (-1, 0), (2, 0), (-1, 0), (1, 0), (-1, 0), (-1, 1), (2, 1), (-1, 0)),
        *((-1, 0), (-1, 1), (-1, 0), (-1, 1)),
    ]
    assert layout.sample.tolist() == [0] * 9 + [1] * 4
    assert np.flatnonzero(layout.ends_turn).tolist() == [7, 10, 12]


def test_a_turn_that_ends_inside_a_piece_is_a_mark(sample_batch):
    batch = sample_batch([[("ab", 1, True), ("c", 1), ("d", 1)]])
    layout = lay_out(batch, split=True)
    assert pieces(layout) == ["abcd"]
    assert (layout.mark_bytes.tolist(), layout.is_mark.tolist()) == ([2], [False, True])
    assert layout.ends_turn.tolist() == [True, False]


@pytest.mark.parametrize("split", [True, False])
def test_text_that_is_told_alone_begins_a_piece(sample_batch, split):
    layout = lay_out(sample_batch([[("a", 0), ("!b", 0), ("c", 0)]]), split=split)
    assert pieces(layout) == ["a", "bc"]
    assert layout.behind_text.tolist() == [False, True]


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
    layout = lay_out(batch, split=split)
    assert pieces(layout) == ["ab", "c", "d", "e"]
    assert layout.control.tolist()[:3] == [1, -1, -1]
    assert layout.sample.tolist() == [0, 0, 1, 3, 3]
    assert layout.ends_turn.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("texts", "left", "right", "expected"),
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
def test_control_tokens_swallow_white_space_of_their_sample(
    sample_batch, texts, left, right, expected
):
    batch = sample_batch([[(text, 0) for text in texts], [(" z ", 0)]])
    layout = lay_out(batch, split=True, strips_left=left, strips_right=right)
    assert pieces(layout) == [*expected, " z "]


def test_a_batch_that_is_a_view_of_another_is_laid_out_alone(sample_batch):
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
    assert pieces(lay_out(view, split=True)) == ["a", "b"]
    assert pieces(lay_out(view, split=False)) == ["a", "b"]


def test_no_samples_have_no_pieces(sample_batch):
    layout = lay_out(sample_batch([]), split=True)
    assert (pieces(layout), items(layout)) == ([], [])
