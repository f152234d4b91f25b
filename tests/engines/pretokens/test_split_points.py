from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tokenizers import Tokenizer as Library

from tokmill.engines.pretokens import split_points
from tokmill.engines.pretokens.pretoken_ids import PretokenEncoder
from tokmill.engines.pretokens.split_points import SplitPoints
from tokmill.engines.pretokens.split_rule import split_rule
from tokmill.errors import TokenizerError

WORDS = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
SPLIT = {"type": "WhitespaceSplit"}
MARKS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BERT_PRE = {"type": "BertPreTokenizer"}
BERT = {
    **{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
    **{"strip_accents": None, "lowercase": False},
}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def points(pre_tokenizer, normalizer=None, model=WORDS):
    content = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": model}
    rule = split_rule(content, parse=False)
    encoder = PretokenEncoder(content, rule)
    return SplitPoints(rule, encoder.normalizers, encoder.words)


def unigram(*tokens):
    vocab = [["<unk>", 0.0], *([token, -1.0] for token in tokens)]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab}


def pretokens_of(found, text):
    """Return the pretokens of a text, with `+` before those that begin inside a word."""
    data = text.encode()
    found_points, begins_word = found.find(np.frombuffer(data, np.uint8))
    bounds = [0, *found_points.tolist(), len(data)]
    inside = [False, *(~begins_word).tolist()]
    return [
        "+" * inside[i] + data[bounds[i] : bounds[i + 1]].decode() for i in range(len(bounds) - 1)
    ]


@pytest.mark.parametrize(
    ("text", "pretokens"),
    [
        ("a", ["a"]),
        ("ab c  d", ["ab ", "c  ", "d"]),
        (" a\n\tb ", [" ", "a\n\t", "b "]),
        ("a\u3000b\xa0c", ["a\u3000", "b\xa0", "c"]),
        ("é 中文 👍 x", ["é ", "中文 ", "👍 ", "x"]),
        ("a \u0301b c", ["a \u0301b ", "c"]),  # a mark may join the space
        ("e\u0301 b", ["e\u0301 ", "b"]),
        ("a\u0600 b  c", ["a\u0600 b  ", "c"]),  # a prefix takes the next character
        ("a\r\nb c", ["a\r\n", "b ", "c"]),
        ("a\x0b b  c", ["a\x0b b  ", "c"]),  # a control character might
        ("a\x1cb c", ["a\x1cb ", "c"]),  # white space to Python alone
    ],
)
def test_a_pretoken_ends_after_dropped_white_space(text, pretokens):
    assert pretokens_of(points(SPLIT, {"type": "NFKC"}), text) == pretokens


@pytest.mark.parametrize(
    ("text", "pretokens"),
    [
        ("ab c  d", ["ab", " c", "  d"]),
        (" a ", [" a", " "]),
        ("a\n b c", ["a\n b", " c"]),
        ("a \u0301b c", ["a \u0301b", " c"]),
        ("a \u200db c", ["a \u200db", " c"]),
        ("a▁ b▁c d", ["a▁ b▁c", " d"]),
        ("a\u3000 b c", ["a\u3000 b", " c"]),
    ],
)
def test_a_pretoken_begins_with_the_space_that_becomes_a_mark(text, pretokens):
    assert pretokens_of(points(MARKS), text) == pretokens


@pytest.mark.parametrize(
    ("text", "pretokens"),
    [
        ("it's", ["it", "+'", "+s"]),
        ("中国，a", ["中", "+国", "+，", "+a"]),
        ("中\u0301国", ["中\u0301国"]),
        ("中 国", ["中 ", "国"]),
        ("a\x00!", ["a\x00!"]),  # removed: what stands beside it moves together
        ("a\ufffd!", ["a\ufffd!"]),
        ("a\r\nb", ["a\r\n", "b"]),
        ("한국 말", ["한국 ", "말"]),
    ],
)
def test_each_of_berts_lone_characters_is_a_pretoken(text, pretokens):
    assert pretokens_of(points(BERT_PRE, BERT), text) == pretokens


def test_a_character_normalized_to_a_mark_is_not_a_word():
    found = points(BERT_PRE, sequence({"type": "NFKC"}, BERT))
    assert pretokens_of(found, "x℀y!") == ["x℀y", "+!"]  # a/c


def test_hangul_decomposed_by_the_last_step_is_split_at_spaces():
    lower = BERT | {"lowercase": True}
    assert pretokens_of(points(BERT_PRE, lower), "한국 말!") == ["한국 ", "말", "+!"]
    assert pretokens_of(points(BERT_PRE, sequence(lower, {"type": "NFC"})), "한국 말") == [
        "한국 말"
    ]


def test_chinese_characters_without_added_spaces_are_not_words():
    found = points(BERT_PRE, BERT | {"handle_chinese_chars": False})
    assert pretokens_of(found, "中国，a") == ["中国", "+，", "+a"]


def test_words_are_split_between_characters_that_no_token_joins():
    found = points(SPLIT, model=unigram("ab", "bc", "中国"))
    assert pretokens_of(found, "abca") == ["abc", "+a"]
    assert pretokens_of(found, "ba cb") == ["b", "+a ", "c", "+b"]
    assert pretokens_of(found, "中国中x国y☃☀") == ["中国", "+中", "+x", "+国", "+y", "+☃", "+☀"]


def test_normalized_characters_decide_which_tokens_join():
    found = points(SPLIT, {"type": "NFKC"}, unigram("ab", "12"))
    assert pretokens_of(found, "ａｂａ１②") == ["ａｂ", "+ａ", "+１②"]


def test_characters_that_compose_are_never_split():
    found = points(SPLIT, {"type": "NFKC"}, unigram("가", "x"))
    assert pretokens_of(found, "xㄱㅏx") == ["xㄱㅏx"]
    assert pretokens_of(found, "x가x") == ["x", "+가", "+x"]


def test_characters_that_become_several_or_spaces_are_glued():
    found = points(SPLIT, {"type": "NFKC"}, unigram("x"))
    assert pretokens_of(found, "xﬀx") == ["xﬀx"]
    assert pretokens_of(found, "x¨x") == ["x¨x"]
    assert pretokens_of(found, "x▁x") == ["x▁x"]


def test_the_characters_of_a_pattern_are_glued_after_any_step():
    steps = sequence({"type": "NFKC"}, replace("AB", "z"), {"type": "Lowercase"})
    found = points(SPLIT, steps, unigram("x"))
    assert pretokens_of(found, "xABx") == ["xABx"]
    assert pretokens_of(found, "ＡＢ") == ["ＡＢ"]
    assert pretokens_of(found, "axb") == ["a", "+x", "+b"]


def test_a_character_in_a_shared_class_only_removes_split_points(monkeypatch):
    monkeypatch.setattr(split_points, "_N_CLASSES", split_points._FIRST_OWN + 2)
    found = points(SPLIT, model=unigram("ab", "cd"))
    assert pretokens_of(found, "abcd") == ["abcd"]
    assert pretokens_of(found, "abxcd") == ["ab", "+x", "+cd"]


def test_a_normalizer_that_removes_spaces_is_refused():
    for step in (replace("a", "b"), sequence(replace("a", ""))):
        with pytest.raises(TokenizerError, match="leaves no space between words"):
            points(SPLIT, step)


def test_only_a_space_becomes_a_mark():
    def widened(text):
        return text.replace(" ", "\u2003")

    parts = {"pre_tokenizer": MARKS, "model": WORDS}
    with pytest.raises(TokenizerError, match="leaves no space between words"):
        SplitPoints(split_rule(parts, parse=False), [widened], str.split)
    dropping = SplitPoints(
        split_rule(parts | {"pre_tokenizer": SPLIT}, parse=False), [widened], str.split
    )
    assert pretokens_of(dropping, "a b") == ["a ", "b"]


def test_threads_find_the_same_split_points():
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 1000)))
    pairs = [text[i : i + 2] for i in range(0, 1000, 2)]
    found = points(SPLIT, model=unigram(*pairs))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: pretokens_of(found, text), range(4)))
    assert results == [[pairs[0], *("+" + pair for pair in pairs[1:])]] * 4


def test_tokens_are_those_of_pretokens_for_every_pair_of_a_hard_alphabet():
    content = {"normalizer": {"type": "NFKC"}, "pre_tokenizer": SPLIT, "model": unigram("ab", "가")}
    found = points(content["pre_tokenizer"], content["normalizer"], content["model"])
    normalize = Library.from_str(json.dumps(content)).normalizer.normalize_str
    alphabet = "ab ㄱㅏ가ᅡᆨｶﾞ゙゚é\u0301´¨ﬀ\u0600\r\n\t\u3000한"
    for first in alphabet:
        for second in alphabet:
            for third in "a \u0301ㅏ":
                text = first + second + third
                pretokens = [pretoken.removeprefix("+") for pretoken in pretokens_of(found, text)]
                assert "".join(map(normalize, pretokens)) == normalize(text), ascii(text)
