from __future__ import annotations

import pytest

from tokmill.masks.layout import lay_out

CLOSED = r"(<c>[ \n]*)|<d>"


def pieces(samples, sample_batch, *, split=True):
    layout = lay_out(sample_batch(samples), split=split, closed=CLOSED)
    shown = zip(layout.pieces.to_pylist(), layout.behind_text.tolist(), strict=True)
    return [f"+{text}" if behind else text for text, behind in shown]


def test_a_piece_ends_behind_a_control_token_and_none_goes_on_from_it(sample_batch):
    sample = [("猫<c>\n b<d>c", 0), ("e", 1)]
    assert pieces([sample], sample_batch) == ["猫<c>\n ", "b<d>c", "+e"]
    assert pieces([sample], sample_batch, split=False) == ["猫<c>\n ", "b<d>ce"]


def test_a_text_may_be_closed_where_a_segment_ends_or_within_the_next(sample_batch):
    assert pieces([[("a<c>", 0), ("b", 0), ("c", 1)]], sample_batch) == ["a<c>", "b", "+c"]
    assert pieces([[("a<c>", 0), ("\nb", 0)]], sample_batch) == ["a<c>\n", "b"]
    assert pieces([[("a<", 0), ("c>b", 0)]], sample_batch) == ["a<c>", "b"]


def test_what_is_trained_behind_a_closed_text_is_a_text_of_its_own(sample_batch):
    assert pieces([[("a<c>", 0), (" b", 1)]], sample_batch) == ["a<c>", " b"]
    assert pieces([[("a<d>", 0), (" b", 1)]], sample_batch) == ["a<d>", "+ b"]


def test_the_end_of_a_sample_closes_nothing_in_the_next(sample_batch):
    samples = [[("a<c>", 0)], [(7, 0), ("b", 0), ("c", 1)]]
    assert pieces(samples, sample_batch) == ["a<c>", "b", "+c"]


@pytest.mark.parametrize("split", [True, False])
def test_weights_and_turns_stay_with_their_text(sample_batch, split):
    sample = [("a<c>b", 1, True), (7, 0), ("<c>", 0), ("c", 1, True)]
    layout = lay_out(sample_batch([sample]), split=split, closed=CLOSED)
    assert layout.pieces.to_pylist() == ["a<c>", "b", "<c>", "c"]
    assert layout.control.tolist() == [-1, -2, 7, -1, -2 if not split else layout.control[-1]]
    assert layout.weights.tolist() == [1, 1, 0, 0, 1]
    assert layout.ends_turn.tolist() == [False, True, False, False, True]


def test_texts_without_control_tokens_are_laid_out_as_ever(sample_batch):
    batch = sample_batch([[("a", 0), ("b", 1)], [("<d>", 0)]])
    found, expected = lay_out(batch, split=True, closed=CLOSED), lay_out(batch, split=True)
    assert found.pieces.equals(expected.pieces)
    assert found.behind_text.tolist() == expected.behind_text.tolist() == [False, True, False]
