from __future__ import annotations

import unicodedata

from tokmill.engines.trial.sequences import class_sequences, compositions, in_lines, token_texts


def test_sequences_hold_pairs_of_classes_runs_and_folded_contractions():
    every = set(class_sequences())
    assert {"  ", " \n", "'ſa", "a'K", "中 \u3000", "1" * 130 + "'s"} <= every
    assert {"\r\n\r", "'\u2019'", "a's", "'LLa", "'ſlf"} <= every
    assert 20_000 < len(every) < 60_000


def test_compositions_include_those_newer_than_python():
    every = set(compositions())
    assert {"e\u0301", "e\u0323\u0301", "か\u3099"} <= every
    assert "\U000105d2\u0307" in every
    assert all(unicodedata.normalize("NFC", pair) for pair in every)


def test_the_texts_of_tokens_are_those_of_several_characters(tokenizer):
    found = token_texts(tokenizer)
    assert found
    assert all(len(text) > 1 and "\ufffd" not in text for text in found)
    assert len(found) == len(set(found))


def test_texts_are_grouped_in_lines_in_order():
    texts = [str(i) for i in range(70)]
    lines = in_lines(texts)
    assert [len(group) for group in lines] == [32, 32, 6]
    assert [text for group in lines for text in group] == texts
