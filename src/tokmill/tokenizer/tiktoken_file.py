"""Reads tiktoken rank files, and converts them into an equivalent tokenizer.json.

A rank file (base64 tokens with ranks) contains neither the pattern that splits text before merging
nor the control tokens. The pattern is never guessed: a setting gives it, or names an encoding whose
pattern is a public fact. Control tokens are those of tokenizer_config.json beside the file, and
only where it names none those of the encoding. tiktoken merges,
inside a pretoken, the two neighbours whose concatenation has the lowest rank, leftmost first. A
list of merges is equivalent if it contains *every* split of a token into two tokens, in the order
of the token's rank.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import bpe_text, byte_characters, sequence, split_step
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_NO_HAN = r"&&[^\p{Han}]]"
_UPPER_NO_HAN, _LOWER_NO_HAN = _UPPER[:-1] + _NO_HAN, _LOWER[:-1] + _NO_HAN
_KIMI = (
    rf"[\p{{Han}}]+|{_LEAD}{_UPPER_NO_HAN}*{_LOWER_NO_HAN}+{_CONTRACTIONS}?"
    rf"|{_LEAD}{_UPPER_NO_HAN}+{_LOWER_NO_HAN}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""What can only be the name of an encoding; a pattern of letters alone splits nothing useful."""

_OTHER_SYNTAX = re.compile(r"\(\?[a-zA-Z]*[msuUR][a-zA-Z-]*[:)]|\\[hHzZRXKG]")
"""Flags and escapes that mean something else, or nothing, in one of the two syntaxes."""

_PARTS = re.compile(r"\\[pPx]\{[^}]*\}|\\.|\{[\d,]+\}\+|.", re.DOTALL)
"""Parts of a regular expression: escapes, possessive counts, single characters."""

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
    the same. `n_reserved`: ids from the number of ranks on that are `<|reserved_token_ID|>` where
    no file names them.
    """

    pattern: str
    control_tokens: tuple[tuple[str, int], ...] = ()
    normalizer: str | None = None
    n_reserved: int = 0


def encodings() -> dict[str, Encoding]:
    """Return the known encodings by name.

    Sources: tiktoken 0.14 (`tiktoken_ext/openai_public.py`) for gpt2, cl100k and o200k; the
    published tokenizer files of Llama 3.1 and Qwen 2.5; `tokenization_kimi.py` of Kimi K2 for kimi.
    `qwen2` normalizes text to NFC, and has the three control tokens that all Qwen releases share.
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
        "kimi": Encoding(_KIMI, n_reserved=256),
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


def tiktoken_to_json(
    data: bytes,
    pattern: str,
    *,
    where: str,
    named: Mapping[int, tuple[str, bool]] | None = None,
    code: str = "",
) -> str:
    """Return the text of a tokenizer.json with the ids of tiktoken.

    `pattern`: a name of `encodings`, or a regular expression as tiktoken takes it. `where` names
    the rank file in messages. `named`: the added tokens of the files beside it, by id: string, and
    whether they are special. `code`: name of the file beside it that has its pattern, or ''.

    Raises:
        TokenizerError: there is no pattern, or it cannot be used, or the rank file is broken.
    """
    encoding = _encoding_of(pattern, where=where, code=code)
    ranks = parse_ranks(data, where=where)
    ordered = sorted(ranks, key=ranks.__getitem__)
    characters = byte_characters()
    names = {token: "".join(map(characters.__getitem__, token)) for token in ordered}
    vocab = {names[token]: ranks[token] for token in ordered}
    added = _added_tokens(encoding, set(ranks.values()), named or {})
    # An added token that is missing in the vocabulary gets the next free id, not its own.
    vocab.update((content, id_) for id_, content, _ in added)
    splits = ((token[:at], token[at:]) for token in ordered for at in range(1, len(token)))
    merges = [(names[a], names[b]) for a, b in splits if a in names and b in names]
    return bpe_text(
        # tiktoken looks up a pretoken before it merges
        {"vocab": vocab, "merges": merges, "ignore_merges": True},
        added,
        {
            "normalizer": {"type": encoding.normalizer} if encoding.normalizer else None,
            "pre_tokenizer": sequence("pre_tokenizer", [split_step(encoding.pattern), _BYTE_LEVEL]),
            "decoder": _BYTE_LEVEL,
        },
    )


def _encoding_of(pattern: str, *, where: str, code: str) -> Encoding:
    """Return the encoding that a setting names, or one with the regular expression that it gives.

    Raises:
        TokenizerError: it is neither.
    """
    known = encodings()
    if pattern in known:
        return known[pattern]
    if pattern and not _NAME.fullmatch(pattern):
        return Encoding(_for_oniguruma(pattern, where=where))
    found = f"unknown pattern {pattern!r}" if pattern else "no pattern is named"
    own = f"the regular expression in {code}" if code else "its own regular expression"
    raise TokenizerError(
        f"{where}: a tiktoken rank file has no split pattern, and {found}; set --pattern to {own}, "
        f"or, only if it is of this family, to one of {', '.join(known)}"
    )


def _for_oniguruma(pattern: str, *, where: str) -> str:
    """Return a regular expression of tiktoken as the tokenizers library understands it.

    `^` and `$` are the ends of the text in one, of each line in the other.

    Raises:
        TokenizerError: it has what means something else there, or is none.
    """
    from tokenizers import Regex

    advice = ""
    if match := _OTHER_SYNTAX.search(pattern):
        advice = f"{match[0]} means something else in the tokenizers library: write it out"
    parts, depth = [], 0
    for part in _PARTS.findall(pattern):
        depth += (part == "[") - (part == "]" and depth > 0)
        if part.endswith("}+") and not depth:
            advice = "a possessive {…}+ means something else in the tokenizers library: write (?>…)"
        ends = {} if depth else {"^": r"\A", "$": r"\z"}
        parts.append(ends.get(part, part))
    translated = "".join(parts)
    try:
        Regex(translated)
    except Exception as error:  # the library raises no other class
        advice = " ".join(str(error).split())
    if advice:
        raise TokenizerError(f"{where}: --pattern: cannot be used: {advice}")
    return translated


def _added_tokens(
    encoding: Encoding, ranks: set[int], named: Mapping[int, tuple[str, bool]]
) -> list[tuple[int, str, bool]]:
    """Return id, string and whether it is special of every added token.

    If the files name some, no other family's are added. An id of a rank is an ordinary token.
    """
    first_free = max(ranks) + 1
    own = [(first_free + offset, content) for content, offset in encoding.control_tokens]
    tokens = {id_: (content, True) for id_, content in own} if not named else {}
    for id_ in range(first_free, first_free + encoding.n_reserved):
        tokens[id_] = (f"<|reserved_token_{id_}|>", True)
    tokens |= {id_: token for id_, token in named.items() if id_ not in ranks}
    return [(id_, *tokens[id_]) for id_ in sorted(tokens)]
