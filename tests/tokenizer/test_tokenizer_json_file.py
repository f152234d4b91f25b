from __future__ import annotations

import json

import pytest

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import (
    UNUSED_PARTS,
    decoded,
    outline,
    parsed,
    with_values,
)


def content(merges, vocab=("a", "b"), **changes):
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "model": model} | changes


def test_an_outline_has_everything_but_the_merges():
    text = json.dumps(content([["a", "b"]]))
    assert outline(text, where="here") == content([])
    assert outline(text, where="here") is outline(text, where="there")
    assert outline('{"model": {"vocab": []}}', where="here") == {"model": {"vocab": []}}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"model": []}', '{"merges": [}}'])
def test_what_is_no_tokenizer_json_is_refused(text):
    with pytest.raises(TokenizerError, match=r"^here: not (valid JSON|a tokenizer\.json): "):
        parsed(text, where="here")


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
    cleaned = with_values(twice, dict.fromkeys(UNUSED_PARTS))
    assert json.loads(cleaned) == given | {
        "padding": None,
        "truncation": None,
        "post_processor": None,
    }
    assert cleaned.count("truncation") == 1


@pytest.mark.parametrize("token", ["padding", '"padding":{', '"truncation": ['])
def test_a_token_named_like_a_removed_part_is_kept(token):
    given = content([], ["a", token], padding={"pad_id": 1, "x": [{}]}, truncation={"a": "}"})
    cleaned = with_values(json.dumps(given), {"padding": None, "truncation": None})
    assert json.loads(cleaned) == given | {"padding": None, "truncation": None}
