from __future__ import annotations

import pytest

from tokmill.masks.segments import segments_of

HEADER, END = 7, 8


def swallowed(sample_batch, *samples, left=(), right=(HEADER, END)):
    return segments_of(sample_batch(samples), left, right).swallowed.tolist()


def test_samples_whose_reply_loses_its_first_white_space_are_found(sample_batch):
    samples = [
        [(HEADER, 0), ("\n", 0), (" a", 1), (END, 1)],
        [(HEADER, 0), ("\n", 0), ("a", 1), (END, 1)],
        [(HEADER, 0), ("\n a", 1), (END, 1)],
    ]
    assert swallowed(sample_batch, *samples) == [0, 2]
    assert swallowed(sample_batch, *samples, right=()) == []


@pytest.mark.parametrize("text", ["\n", " a"])
def test_what_is_not_trained_or_a_suffix_of_the_end_of_turn_is_no_loss(sample_batch, text):
    assert swallowed(sample_batch, [(HEADER, 0), (text, 0), (END, 1), ("\n", 1)]) == []


def test_white_space_that_the_end_of_turn_takes_from_a_reply_is_a_loss(sample_batch):
    sample = [(HEADER, 0), ("a ", 1), (END, 1)]
    assert swallowed(sample_batch, sample, left=(END,), right=()) == [0]
    assert swallowed(sample_batch, sample) == []
