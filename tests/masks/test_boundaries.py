from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.reference import load_reference
from tokmill.errors import ParityError
from tokmill.masks.boundaries import ReferenceOffsets, find_boundaries
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


def found(tokenizer, batch, *, by, continuation=None):
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
    lengths = byte_lengths(tokenizer) if "lengths" in by else None
    offsets = None
    if "offsets" in by:
        rest = ReferenceOffsets(continuation, parse=False) if continuation else None
        offsets = (ReferenceOffsets(tokenizer, parse=False), rest)
    marks = find_boundaries(layout, tokens, is_continuation, lengths, offsets)
    return marks.start.tolist(), marks.stop.tolist(), marks.is_known.tolist()


@pytest.mark.parametrize("by", ["lengths", "offsets", "lengths, offsets"])
def test_boundaries_are_found_among_the_tokens_of_their_text(
    make_tokenizer, bytes_model, sample_batch, by
):
    # "x ab x 猫猫猫", " a", "ab a b", "x": a token straddles the first mark.
    tokenizer = make_tokenizer(bytes_model(("a", "b")), pre_tokenizer=BYTES)
    batch = sample_batch([*SAMPLES[:1], [(" ", 0), ("a", 1), (7, 0), ("aba", 0), ("b", 1)]])
    assert found(tokenizer, batch, by=by) == (
        [1, 3, 7, 9],
        [2, 3, 7, 10],
        [True, True, True, True],
    )


@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_a_prefix_belongs_to_the_first_character(make_tokenizer, marks_model, sample_batch, by):
    # "▁ab", "▁ e", "▁a b"
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    batch = sample_batch([[("a", 0), ("b", 1)], [("e", 1), (7, 0), ("ac", 1), ("b", 0)]])
    marks = found(tokenizer, batch, by=by)
    assert marks == ([0, 5], [1, 5], [True, True])


@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_continuations_have_no_prefix(make_tokenizer, marks_model, sample_batch, by):
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    batch = sample_batch([[("a", 0), ("b", 1), (7, 0), ("c", 1), ("ab", 0)]])
    marks = found(tokenizer, batch, by=by, continuation=continuation_tokenizer(tokenizer))
    assert marks == ([0, 2], [1, 2], [True, True])


def test_offsets_are_used_where_lengths_do_not_add_up(make_tokenizer, marks_model, sample_batch):
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    batch = sample_batch([[("▁", 0), ("a", 1)], [("a", 0), ("b", 1)]])
    assert found(tokenizer, batch, by="lengths") == ([2, 2], [2, 3], [False, True])
    assert found(tokenizer, batch, by="lengths, offsets") == ([1, 2], [2, 3], [True, True])


def test_without_lengths_and_offsets_all_tokens_are_before_the_boundary(
    make_tokenizer, bytes_model, sample_batch
):
    tokenizer = make_tokenizer(bytes_model(), pre_tokenizer=BYTES)
    batch = sample_batch([[("a", 0), ("b", 1), ("c", 0)]])
    assert found(tokenizer, batch, by="") == ([3, 3], [3, 3], [False, False])


def test_characters_composed_by_nfc_belong_to_the_first_one(
    make_tokenizer, bytes_model, sample_batch
):
    tokenizer = make_tokenizer(bytes_model(), normalizer={"type": "NFC"}, pre_tokenizer=BYTES)
    batch = sample_batch([[("xe", 0), ("\u0301x", 1)], [("\u212b", 0), ("x", 1)]])
    assert found(tokenizer, batch, by="lengths") == ([4, 7], [4, 7], [False, False])
    assert found(tokenizer, batch, by="lengths, offsets") == ([3, 6], [3, 6], [True, True])


def test_offsets_follow_a_normalizer_that_drops_text(make_tokenizer, sample_batch):
    vocab = {"[UNK]": 0, "a": 1, "b": 2, "##b": 3}
    model = {
        **{"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]"},
        **{"continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
    }
    tokenizer = make_tokenizer(
        model, normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "BertPreTokenizer"}
    )
    batch = sample_batch([[(" A ", 0), (" B", 1), ("B", 0), ("  ", 1)]])
    assert found(tokenizer, batch, by="offsets") == ([1, 2, 3], [1, 2, 3], [True] * 3)


def test_an_engine_with_other_ids_is_an_error(tokenizer):
    named = dataclasses.replace(tokenizer, name="tiny")
    with pytest.raises(ParityError, match=r"^tiny: the engine's ids differ from the reference's"):
        ReferenceOffsets(named, parse=False).find("ab", np.array([1], np.uint32), np.array([1]))


def test_control_tokens_in_a_text_are_parsed_if_asked(tokenizer):
    offsets = ReferenceOffsets(tokenizer, parse=True)
    ids = load_reference(tokenizer, parse=True).encode(pa.array(["a<eos>b"], "large_string"))
    first, first_behind = offsets.find("a<eos>b", ids.ids, np.array([1, 3, 6]))
    assert (first.tolist(), first_behind.tolist()) == ([1, 1, 2], [1, 2, 2])


class Pausing:
    """A library that lets another thread work before a setting of it takes effect."""

    def __init__(self, library, meanwhile) -> None:
        self._library = library
        self._meanwhile = meanwhile

    def encode(self, text, *, add_special_tokens):
        return self._library.encode(text, add_special_tokens=add_special_tokens)

    @property
    def encode_special_tokens(self):
        return self._library.encode_special_tokens

    @encode_special_tokens.setter
    def encode_special_tokens(self, value):
        thread = threading.Thread(target=self._meanwhile)
        thread.start()
        thread.join()
        self._library.encode_special_tokens = value


def test_no_thread_gets_a_library_before_its_settings_are_complete(tokenizer):
    text = "a<eos>b"
    ids = load_reference(tokenizer, parse=False).encode(pa.array([text], "large_string")).ids
    assert 0 not in ids
    seen = []

    def find() -> None:
        try:
            seen.append(offsets.find(text, ids, np.array([1]))[0].tolist())
        except ParityError as error:
            seen.append(error)

    class Named:
        name = "tiny"
        libraries = iter([Pausing(tokenizer.library(), find), tokenizer.library()])

        def library(self):
            return next(self.libraries)

    offsets = ReferenceOffsets(Named(), parse=False)
    find()
    assert seen == [[1], [1]]
