"""Reads tiktoken rank files, and converts them into an equivalent tokenizer.json.

A rank file (base64 tokens with ranks) contains neither the pattern that splits text before merging
nor the control tokens; both are public facts of each encoding, kept here by name. tiktoken merges,
inside a pretoken, the two neighbours whose concatenation has the lowest rank, leftmost first. A
list of merges is equivalent if it contains *every* split of a token into two tokens, in the order
of the token's rank.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import bpe_text, byte_characters, sequence, split_step
from tokmill.words import plural

_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?(?:\n|\Z)")

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LEAD, _LETTERS = r"[^\r\n\p{L}\p{N}]?", r"\p{Lm}\p{Lo}\p{M}]"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}" + _LETTERS, r"[\p{Ll}" + _LETTERS

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_CASED = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a rank file lacks: the split pattern, control tokens, Unicode normal form.

    Ids of `control_tokens` are the number of ranks plus the given offset. Patterns are written
    without possessive quantifiers, which mean something else in Oniguruma's syntax; the splits are
    the same.
    """

    pattern: str
    control_tokens: tuple[tuple[str, int], ...]
    normalizer: str | None = None


def encodings() -> dict[str, Encoding]:
    """Return the known encodings by name.

    Sources: tiktoken 0.14 (`tiktoken_ext/openai_public.py`) for gpt2, cl100k and o200k; the
    published tokenizer files of Llama 3.1 and Qwen 2.5 for the others. `qwen2` normalizes text
    to NFC, and has the three control tokens that all Qwen releases share.
    """
    return {
        "gpt2": Encoding(_GPT2, (("<|endoftext|>", 0),)),
        "cl100k": Encoding(
            _WORDS % "{1,3}",
            (
                ("<|endoftext|>", 1),
                ("<|fim_prefix|>", 2),
                ("<|fim_middle|>", 3),
                ("<|fim_suffix|>", 4),
                ("<|endofprompt|>", 20),
            ),
        ),
        "o200k": Encoding(_CASED, (("<|endoftext|>", 1), ("<|endofprompt|>", 20))),
        "llama3": Encoding(_WORDS % "{1,3}", _llama3_control_tokens()),
        "qwen2": Encoding(
            _WORDS % "",
            (("<|endoftext|>", 0), ("<|im_start|>", 1), ("<|im_end|>", 2)),
            normalizer="NFC",
        ),
    }


def _llama3_control_tokens() -> tuple[tuple[str, int], ...]:
    """Return the 256 control tokens of Llama 3.1, in the order of their ids."""
    named = {
        0: "<|begin_of_text|>",
        1: "<|end_of_text|>",
        4: "<|finetune_right_pad_id|>",
        5: "<|step_id|>",
        6: "<|start_header_id|>",
        7: "<|end_header_id|>",
        8: "<|eom_id|>",
        9: "<|eot_id|>",
        10: "<|python_tag|>",
        11: "<|image|>",
    }
    unnamed = (f"<|reserved_special_token_{n}|>" for n in range(256))
    return tuple((named.get(offset) or next(unnamed), offset) for offset in range(256))


def is_rank_file(data: bytes) -> bool:
    """Return whether bytes begin like a rank file; a SentencePiece model never does."""
    return _RANK_LINE.match(data) is not None


def parse_ranks(data: bytes, *, where: str) -> dict[bytes, int]:
    """Read a rank file.

    Raises:
        TokenizerError: a line is not base64 and a number, a token or rank appears twice, or one of
            the 256 single bytes is missing, so that some text could not be encoded.
    """
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            encoded, written_rank = line.split()
            token, rank = base64.b64decode(encoded, validate=True), int(written_rank)
        except ValueError:  # binascii's error is one too
            raise TokenizerError(
                f"{where}:{number}: expected a base64 token and a rank, "
                f"found {line[:60].decode('latin-1')!r}"
            ) from None
        if token in ranks or rank in seen:
            raise TokenizerError(f"{where}:{number}: this token or rank is in an earlier line too")
        ranks[token] = rank
        seen.add(rank)
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise TokenizerError(
            f"{where}: no token for {plural(len(missing), 'byte')}, first {missing[0]:#04x}"
        )
    return ranks


def tiktoken_to_json(data: bytes, pattern: str, *, where: str) -> str:
    """Return the text of a tokenizer.json with the ids of tiktoken.

    `pattern` is a name of `encodings`; `where` names the rank file in messages.

    Raises:
        TokenizerError: the pattern is unknown, or the rank file is broken.
    """
    known = encodings()
    if pattern not in known:
        named = f"unknown pattern {pattern!r}" if pattern else "no pattern is named"
        raise TokenizerError(
            f"{where}: a tiktoken rank file has no split pattern, and {named}; "
            f"set --pattern to one of {', '.join(known)}"
        )
    encoding = known[pattern]
    ranks = parse_ranks(data, where=where)
    ordered = sorted(ranks, key=ranks.__getitem__)
    characters = byte_characters()
    names = {token: "".join(map(characters.__getitem__, token)) for token in ordered}
    vocab = {names[token]: ranks[token] for token in ordered}
    first_free = max(ranks.values()) + 1
    control = [(first_free + offset, content) for content, offset in encoding.control_tokens]
    # An added token that is missing in the vocabulary gets the next free id, not its own.
    vocab.update((content, id_) for id_, content in control)
    splits = ((token[:at], token[at:]) for token in ordered for at in range(1, len(token)))
    merges = [(names[a], names[b]) for a, b in splits if a in names and b in names]
    return bpe_text(
        # tiktoken looks up a pretoken before it merges
        {"vocab": vocab, "merges": merges, "ignore_merges": True},
        control,
        {
            "normalizer": {"type": encoding.normalizer} if encoding.normalizer else None,
            "pre_tokenizer": sequence("pre_tokenizer", [split_step(encoding.pattern), _BYTE_LEVEL]),
            "decoder": _BYTE_LEVEL,
        },
    )
