from __future__ import annotations

import pytest

from tokmill.masks.layout import SampleRules, lay_out


def laid_out(batch, *, split, **rules):
    return lay_out(batch, SampleRules("split" if split else "joint", **rules))


HEADER, END = 7, 8


def stripped(sample_batch, *samples, left=(), right=(HEADER, END)):
    rules = {"strips_left": frozenset(left), "strips_right": frozenset(right)}
    return laid_out(sample_batch(samples), split=True, **rules).stripped.tolist()


def test_samples_with_a_stripped_reply_are_found(sample_batch):
    samples = [
        [(HEADER, 0), ("\n", 0), (" a", 1), (END, 1)],
        [(HEADER, 0), ("\n", 0), ("a", 1), (END, 1)],
        [(HEADER, 0), ("\n a", 1), (END, 1)],
    ]
    assert stripped(sample_batch, *samples) == [0, 2]
    assert stripped(sample_batch, *samples, right=()) == []


@pytest.mark.parametrize("text", ["\n", " a"])
def test_stripping_untrained_text_or_a_suffix_does_not_count(sample_batch, text):
    assert stripped(sample_batch, [(HEADER, 0), (text, 0), (END, 1), ("\n", 1)]) == []


def test_white_space_stripped_before_the_end_of_turn_counts(sample_batch):
    sample = [(HEADER, 0), ("a ", 1), (END, 1)]
    assert stripped(sample_batch, sample, left=(END,), right=()) == [0]
    assert stripped(sample_batch, sample) == []
