"""The built-in texts on which engines are compared with the reference.

Hostile texts are such as have broken encoders; every run compares them. Contexts put one character
between others, and sequences put several side by side: white space before white space, a mark
before a mark, an apostrophe before a letter that folds to `s`. They are compared once for each kind
of tokenizer, see `comparison`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from tokmill.engines.routing import COMMON, EVERY, CharacterSet
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    is_byte_level,
    outline,
    step_parts,
    steps,
    token_bytes,
    vocabulary,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

_TOKENS = 1 << 13
"""Tokens of the vocabulary whose texts are compared in every run."""


def built_in_texts(tokenizer: Tokenizer) -> list[str]:
    """Return hostile texts, added tokens in contexts, and lines of tokens of the vocabulary."""
    added = [token.content for token in tokenizer.added]
    tokens = ["\n".join(line) for line in in_lines(token_texts(tokenizer, _TOKENS))]
    return hostile_texts(added) + added_token_texts(added) + pattern_texts(tokenizer) + tokens


def added_token_texts(contents: Sequence[str]) -> list[str]:
    """Return a text for each of up to `_ADDED` added tokens, evenly spread.

    It has the token between neighbours of every class on both sides, beside the next token, cut at
    both ends, in other cases and in other normal forms.
    """
    sampled = list(contents[:: max(1, -(-len(contents) // _ADDED))])
    texts = []
    for token, other in zip(sampled, sampled[1:] + sampled[:1], strict=True):
        lines = [
            f"{left}{token}{_NEIGHBOURS[(number + step) % len(_NEIGHBOURS)]}"
            for step in (0, 1, 7)
            for number, left in enumerate(_NEIGHBOURS)
        ]
        lines += [token + other, token + other + token, token[:-1], token[1:], token[:-1] + token]
        lines += [token.upper(), token.lower(), f"a {token.swapcase()}", "'" + token, token * 3]
        lines += [unicodedata.normalize(form, f"{token}\u0301") for form in ("NFC", "NFD", "NFKD")]
        texts.append("\n".join(lines))
        texts.append(token + " " + token)
    return texts


def pattern_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the letters, digits and signs that the patterns of a tokenizer name, in contexts."""
    patterns: list[str] = []
    parts = step_parts(tokenizer.json)
    for step in (*steps(parts, "normalizer"), *steps(parts, "pre_tokenizer")):
        patterns += [text for text in (step.get("pattern") or {}).values() if text]
        patterns += [text for text in (step.get("content"), step.get("prepend")) if text]
    words = list(dict.fromkeys(word for text in patterns for word in _WORD.findall(text)))
    return [
        "\n".join(f"{left}{form}{right}" for left, right in _AROUND for form in _cases(word))
        for word in words[:_ADDED]
    ]


def _cases(word: str) -> tuple[str, ...]:
    return word, word.upper(), word * 2, word[::-1], word[:-1]


def token_texts(tokenizer: Tokenizer, most: int) -> list[str]:
    """Return the texts of up to `most` tokens, evenly spread, if they are valid text."""
    content = outline(tokenizer.json, where=tokenizer.name)
    tokens = list(vocabulary(content["model"]))
    sampled = tokens[:: max(1, -(-len(tokens) // most))]
    if is_byte_level(content):
        texts = [token_bytes(token).decode(errors="replace") for token in sampled]
    else:
        texts = [token.replace(SPACE_MARK, " ") for token in sampled]
    return list(dict.fromkeys(text for text in texts if len(text) > 1 and "\ufffd" not in text))


_ADDED = 64
"""Added tokens that are compared in many contexts in every run."""

_NEIGHBOURS = (
    *("", " ", "  ", "\t", "\n", "\r\n", "\xa0", "\u3000", "\u2003 ", " \u2028", "\x85", "\x1c"),
    *("a", "Z", "é", "ſ", "1", "²", "中", "한", "\u0301", "\u200d", "👍", "!", "'", "'s", "_", "▁"),
)

_AROUND = (("", ""), ("a", "a"), (" ", " "), ("1", "1"), ("'", "\n"), ("中", "中"), ("  ", "!"))

_WORD = re.compile(r"[^\W_]+|[^\w\s\\]")
"""In a pattern: a word, or a sign that stands for itself or not."""


class Context(NamedTuple):
    """The text left and right of a character."""

    left: str
    right: str

    def text(self, characters: str) -> str:
        """Return a text with each of some characters in this context, on a line of its own."""
        return "\n" + "".join(f"{self.left}{character}{self.right}\n" for character in characters)


_LADDER = "".join(map(chr, (0x334, 0x93C, 0x3099, 0x94D, 0x5B0, 0x327, 0x1DCE, 0x323, 0x59A)))
_LADDER += "".join(map(chr, (0x302A, 0x301, 0x315, 0x35C, 0x35D, 0x345)))
"""Marks of increasing combining class: their order shows the class of a mark between them."""

CONTEXTS = tuple(
    Context(left, right)
    for left, right in (
        *(("", ""), ("  ", "'s"), ("a", "a"), ("1", "1234"), ("中", "中"), ("가", "\u11a8")),
        *(("A", "Aa"), ("!", "!"), (" ", " "), ("\n", "\n"), ("a", "'S"), (" a", " \n")),
        *(
            ("'", "A"),
            ("a'", "a"),
            ("/", "/\n"),
            ("é", "\u0301"),
            ("\u0323", "\u0334"),
            ("\u1100", "\u1161"),
        ),
        *(("q\u0345", "\u0300"), ("q", _LADDER), ("", _LADDER)),
    )
)
"""Neighbours of every class on both sides. With a vocabulary that shows each place where a
pretoken ends, a character in another class, or with another normal form, has other ids in one."""

_FEW = 6
"""Contexts, the first ones, of the large blocks of one class: ideographs, Hangul, private use."""

_LARGE = CharacterSet(((0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF)))
_LARGE_RARE = CharacterSet(((0x20000, 0x3FFFF),))
_EMPTY_PLANES = CharacterSet(((0x40000, 0xDFFFF), (0xF0000, 0x10FFFF)))
"""Without characters up to Unicode 17, or of private use."""

_PER_TEXT = 64
_PER_LINE_TEXT = 32


def character_texts(*, every: bool) -> list[tuple[Context, str]]:
    """Return contexts, each with some of the characters to compare in it.

    `every`: all code points, else `COMMON`. Large blocks of one class come in few contexts.
    """
    large, empty = (_LARGE, CharacterSet()) if not every else (_LARGE | _LARGE_RARE, _EMPTY_PLANES)
    rest = _without(EVERY if every else COMMON, large | empty)
    groups = [(rest, CONTEXTS), (large, CONTEXTS[:_FEW]), (empty, CONTEXTS[1:2])]
    return [
        (context, characters[start : start + _PER_TEXT])
        for codes, contexts in groups
        for characters in ["".join(map(chr, codes.codes()))]
        for context in contexts
        for start in range(0, len(characters), _PER_TEXT)
    ]


def _without(characters: CharacterSet, others: CharacterSet) -> CharacterSet:
    return CharacterSet.of(code for code in characters.codes() if code not in others)


_SHOWN = " \t\n\r'\"aAsS19!.-_</\x00\x1c"
_SHOWN += "\x85\xa0\xad\u1680\u2003\u2028\u2029\u3000\ufeff\u200b\u200d\u180e\u202e\ufe0f"
_SHOWN += "ªéßıſÉİЖжǄǅʰK中々あアｶﾞー한가각각กاא"
_SHOWN += "\u0301\u0323\u0334\u0345\u093c\u094d\u3099\u0e33\u093e\u20dd\u302e"
_SHOWN += "٣３²¼①Ⅷ六‿＿–—（）«»‘’“”·。；×＝€￥´ˆ©☃😀🏽🇨\ue000\u0378\ufdd0\ufffd"
"""One or more characters of every general category, and those that are treated in their own way."""

_CORE = " \n\r\t\xa0\u3000'’aZé中1²!.\u0301\u200d한ſK😀ี"
_RUN_LENGTHS = (2, 3, 4, 5, 8, 17, 33, 130)
_AFTER_RUNS = ("", "a", "1", " a", "\n", "'s", "中")
_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")
_FOLDED = {"s": "sSſ", "k": "kK\u212a"}

_LATE_COMPOSITIONS = (
    (0x105D2, 0x307), (0x105DA, 0x307), (0x11382, 0x113C9), (0x11384, 0x113BB), (0x1138B, 0x113C2),
    (0x11390, 0x113C9), (0x113C2, 0x113C2), (0x113C2, 0x113B8), (0x113C2, 0x113C9),
    (0x1611E, 0x1611E), (0x1611E, 0x16129), (0x1611E, 0x1611F), (0x16129, 0x1611F),
    (0x1611E, 0x16120), (0x16D67, 0x16D67), (0x16D63, 0x16D67), (0x16D69, 0x16D67),
)  # fmt: skip
"""Pairs that compose since Unicode 16; Python's tables may be older."""

_BETWEEN = ("", "\u0323", "\u0334")


@cache
def sequences() -> tuple[str, ...]:
    """Return pairs and triples of characters, runs, contractions, and pairs that compose."""
    pairs = map("".join, product(_SHOWN, repeat=2))
    triples = map("".join, product(_CORE, repeat=3))
    runs = (a * length + b for a, length, b in product(_CORE, _RUN_LENGTHS, _AFTER_RUNS))
    return tuple(dict.fromkeys([*pairs, *triples, *runs, *_contractions(), *compositions()]))


@cache
def compositions() -> tuple[str, ...]:
    """Return pairs that compose to one character, alone and with a mark between."""
    pairs = [(chr(first), chr(second)) for first, second in _LATE_COMPOSITIONS]
    for code in range(0x20000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and "<" not in parts[0]:
            pairs.append((chr(int(parts[0], 16)), chr(int(parts[1], 16))))
    return tuple(f"{first}{between}{second}" for first, second in pairs for between in _BETWEEN)


def in_lines(texts: Sequence[str]) -> list[list[str]]:
    """Return texts in groups, each of which is first compared as the lines of one text."""
    starts = range(0, len(texts), _PER_LINE_TEXT)
    return [list(texts[start : start + _PER_LINE_TEXT]) for start in starts]


def _contractions() -> Iterator[str]:
    for letters in _CONTRACTIONS:
        spellings = product(*(_FOLDED.get(letter, letter + letter.upper()) for letter in letters))
        for spelling, before, after in product(
            spellings, ("", "a", " ", "中"), ("", "a", "1", "'")
        ):
            yield f"{before}'{''.join(spelling)}{after}"
    for character in _FOLDED["s"] + _FOLDED["k"] + "ßıİŉ\ufb01\u0345":
        yield from (f"a'{character}", f"'{character}lf", f" '{character} ", f"'l{character}")
