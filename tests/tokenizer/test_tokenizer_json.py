from __future__ import annotations

import json

from tokenizers.pre_tokenizers import ByteLevel

from tokmill.tokenizer.tokenizer_json import (
    byte_characters,
    find_values,
    sequence,
    steps,
    with_steps,
    with_values,
    without_special_tokens,
)


def test_steps_of_nested_sequences_come_in_order():
    inner = sequence("pre_tokenizer", [{"type": "Digits"}, {"type": "ByteLevel"}])
    content = {"pre_tokenizer": sequence("pre_tokenizer", [{"type": "Split"}, inner])}
    types = [step["type"] for step in steps(content, "pre_tokenizer")]
    assert types == ["Split", "Digits", "ByteLevel"]
    assert steps({"normalizer": None}, "normalizer") == steps({}, "normalizer") == []


def test_a_single_step_needs_no_sequence():
    step = {"type": "NFC"}
    assert with_steps({}, "normalizer", []) == {"normalizer": None}
    assert with_steps({}, "normalizer", [step]) == {"normalizer": step}
    both = with_steps({}, "normalizer", [step, step])
    assert both == {"normalizer": {"type": "Sequence", "normalizers": [step, step]}}


def test_every_byte_has_the_character_of_the_library():
    assert sorted(byte_characters()) == list(range(256))
    assert set(byte_characters().values()) == set(ByteLevel.alphabet())
    assert byte_characters()[0x20] == "Ġ"


def test_a_token_named_like_a_key_is_not_its_value():
    text = json.dumps({"model": {"vocab": {"decoder": 3}}, "decoder": {"type": "Fuse"}})
    assert [value for value, _, _ in find_values(text, "decoder")] == [{"type": "Fuse"}]
    ((_, start, stop),) = find_values(text, "decoder")
    assert text[start:stop] == '{"type": "Fuse"}'


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
