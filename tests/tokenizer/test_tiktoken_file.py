from __future__ import annotations

import base64
import itertools

import pytest
from tokenizers import Tokenizer as Library

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tiktoken_file import encodings, is_rank_file, parse_ranks, tiktoken_to_json

WORDS = ["he", "ll", "hell", "hello", " hello", "aa", "aaa", "  ", "    ", "12", "你"]


def rank_file(words=WORDS, end="\n"):
    tokens = [bytes([byte]) for byte in range(256)] + [word.encode() for word in words]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    return (end.join(lines) + end).encode()


def tiktoken_ids(split, ranks):
    """What tiktoken does with one split: whole if a token, else lowest rank, leftmost first."""
    if split in ranks:
        return [ranks[split]]
    parts = [bytes([byte]) for byte in split]
    while len(parts) > 1:
        joined = [ranks.get(a + b, 1 << 30) for a, b in itertools.pairwise(parts)]
        if min(joined) == 1 << 30:
            break
        at = joined.index(min(joined))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ranks[part] for part in parts]


def library(data, pattern):
    loaded = Library.from_str(tiktoken_to_json(data, pattern, where="x.tiktoken"))
    loaded.encode_special_tokens = True
    return loaded


@pytest.mark.parametrize(
    "split", ["hello", " hello", "hellohello", "aaaaaaa", "aa", " hell", "你好", "\u0301", "😀"]
)
def test_a_pretoken_has_the_ids_of_tiktoken(split):
    data = rank_file()
    ranks = parse_ranks(data, where="x")
    assert library(data, "cl100k").encode(split).ids == tiktoken_ids(split.encode(), ranks)


@pytest.mark.parametrize(
    ("pattern", "text", "splits"),
    [
        ("gpt2", "I'LL 1234  x", ["I", "'", "LL", " 1234", " ", " x"]),
        ("cl100k", "I'LL 1234\n\n x", ["I", "'LL", " ", "123", "4", "\n\n", " x"]),
        ("llama3", "don't 12345", ["don", "'t", " ", "123", "45"]),
        ("qwen2", "a 123", ["a", " ", "1", "2", "3"]),
        ("o200k", "CamelCase's /\n", ["Camel", "Case's", " /\n"]),
    ],
)
def test_each_named_pattern_splits_like_its_encoding(pattern, text, splits):
    data = rank_file()
    ranks = parse_ranks(data, where="x")
    expected = [id_ for split in splits for id_ in tiktoken_ids(split.encode(), ranks)]
    assert library(data, pattern).encode(text).ids == expected
    pieces = library(data, pattern).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:stop] for _, (start, stop) in pieces] == splits


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "llama3", "qwen2"])
def test_ids_equal_those_of_the_tiktoken_package(pattern):
    tiktoken = pytest.importorskip("tiktoken")
    data = rank_file()
    theirs = tiktoken.Encoding(
        "x",
        pat_str=encodings()[pattern].pattern,
        mergeable_ranks=parse_ranks(data, where="x"),
        special_tokens={},
    )
    ours = library(data, pattern)
    for text in ["", " ", "hello  hello\r\n\n x", "it'S 1234567 ½", "aaaaa     a", "<|endoftext|>"]:
        assert ours.encode(text).ids == theirs.encode_ordinary(text)


def test_control_tokens_keep_their_ids_across_holes():
    loaded = library(rank_file(["he"]), "cl100k")
    control = {i: t.content for i, t in loaded.get_added_tokens_decoder().items()}
    assert control == {
        258: "<|endoftext|>",
        259: "<|fim_prefix|>",
        260: "<|fim_middle|>",
        261: "<|fim_suffix|>",
        277: "<|endofprompt|>",
    }


def test_llama3_has_256_control_tokens_in_their_order():
    tokens = encodings()["llama3"].control_tokens
    assert [offset for _, offset in tokens] == list(range(256))
    assert tokens[1][0] == "<|end_of_text|>"
    assert tokens[3][0] == "<|reserved_special_token_1|>"
    assert tokens[9][0] == "<|eot_id|>"
    assert tokens[255][0] == "<|reserved_special_token_245|>"


def test_a_control_token_in_a_text_is_text_unless_parsed():
    loaded = library(rank_file(), "gpt2")
    assert loaded.decode(loaded.encode("<|endoftext|>").ids) == "<|endoftext|>"
    assert len(loaded.encode("<|endoftext|>").ids) > 1
    loaded.encode_special_tokens = False
    assert loaded.encode("<|endoftext|>").ids == [256 + len(WORDS)]


def test_qwen2_normalizes_to_nfc():
    loaded = library(rank_file(["é"]), "qwen2")
    assert loaded.encode("e\u0301").ids == [256]


def test_a_rank_file_is_recognized_by_its_first_line():
    assert is_rank_file(b"IQ== 0\n")
    assert is_rank_file(b"IQ== 0\r\nIg== 1\r\n")
    assert not is_rank_file(b"")
    assert not is_rank_file(b'{"model": {}}')
    assert not is_rank_file(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"IQ== 0\nIg==\n", "x:2: expected a base64 token and a rank, found 'Ig=='"),
        (b"IQ== 0\n??? 1\n", "x:2: expected a base64 token and a rank, found '??? 1'"),
        (b"IQ== 0\nIg== 0\n", "x:2: this token or rank is in an earlier line too"),
        (b"IQ== 0\nIQ== 1\n", "x:2: this token or rank is in an earlier line too"),
        (b"IQ== 0\n", "x: no token for 255 bytes, first 0x00"),
    ],
)
def test_a_broken_rank_file_is_refused_with_its_line(data, message):
    with pytest.raises(TokenizerError) as caught:
        parse_ranks(data, where="x")
    assert str(caught.value) == message


@pytest.mark.parametrize("pattern", ["", "gpt5"])
def test_an_unknown_pattern_is_refused_with_the_known_ones(pattern):
    with pytest.raises(TokenizerError, match="one of gpt2, cl100k, o200k, llama3, qwen2"):
        tiktoken_to_json(rank_file(), pattern, where="x")
