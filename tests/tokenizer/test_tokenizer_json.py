from __future__ import annotations

import json

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import (
    UNUSED_PARTS,
    byte_characters,
    decoded,
    outline,
    with_values,
    without_special_tokens,
)


def test_every_byte_has_the_character_of_the_library():
    assert sorted(byte_characters()) == list(range(256))
    assert set(byte_characters().values()) == set(ByteLevel.alphabet())
    assert byte_characters()[0x20] == "Ġ"


def test_values_are_replaced_wherever_they_stand_and_inserted_where_they_are_missing():
    for text in (' {"model": 1}', '{"added_tokens": null, "model": 1}'):
        found = json.loads(with_values(text, {"added_tokens": [{"id": 1}], "model": 2}))
        assert found == {"added_tokens": [{"id": 1}], "model": 2}


def test_only_special_added_tokens_are_dropped(tokenizer):
    data = json.loads(without_special_tokens(tokenizer.json))
    assert [token["content"] for token in data["added_tokens"]] == ["<tool>"]
    before = json.loads(tokenizer.json)
    assert {**data, "added_tokens": None} == {**before, "added_tokens": None}


def test_a_key_inside_a_string_is_not_the_list_of_added_tokens():
    text = json.dumps({"model": {'"added_tokens":[': 1}, "added_tokens": [{"special": True}]})
    assert json.loads(without_special_tokens(text)) == {
        "model": {'"added_tokens":[': 1},
        "added_tokens": [],
    }


def test_a_tokenizer_without_added_tokens_stays_the_same():
    assert json.loads(without_special_tokens('{"model": {"a": "猫"}}')) == {
        "model": {"a": "猫"},
        "added_tokens": [],
    }


def content(merges, vocab=("a", "b"), **changes):
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "model": model} | changes


def test_an_outline_has_everything_but_the_merges():
    text = json.dumps(content([["a", "b"]]))
    assert outline(text, where="here") == content([])
    assert outline(text, where="here") is outline(text, where="there")
    assert outline('{"model": {"vocab": []}}', where="here") == {"model": {"vocab": []}}


def test_a_file_in_another_encoding_is_read_and_one_in_none_is_refused():
    text = json.dumps(content([["猫", "狗"]]), ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert decoded(text.encode(encoding), where="here") == text
    with pytest.raises(TokenizerError, match=r"^here: not valid JSON: "):
        decoded(b'{"a": "\xff"}', where="here")


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
