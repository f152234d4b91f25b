from __future__ import annotations

import base64
import itertools
import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer as Library

from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.files import Token
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tiktoken_file import encodings, is_rank_file, parse_ranks, tiktoken_to_json
from tokmill.tokenizer.tokenizer import load_tokenizer

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
        ("kimi", "a中文Ab's /\n", ["a", "中文", "Ab's", " /\n"]),
    ],
)
def test_each_named_pattern_splits_like_its_encoding(pattern, text, splits):
    data = rank_file()
    ranks = parse_ranks(data, where="x")
    expected = [id_ for split in splits for id_ in tiktoken_ids(split.encode(), ranks)]
    assert library(data, pattern).encode(text).ids == expected
    pieces = library(data, pattern).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:stop] for _, (start, stop) in pieces] == splits


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "llama3", "qwen2", "kimi"])
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


OWN_PATTERNS = {
    "GPT-4's as tiktoken has it": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|"
    r"(?>\p{N}{1,3})| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "ends of the text": r"^he|\w+|\s+$|\s+|[^\w\s]+",
    "classes with a caret, a dollar and a bracket": r"[^$\]a]+|[$\]a]",
    "Han alone": r"[\p{Han}]+|[\p{L}&&[^\p{Han}]]+|[^\p{L}]+",
    "words": r"\w+|\W",
}


@pytest.mark.parametrize("pattern", OWN_PATTERNS.values(), ids=OWN_PATTERNS)
def test_a_pattern_of_a_user_splits_as_in_tiktoken(pattern):
    tiktoken = pytest.importorskip("tiktoken")
    data = rank_file()
    ranks = parse_ranks(data, where="x")
    theirs = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ours = library(data, pattern)
    texts = [text for text in hostile_texts([]) if len(text) < 400]
    for text in [*texts, "hello hello\nhe\n\n  ", "he\nhe ", "1234567", "a$]^b"]:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode_ordinary(text)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (r"\p{N}{1,3}+|.", "a possessive {…}+"),
        (r"\w+|(?m)$", "(?m) means something else"),
        (r"\h+|.", "\\h means something else"),
        (r"(\w+", "end pattern with unmatched parenthesis"),
        ("gpt4", "unknown pattern 'gpt4'"),
        ("", "no pattern is named"),
    ],
)
def test_a_pattern_that_would_split_otherwise_is_refused_in_one_line(pattern, told):
    with pytest.raises(TokenizerError) as caught:
        tiktoken_to_json(rank_file(), pattern, where="x")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


KIMI = {"267": "[BOS]", "268": "[EOS]", "269": "<|im_end|>", "270": "<think>"}


def kimi_folder(folder, **changes):
    """Write a directory as Kimi's: ranks, and a configuration that names some control tokens."""
    (folder / "tiktoken.model").write_bytes(rank_file())
    decoder = {id_: {"content": c, "special": c != "<think>"} for id_, c in KIMI.items()}
    config = {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]"}
    config |= {"added_tokens_decoder": decoder} | changes
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "tokenization_kimi.py").write_text("raise SystemExit")
    return str(folder)


@pytest.mark.parametrize("pattern", ["kimi", "qwen2", "gpt2", encodings()["kimi"].pattern])
def test_control_tokens_are_those_of_the_files_under_every_pattern(tmp_path, pattern):
    settings = TokenizerSettings(path=kimi_folder(tmp_path), pattern=pattern)
    found = load_tokenizer(settings)
    assert found.eos == Token(268, "[EOS]")
    named = {str(token.id): token.content for token in found.added if token.id <= 270}
    assert named == KIMI
    assert {token.content for token in found.added if not token.special} == {"<think>"}
    others = [token.content for token in found.added if token.id > 270]
    is_kimi = pattern == "kimi"
    expected = [f"<|reserved_token_{id_}|>" for id_ in range(271, 267 + 256)] if is_kimi else []
    assert others == expected


def test_a_name_of_an_id_that_has_a_rank_is_left_out_and_broken_lists_are_named(tmp_path):
    decoder = {"5": {"content": "<x>", "special": True}, "268": {"content": "[EOS]"}}
    settings = TokenizerSettings(path=kimi_folder(tmp_path, added_tokens_decoder=decoder))
    settings = replace(settings, pattern=r"\w+|\W")
    assert [token.content for token in load_tokenizer(settings).added] == ["[EOS]"]
    for broken in ([], 7, {"a": {"content": "x"}}, {"1": "x"}, {"1": {}}, {"-1": {"content": "x"}}):
        kimi_folder(tmp_path, added_tokens_decoder=broken or [1])
        with pytest.raises(TokenizerError, match="added_tokens_decoder: expected"):
            load_tokenizer(settings)
