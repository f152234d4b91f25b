from __future__ import annotations

import unicodedata

from tokmill.engines.characters import COMMON, EVERY
from tokmill.engines.trial.hostile_texts import (
    class_sequences,
    compositions,
    hostile_texts,
    in_lines,
    token_texts,
)


def test_the_texts_are_the_same_every_time_and_valid_utf8():
    texts = hostile_texts(["<eos>"])
    assert texts == hostile_texts(["<eos>"])
    assert all(text.encode().decode() == text for text in texts)


def test_control_strings_come_alone_in_words_in_lines_and_twice():
    added = hostile_texts(["<eos>"])[len(hostile_texts([])) :]
    assert added == [
        "<eos>",
        "a<eos>b",
        " <eos> ",
        "x\n<eos>\ny",
        "<eos><eos>",
        "中<eos>文",
    ]


def test_a_control_string_with_braces_is_not_a_format():
    assert "a{0}b" in hostile_texts(["{0}"])
    assert "a{b" in hostile_texts(["{"])


def test_many_control_strings_are_cut_to_64():
    assert len(hostile_texts([f"<{i}>" for i in range(500)])) == len(hostile_texts([])) + 64 * 6


def test_the_usual_traps_are_there():
    joined = "".join(hostile_texts([]))
    assert "" in hostile_texts([])
    for trap in ("\x00", "\r\n", "\u2028", "\ufeff", "\u200d", "▁", "<|endoftext|>", "\U0001f44d"):
        assert trap in joined
    assert any(unicodedata.normalize("NFC", text) != text for text in hostile_texts([]))
    assert max(map(len, hostile_texts([]))) >= 3000


def test_sequences_hold_pairs_of_classes_runs_and_folded_contractions():
    every = set(class_sequences(EVERY))
    assert {"  ", " \n", "'ſa", "a'K", "中 \u3000", "1" * 130 + "'s"} <= every
    assert {"\r\n\r", "'\u2019'", "a's", "'LLa", "'ſlf"} <= every
    assert 20_000 < len(every) < 60_000


def test_compositions_include_those_newer_than_python():
    every = set(compositions(EVERY))
    assert {"e\u0301", "e\u0323\u0301", "か\u3099"} <= every
    assert "\U000105d2\u0307" in every
    assert all(unicodedata.normalize("NFC", pair) for pair in every)


def test_the_texts_of_tokens_are_those_of_several_characters(tokenizer):
    found = token_texts(tokenizer.library())
    assert found
    assert all(len(text) > 1 and "\ufffd" not in text for text in found)
    assert len(found) == len(set(found))


def test_texts_are_grouped_in_lines_in_order():
    texts = [str(i) for i in range(70)]
    lines = in_lines(texts)
    assert [len(group) for group in lines] == [32, 32, 6]
    assert [text for group in lines for text in group] == texts


def test_sequences_of_common_characters_have_no_classes_of_rare_ones():
    common = set(class_sequences(COMMON))
    assert len(common) < len(class_sequences(EVERY))
    assert all(ord(character) in COMMON for text in common for character in text)
    assert {"é'", "中'", "😀'"} <= {text[-2:] for text in common}
    assert set(compositions(COMMON)) < set(compositions(EVERY))
