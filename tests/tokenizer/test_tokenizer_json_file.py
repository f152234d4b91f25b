from __future__ import annotations

import json

import pytest

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import (
    cleaned_text,
    decoded,
    parsed,
    without_merges,
)

TOKENS = [
    "a",
    "b",
    "[",
    "]",
    "]]",
    ",",
    ":",
    "[:",
    ",:",
    '"',
    '":',
    '" :',
    '":[',
    "\\",
    '\\":',
    "}}",
    "]}}",
]
"""Tokens that look like the JSON around them."""


def content(merges, vocab=("a", "b"), **changes):
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "model": model} | changes


PAIRS = [[first, second] for first in TOKENS for second in TOKENS]
WRITTEN = [
    {},
    {"indent": 2},
    {"indent": 0, "separators": (" ,", " : ")},
    {"separators": (",", ":")},
    {"separators": ("\n,\t", "\n:\r\n")},
]


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("merges", [PAIRS, [" ".join(pair) for pair in PAIRS], []])
def test_the_merges_at_the_end_are_left_out_whatever_the_tokens_look_like(merges, how):
    whole = content(merges, TOKENS)
    text = json.dumps(whole, **how) + "\n"
    cut = without_merges(text)
    assert json.loads(cut) == content([], TOKENS)
    assert not merges or len(cut) < len(text)


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize(
    "change",
    [
        lambda given: given["model"].update(vocab={"a": 0}, dropout=[0.1]),
        lambda given: given["model"].update(extra=["a"]),
        lambda given: given["model"].update(unk={"x": [["a", "b"]]}),
        lambda given: given.update(after=[1]),
        lambda given: given.update(after={"x": ["y"]}),
        lambda given: given.update(before={"merges": [["a", "b"]]}),
    ],
)
def test_a_file_with_anything_behind_the_merges_is_parsed_as_it_is(change, how):
    given = content(PAIRS)
    vocab = given["model"].pop("vocab")
    given["model"]["vocab"] = vocab
    change(given)
    text = json.dumps(given, **how)
    assert json.loads(without_merges(text)) == given


def test_merges_that_are_no_list_are_left_to_the_library():
    for merges in (None, "a b", {"a": "b"}):
        text = json.dumps(content(merges))
        assert without_merges(text) == text


def test_a_token_named_merges_is_no_key():
    given = content([["merges", "["]], ["merges", '"merges": [', "["])
    assert json.loads(without_merges(json.dumps(given))) == content(
        [], ["merges", '"merges": [', "["]
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"model": []}', '{"merges": [}}'])
def test_what_is_no_tokenizer_json_is_refused(text):
    with pytest.raises(TokenizerError, match=r"^here: not (valid JSON|a tokenizer\.json): "):
        parsed(without_merges(text), where="here")


def test_a_file_in_another_encoding_is_read_and_one_in_none_is_refused():
    text = json.dumps(content([["猫", "狗"]]), ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert decoded(text.encode(encoding), where="here") == text
    with pytest.raises(TokenizerError, match=r"^here: not valid JSON: "):
        decoded(b'{"a": "\xff"}', where="here")


def test_a_random_tokenizer_is_refused():
    given = content([])
    given["model"]["dropout"] = 0.1
    with pytest.raises(TokenizerError, match=r"model\.dropout is 0\.1, which makes ids random"):
        parsed(json.dumps(given), where="here")


def test_a_key_that_appears_twice_has_the_json_written_again():
    given = content([["a", "b"]], padding={"pad_id": 1}, truncation=[])
    twice = json.dumps(given).replace('"truncation": []', '"truncation": {}, "truncation": []')
    cleaned = cleaned_text(twice, json.loads(without_merges(twice)))
    assert json.loads(cleaned) == given | {
        "padding": None,
        "truncation": None,
        "post_processor": None,
    }
    assert cleaned.count("truncation") == 1


@pytest.mark.parametrize("token", ["padding", '"padding":{', '"truncation": ['])
def test_a_token_named_like_a_removed_part_is_kept(token):
    given = content([], ["a", token], padding={"pad_id": 1, "x": [{}]}, truncation={"a": "}"})
    cleaned = cleaned_text(json.dumps(given), given)
    assert json.loads(cleaned) == given | {"padding": None, "truncation": None}
