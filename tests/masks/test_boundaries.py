from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokmill.engines.reference import load_reference
from tokmill.masks.boundaries import find_boundaries
from tokmill.masks.layout import SampleRules, lay_out
from tokmill.tokenizer.byte_lengths import byte_lengths
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.values import TokenBatch

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
MARKS = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
SAMPLES = [
    [("xa", 0), ("bx", 1), ("猫", 0)],
    [(" ", 0), ("a", 1), (7, 0), ("ab", 0), ("a", 1), ("b", 0)],
    [("x", 0)],
]


def found(tokenizer, batch, *, continuation=None, is_known=True):
    layout = lay_out(batch, SampleRules("joint"))
    is_continuation = layout.follows_control & (continuation is not None)
    texts = layout.texts.to_pylist()
    engines = [load_reference(t, parse=False) for t in (tokenizer, continuation or tokenizer)]
    ids = [
        engines[int(which)].encode(pa.array([text], pa.large_string()))
        for text, which in zip(texts, is_continuation.tolist(), strict=True)
    ]
    tokens = TokenBatch(
        np.concatenate([batch.ids for batch in ids]),
        np.cumsum([0, *(len(batch.ids) for batch in ids)], dtype=np.int64),
    )
    lengths = byte_lengths(tokenizer) if is_known else None
    marks = find_boundaries(layout, tokens, is_continuation, lengths)
    return marks.start.tolist(), marks.stop.tolist(), marks.is_known.tolist()


def test_boundaries_are_found_among_the_tokens_of_their_text(
    make_tokenizer, bytes_model, sample_batch
):
    # "x ab x 猫猫猫", " a", "ab a b", "x": a token straddles the first mark.
    tokenizer = make_tokenizer(bytes_model(("a", "b")), pre_tokenizer=BYTES)
    batch = sample_batch([*SAMPLES[:1], [(" ", 0), ("a", 1), (7, 0), ("aba", 0), ("b", 1)]])
    assert found(tokenizer, batch) == (
        [1, 3, 7, 9],
        [2, 3, 7, 10],
        [True, True, True, True],
    )


def test_a_prefix_belongs_to_the_first_character(make_tokenizer, marks_model, sample_batch):
    # "▁ab", "▁ e", "▁a b"
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    batch = sample_batch([[("a", 0), ("b", 1)], [("e", 1), (7, 0), ("ac", 1), ("b", 0)]])
    marks = found(tokenizer, batch)
    assert marks == ([0, 5], [1, 5], [True, True])


def test_continuations_have_no_prefix(make_tokenizer, marks_model, sample_batch):
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    batch = sample_batch([[("a", 0), ("b", 1), (7, 0), ("c", 1), ("ab", 0)]])
    marks = found(tokenizer, batch, continuation=continuation_tokenizer(tokenizer))
    assert marks == ([0, 2], [1, 2], [True, True])


def test_a_boundary_is_unknown_where_lengths_do_not_add_up(
    make_tokenizer, marks_model, sample_batch
):
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    batch = sample_batch([[("▁", 0), ("a", 1)], [("a", 0), ("b", 1)]])
    assert found(tokenizer, batch) == ([2, 2], [2, 3], [False, True])


def test_without_lengths_all_tokens_are_before_the_boundary(
    make_tokenizer, bytes_model, sample_batch
):
    tokenizer = make_tokenizer(bytes_model(), pre_tokenizer=BYTES)
    batch = sample_batch([[("a", 0), ("b", 1), ("c", 0)]])
    assert found(tokenizer, batch, is_known=False) == ([3, 3], [3, 3], [False, False])
