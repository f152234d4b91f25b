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
