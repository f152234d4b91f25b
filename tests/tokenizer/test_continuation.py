from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from tokmill.engines.continuation_check import check_continuation
from tokmill.engines.engine import load_engine
from tokmill.engines.reference import load_reference
from tokmill.errors import TokenizerError
from tokmill.tokenizer.continuation import (
    after_control,
    continuation_tokenizer,
)

PREPEND = {"type": "Prepend", "prepend": "▁"}
MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
MARKS = {"type": "Sequence", "normalizers": [PREPEND, MARK]}
META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "WhitespaceSplit"}
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
CONTROL = {"id": 300, "content": "<c>", "special": True} | FLAGS


def tokens(tokenizer, text):
    return tokenizer.library().encode(text, add_special_tokens=False).tokens


def engine(tokenizer):
    return load_reference(tokenizer, parse=False)


def test_a_tokenizer_without_a_prefix_is_its_own_continuation(tokenizer):
    assert continuation_tokenizer(tokenizer) is tokenizer
    assert check_continuation(tokenizer, engine(tokenizer), engine(tokenizer)) > 100


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": MARKS},
        {"normalizer": PREPEND, "pre_tokenizer": META | {"prepend_scheme": "never"}},
        {"pre_tokenizer": META},
        {"pre_tokenizer": META | {"prepend_scheme": "first"}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [META]}},
    ],
)
def test_the_prefix_of_a_tokenizer_with_marks_is_removed(make_tokenizer, marks_model, parts):
    tokenizer = make_tokenizer(marks_model, **parts)
    found = continuation_tokenizer(tokenizer)
    assert (tokens(tokenizer, "ab a"), tokens(found, "ab a")) == (["▁ab", "▁a"], ["ab", "▁a"])
    assert tokens(found, " ab") == ["▁ab"]
    assert (found.identity, found.data) == (tokenizer.identity, tokenizer.data)
    assert check_continuation(tokenizer, engine(tokenizer), engine(found)) > 100


def test_the_prefix_space_of_byte_level_is_removed(make_tokenizer, bytes_model):
    tokenizer = make_tokenizer(bytes_model(), pre_tokenizer=BYTES)
    found = continuation_tokenizer(tokenizer)
    assert (tokens(tokenizer, "a"), tokens(found, "a")) == (["Ġ", "a"], ["a"])
    assert check_continuation(tokenizer, engine(tokenizer), engine(found)) > 100


@pytest.mark.parametrize("name", ["gigatoken", "fastokens"])
def test_fast_engines_load_the_variant(make_tokenizer, marks_model, name):
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    found = continuation_tokenizer(tokenizer)
    fast = load_engine(name, found, control_in_text="text", n_threads=1)
    texts = pa.array(["ab a", " a", "", "猫\n"], pa.large_string())
    assert fast.encode(texts).ids.tolist() == engine(found).encode(texts).ids.tolist()


def test_a_prefix_before_every_word_cannot_be_removed(make_tokenizer, marks_model, tokenizer):
    parts = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, META]}}
    assert continuation_tokenizer(make_tokenizer(marks_model, **parts)) is None
    assert continuation_tokenizer(dataclasses.replace(tokenizer, json="")) is None


def test_a_continuation_with_a_prefix_fails_the_check(make_tokenizer, marks_model):
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS)
    first = engine(dataclasses.replace(tokenizer, name="x"))
    with pytest.raises(TokenizerError) as caught:
        check_continuation(dataclasses.replace(tokenizer, name="x"), first, first)
    assert str(caught.value).startswith(
        "x: text that continues other text cannot be encoded separately: 'user: hi\\n' and 'Hello"
    )
    assert str(caught.value).endswith("; choose boundary joint")


ASSISTANT = CONTROL | {"content": "<|assistant|>", "rstrip": True}
INST = CONTROL | {"id": 301, "content": "[/INST]"}


@pytest.mark.parametrize(
    "parts", [{"normalizer": MARKS}, {"pre_tokenizer": META}, {"pre_tokenizer": BYTES}]
)
def test_parsed_control_tokens_of_phi_3_and_mistral_pass_the_check(
    make_tokenizer, marks_model, bytes_model, parts
):
    model = bytes_model() if BYTES in parts.values() else marks_model
    tokenizer = make_tokenizer(model, added_tokens=[ASSISTANT, INST], **parts)
    found = continuation_tokenizer(tokenizer)
    parsing = [load_reference(chosen, parse=True) for chosen in (tokenizer, found)]
    assert check_continuation(tokenizer, *parsing, parse=True) > 100


def test_without_a_boundary_the_check_fails(make_tokenizer):
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}
    tokenizer = make_tokenizer(model)
    with pytest.raises(
        TokenizerError, match="no built-in text has a boundary there; choose boundary joint"
    ):
        check_continuation(tokenizer, engine(tokenizer), engine(tokenizer))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"normalizer": MARKS}, "first"),
        ({"pre_tokenizer": META}, "first"),
        ({"pre_tokenizer": META | {"prepend_scheme": "first"}}, "continuation"),
        ({"normalizer": MARK}, "first"),
    ],
)
def test_text_after_a_control_token_is_encoded_like_the_reference(
    make_tokenizer, marks_model, parts, expected
):
    tokenizer = make_tokenizer(marks_model, added_tokens=[CONTROL], **parts)
    found = continuation_tokenizer(tokenizer)
    assert after_control(tokenizer, found, ["<c>"]) == expected
    whole = tokens(tokenizer, "<c>ab")
    assert whole[1:] == tokens({"first": tokenizer, "continuation": found}[expected], "ab")


def test_a_control_token_that_swallows_white_space_is_compared_by_the_rest(
    make_tokenizer, marks_model
):
    added = [CONTROL | {"rstrip": True}]
    tokenizer = make_tokenizer(marks_model, added_tokens=added, normalizer=MARKS)
    assert after_control(tokenizer, continuation_tokenizer(tokenizer), ["<c>"]) == "first"


def test_control_tokens_that_differ_are_refused(make_tokenizer, marks_model):
    # `<d>` is matched in normalized text, so it follows the prefix, and text after it has none.
    other = CONTROL | {"id": 301, "content": "<d>", "normalized": True}
    tokenizer = make_tokenizer(marks_model, added_tokens=[CONTROL, other], normalizer=MARKS)
    found = continuation_tokenizer(tokenizer)
    assert after_control(tokenizer, found, ["<c>"]) == "first"
    assert after_control(tokenizer, found, ["<d>"]) == "continuation"
    with pytest.raises(TokenizerError, match="neither like a first text nor like a continuation"):
        after_control(tokenizer, found, ["<c>", "<d>"])
    with pytest.raises(TokenizerError, match="neither like a first text nor like a continuation"):
        after_control(tokenizer, None, ["<d>"])


def test_sentencepiece_encodes_every_text_as_a_first_text(tokenizer):
    alone = dataclasses.replace(tokenizer, kind="sentencepiece", json="")
    assert after_control(alone, None, ["<eos>"]) == "first"
