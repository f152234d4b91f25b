from __future__ import annotations

import unicodedata

from tokmill.engines.routing import COMMON, EVERY
from tokmill.engines.texts import (
    CONTEXTS,
    character_texts,
    compositions,
    hostile_texts,
    sequences,
    token_texts,
)


def test_strings_of_added_tokens_come_alone_in_words_in_lines_and_twice():
    added = hostile_texts(["<eos>"])[len(hostile_texts([])) :]
    assert added == ["<eos>", "a<eos>b", " <eos> ", "x\n<eos>\ny", "<eos><eos>", "中<eos>文"]
    assert {"a{0}b", "a{b"} <= set(hostile_texts(["{0}", "{"]))  # no formats
    assert len(hostile_texts([f"<{i}>" for i in range(500)])) == len(hostile_texts([])) + 64 * 6


def test_the_usual_traps_are_there():
    joined = "".join(hostile_texts([]))
    assert "" in hostile_texts([])
    for trap in ("\x00", "\r\n", "\u2028", "\ufeff", "\u200d", "▁", "<|endoftext|>", "\U0001f44d"):
        assert trap in joined
    assert any(unicodedata.normalize("NFC", text) != text for text in hostile_texts([]))
    assert max(map(len, hostile_texts([]))) >= 3000


def test_every_character_is_in_some_context_and_most_assigned_ones_in_all():
    for every, characters in ((False, COMMON), (True, EVERY)):
        texts = character_texts(every=every)
        assert set().union(*(some for _, some in texts)) == set(map(chr, characters.codes()))
        assert {context for context, some in texts if "é" in some} == set(CONTEXTS)


def test_sequences_hold_pairs_runs_and_folded_contractions():
    every = set(sequences())
    assert {"  ", " \n", "'ſa", "a'K", "中 \u3000", "1" * 130 + "'s"} <= every
    assert {"\r\n\r", "'\u2019'", "a's", "'LLa", "'ſlf"} <= every
    categories = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf"
    found = {unicodedata.category(one) for text in every for one in text}
    assert found >= {*categories.split(), "Co", "Cn"}


def test_compositions_include_those_newer_than_python():
    every = set(compositions())
    assert {"e\u0301", "e\u0323\u0301", "か\u3099", "\U000105d2\u0307"} <= every
    assert every <= set(sequences())


def test_the_texts_of_tokens_are_those_of_several_characters(tokenizer):
    every = token_texts(tokenizer, 10**6)
    assert {"hello", " the"} & set(every)
    assert all(len(text) > 1 and "\ufffd" not in text for text in every)
    assert len(token_texts(tokenizer, 20)) <= 20
