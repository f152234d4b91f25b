from __future__ import annotations

import unicodedata

from tokmill.engines.trial.hostile_texts import hostile_texts


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
