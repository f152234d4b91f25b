"""Which added tokens an engine finds by itself, and which texts go to the reference for the others.

The reference finds the tokens with `normalized: false` in a text as it is, normalizes the pieces
between them one by one, and finds the other tokens there. Engines take these steps in another
order, look into normalized text for all tokens, or ignore a flag. So an engine is given only tokens
that every order finds at the same places. Such a token has no flag, and its text stands for itself:

- the normalizer changes none of its characters, and makes none of them of other characters;
- none of them joins a neighbour, as a combining mark does;
- no token that is found in another step overlaps it.

Where few characters break this, the token is given, and documents with such a character are routed:
U+F90A, which NFC turns into 金; U+0338, which joins a `>` before it. A token that breaks it in
itself is not given: documents with its string are routed, so that the engine never meets it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from tokmill.engines.routing import CharacterSet, Routes
from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import (
    Content,
    adds_prefix,
    as_text,
    sequence,
    step_parts,
    steps,
    with_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.tokenizer.files import AddedToken
    from tokmill.tokenizer.tokenizer import Tokenizer

MOST_STRINGS, MOST_LETTERS = 256, 4096
"""Strings that are searched for in every document, and their characters together: with more the
search would take longer than the encoding."""

_LAST_CHANGED = 0x2FFFF
"""No character behind it has another case or a decomposition."""

_SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """How the added tokens of a tokenizer are found when an engine encodes.

    `given`: ids of those that the engine is given. `routes`: what sends a document to the
    reference, because it may hold another one, or one of these that the engine would not find.
    """

    given: tuple[int, ...] = ()
    routes: Routes = field(default_factory=Routes)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"given": list(self.given), **self.routes.as_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AddedTokens:
        """Read the result of `as_json`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        return cls(tuple(map(int, data["given"])), Routes.from_json(data))


def for_engine(tokenizer: Tokenizer, added: AddedTokens) -> Tokenizer:
    """Return the tokenizer that an engine loads: with no added tokens but those that it is given.

    Ids are the library's: it ignores those of a file that leave a gap.
    """
    if not tokenizer.json:
        return tokenizer
    given = set(added.given)
    tokens = [token._asdict() for token in tokenizer.added if token.id in given]
    return replace(tokenizer, json=with_values(tokenizer.json, {"added_tokens": tokens}))


def divide_added_tokens(tokenizer: Tokenizer, *, parse: bool) -> AddedTokens:
    """Divide the added tokens into those that an engine is given, and those of the reference alone.

    `parse`: the strings of special tokens are tokens too; otherwise they are text. SentencePiece's
    own library finds none in a text.

    Raises:
        TokenizerError: the texts in which the reference finds one cannot be told from others.
    """
    if tokenizer.kind == "sentencepiece":
        return AddedTokens()
    found = [token for token in tokenizer.added if parse or not token.special]
    hidden = [token for token in tokenizer.added if not parse and token.special]
    if not found:
        return AddedTokens()
    normalizer = _Normalizer(tokenizer)
    given = _given_to_engines(found, normalizer)
    kept = {token.id for token in given}
    routes = Routes()
    for token in given:
        routes |= Routes(normalizer.makers(token.content) | normalizer.joiners(token.content[-1]))
    for token in found:
        if token.id not in kept:
            routes |= normalizer.where(token)
    for token in hidden:
        # A match of a hidden token is passed over, and with it those that overlap the match.
        if _overlaps_any(token, [other for other in given if _one_step(other, token)]):
            routes |= normalizer.where(token)
    if len(routes.strings) > MOST_STRINGS or sum(map(len, routes.strings)) > MOST_LETTERS:
        raise TokenizerError(
            f"{len(routes.strings):,} of its added tokens have flags, or text that its normalizer "
            "changes, and only the reference finds them"
        )
    return AddedTokens(tuple(sorted(kept)), routes)


def _given_to_engines(found: Sequence[AddedToken], normalizer: _Normalizer) -> list[AddedToken]:
    """Return the tokens that an engine finds where the reference does."""
    # The reference looks for these first: what overlaps them is not found.
    before = [token for token in found if not token.normalized]
    given = []
    for token in found:
        is_hidden = token.normalized and _overlaps_any(token, before)
        if normalizer.leaves(token) and not is_hidden:
            given.append(token)
    return given


class _Normalizer:
    """The normalizer of a tokenizer, as the reference applies it to each piece between tokens.

    It is understood if it looks at one character after the other, but for NFC, which joins marks.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        parts = step_parts(tokenizer.json)
        every = steps(parts, "normalizer")
        inner = [step for step in every if step.get("type") != "Prepend"]
        self._whole, self._inner = _library(every), _library(inner)
        self._composes = any(step.get("type") == "NFC" for step in inner)
        self._is_understood = all(map(_is_understood, inner))
        prefixes = [str(step["prepend"]) for step in every if step.get("type") == "Prepend"]
        self._prepended = {c for prefix in prefixes for c in prefix + self._normal(prefix)}
        puts_before = any(map(adds_prefix, steps(parts, "pre_tokenizer")))
        self._changes_edges = bool(self._prepended) or puts_before

    def leaves(self, token: AddedToken) -> bool:
        """Return whether a token stands for itself wherever it is; see the module."""
        if token.lstrip or token.rstrip or token.single_word:
            return False
        if not self._is_understood or self._changes_edges:
            return False
        text = token.content
        if self._composes and any(map(_joins, text)):
            return False
        # With few letters of another case most documents would be routed.
        return self._normal(text) == text and min(self.makers(text).codes(), default=128) >= 128

    def makers(self, text: str) -> CharacterSet:
        """Return the characters, other than its own, of which a text can be made."""
        codes: set[int] = set()
        for character in set(text):
            parts = _decomposed(character)[1:] if self._composes else ""
            made_of = {character, *parts}
            codes.update(code for made in made_of for code in self._sources.get(made, ()))
            codes.update(map(ord, parts))
            if self._composes and _joins(character):
                codes.update({ord(character)}, _composed_with(character))
        return CharacterSet.of(codes)

    def joiners(self, last: str) -> CharacterSet:
        """Return the characters that change the character before them, if that is `last`."""
        if not self._composes:
            return CharacterSet()
        marks = [chr(code) for code in _marks()]
        alone = self._each(marks)
        behind = self._each([last + mark for mark in marks])
        return CharacterSet.of(
            ord(mark)
            for mark, one, both in zip(marks, alone, behind, strict=True)
            if both != last + one
        )

    def where(self, token: AddedToken) -> Routes:
        """Return what every document contains in which the reference finds a token.

        Raises:
            TokenizerError: that is unknown.
        """
        if not token.normalized:
            return Routes(strings=(token.content,))
        if not self._is_understood:
            raise TokenizerError(
                f"its added token {token.content!r} is found in normalized text, and which texts a "
                "normalizer of this kind makes into it is unknown"
            )
        text = self._normal(token.content, with_prefix=True)
        # Some of it may come from a prefix; the longest of the rest is in the text itself.
        rests, rest = [], ""
        for character in text:
            if character in self._prepended:
                rests.append(rest)
                rest = ""
            else:
                rest += character
        longest = max([*rests, rest], key=len)
        if not longest:
            raise TokenizerError(
                f"its added token {token.content!r} can be made of the prefix of any text"
            )
        return Routes(self.makers(longest), (longest,))

    def _normal(self, text: str, *, with_prefix: bool = False) -> str:
        library = self._whole if with_prefix else self._inner
        return text if library is None else str(library.normalize_str(text))

    @cached_property
    def _sources(self) -> dict[str, set[int]]:
        """Return, for each character, the others whose normal form contains it."""
        if self._inner is None:
            return {}
        characters = _characters()
        sources: dict[str, set[int]] = {}
        for character, made in zip(characters, self._each(characters), strict=True):
            if made != character:
                for one in made:
                    sources.setdefault(one, set()).add(ord(character))
        return sources

    def _each(self, texts: Sequence[str]) -> list[str]:
        """Return the normal form of each text; one call takes 50 ns a text, not 1 us."""
        if any(_SEPARATOR in text for text in texts):
            return [self._normal(text) for text in texts]
        return self._normal(_SEPARATOR.join(texts)).split(_SEPARATOR)


def _is_understood(step: Content) -> bool:
    """Return whether a step makes each character into one or more, or is NFC."""
    if step.get("type") != "Replace":
        return step.get("type") in ("NFC", "Lowercase")
    found = step["pattern"].get("String", "")
    is_single = len(found) == 1 and _decomposed(found) == found and not _joins(found)
    return is_single and bool(step["content"]) and _SEPARATOR not in found + step["content"]


def _library(parts: Sequence[Content]) -> Any:
    """Return the library's normalizer with some steps; None without steps."""
    from tokenizers import Tokenizer as Library

    if not parts:
        return None
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    content = {"normalizer": sequence("normalizer", parts), "added_tokens": [], "model": empty}
    return Library.from_str(as_text(content)).normalizer


def _decomposed(text: str) -> str:
    from tokenizers.normalizers import NFD

    return str(NFD().normalize_str(text))


def _joins(character: str) -> bool:
    """Return whether NFC may move a character or join it to the one before; unknown ones may be."""
    category = unicodedata.category(character)
    return category[0] == "M" or category == "Cn" or _is_inner_letter(ord(character))


def _is_inner_letter(code: int) -> bool:
    """Return whether a character is a vowel or a final consonant of Hangul."""
    return 0x1160 <= code <= 0x11FF or 0xD7B0 <= code <= 0xD7FF


@cache
def _marks() -> tuple[int, ...]:
    """Return the assigned characters that may join the one before them."""
    codes = (c for c in range(_LAST_CHANGED + 1) if unicodedata.category(chr(c)) != "Cn")
    return tuple(code for code in codes if _joins(chr(code)))


def _composed_with(mark: str) -> set[int]:
    """Return the characters whose decomposition has a mark."""
    every = _characters()
    decomposed = _decomposed(_SEPARATOR.join(every)).split(_SEPARATOR)
    pairs = zip(every, decomposed, strict=True)
    return {ord(character) for character, parts in pairs if mark in parts}


def _characters() -> list[str]:
    """Return the characters that a normalizer may change, without the separator."""
    codes = (c for c in range(_LAST_CHANGED + 1) if not 0xD800 <= c < 0xE000)
    return [chr(code) for code in codes if chr(code) != _SEPARATOR]


def _one_step(one: AddedToken, other: AddedToken) -> bool:
    """Return whether two tokens are found in the same step."""
    return one.normalized == other.normalized


def _overlaps_any(token: AddedToken, others: Sequence[AddedToken]) -> bool:
    """Return whether a match of a token can have text in common with one of another token."""
    return any(_overlap(token.content, other.content) for other in others)


def _overlap(one: str, other: str) -> bool:
    if one in other or other in one:
        return True
    lengths = range(1, min(len(one), len(other)))
    return any(one[-n:] == other[:n] or other[-n:] == one[:n] for n in lengths)
