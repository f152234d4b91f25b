"""The contexts in which characters are compared, derived from a tokenizer's own parts.

A context is the text left and right of a character. It shows the class of the character only if
the tokens *around* the character depend on it. The reference decides that: of a pool made from the
tokenizer's patterns and normalizers, contexts are chosen that distinguish all classes of characters
that any context of the pool distinguishes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.characters import COMMON, EVERY
from tokmill.engines.trial.character_classes import character_classes, divided, own_sets
from tokmill.tokenizer.tokenizer_json import step_types, steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
SEPARATOR = "\n"
"""Between contexts in one text; the derivation uses it too, so its effects are included."""

_LEFT = ("", " ", "  ", "a", "1", "!", "\n", "\t")
_RIGHT = ("", " ", "a", "A", "1", "!", "\n", "é")
_QUOTES = (("'", "'l"), ("'s", "'ll"))
_NUMBERS = (("12",), ("1234567",))
_MARKS = (("\u0301", "q\u0345", "\u1100", "가"), ("\u0301", "\u0334", "\u1161", "\u11a8"))
"""Left and right of a character: characters that it composes with, and marks sorted past it."""

_CHANGING = {
    *("NFC", "NFD", "NFKC", "NFKD", "Precompiled", "BertNormalizer", "StripAccents", "Nmt")
}
_LADDER = "".join(map(chr, (0x334, 0x93C, 0x3099, 0x94D, 0x5B0, 0x327, 0x1DCE, 0x323, 0x59A)))
_LADDER += "".join(map(chr, (0x302A, 0x301, 0x315, 0x35C, 0x35D, 0x345)))
"""Marks of increasing combining class: their order shows the class of a mark between them."""

_N_SHOWN = 3
"""Characters that represent their class; several, as some share a token with a neighbour."""

_TEXTS_PER_CLASS = 8000
"""Small classes are compared in more contexts than needed, up to this many texts."""

_COMMON_TEXTS_PER_CLASS = 500
"""The same where rare characters are left out: the comparison has to pay for less input."""

_BETWEEN = "a"
"""Between texts that are encoded as one: tokens do not cross it."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

_KEYS = ("normalizer", "pre_tokenizer")


@dataclass(frozen=True, slots=True)
class Context:
    """The text left and right of a character."""

    left: str
    right: str

    def text(self, characters: str) -> str:
        """Return a text with each of some characters in this context."""
        between = self.right + SEPARATOR + self.left
        return f"{SEPARATOR}{self.left}{between.join(characters)}{self.right}{SEPARATOR}"


@dataclass(frozen=True, slots=True)
class Group:
    """Characters that are compared in the same contexts."""

    characters: str
    contexts: tuple[Context, ...]


def derive_groups(library: Any, *, all_characters: bool = True) -> list[Group]:
    """Return characters with the contexts that distinguish their classes for a tokenizer.

    `library`: the `tokenizers` object of the reference.

    Each class gets contexts that distinguish it from other classes, the best ones first. A class
    that no context distinguishes, as if text is never split, gets a plain one.
    `all_characters`: else only the common ones, in fewer contexts.
    """
    characters = EVERY if all_characters else COMMON
    most_texts = _TEXTS_PER_CLASS if all_characters else _COMMON_TEXTS_PER_CLASS
    content = _content(library)
    classes = divided(character_classes(characters), own_sets(_patterns(content)))
    pool = _pool(content)
    rare = [alike for alike in classes if not alike.isascii()]
    signs = _signs(library, rare, pool)
    order = np.argsort([-_n_distinguished(row) for row in signs], kind="stable").tolist()
    plain = pool.index(Context("a", "a"))
    groups = [Group("".join(filter(str.isascii, classes)), tuple(pool))]
    for number, alike in enumerate(rare):
        needed = _cover(signs, number) or [plain]
        most = max(len(needed), min(len(pool), most_texts // len(alike)))
        chosen = list(dict.fromkeys([*needed, plain, *order]))[:most]
        groups.append(Group(alike, tuple(pool[i] for i in chosen)))
    return groups


def _content(library: Any) -> dict[str, Any]:
    """Return the parts of a tokenizer.json that decide how text is split, without a vocabulary."""
    parts = {key: getattr(library, key) for key in _KEYS}
    return {key: json.loads(part.__getstate__()) for key, part in parts.items() if part}


def _patterns(content: Mapping[str, Any]) -> list[str]:
    """Return the regular expressions of a tokenizer.json."""
    found = [
        str((step.get("pattern") or {}).get("Regex", ""))
        for key in _KEYS
        for step in steps(content, key)
        if isinstance(step.get("pattern"), dict)
    ]
    return [pattern for pattern in found if pattern]


def _pool(content: Mapping[str, Any]) -> list[Context]:
    """Return the contexts that may distinguish classes for a tokenizer.json."""
    types = {type_ for key in _KEYS for type_ in step_types(steps(content, key))}
    patterns = " ".join(_patterns(content))
    splits_like_gpt2 = any(
        step.get("type") == "ByteLevel" and step.get("use_regex", True)
        for step in steps(content, "pre_tokenizer")
    )
    sides = [list(_LEFT), list(_RIGHT)]
    added = [sorted(_literals(patterns))] * 2
    for more, is_needed in (
        (_QUOTES, "'" in patterns or splits_like_gpt2),
        (_NUMBERS, "Digits" in types or re.search(r"\\p\{?N|\\d|0-9", patterns)),
        (_MARKS, types & _CHANGING or re.search(r"\\p\{?M|\\X", patterns)),
        (added, True),
    ):
        if is_needed:
            for side, new in zip(sides, more, strict=True):
                side += [one for one in new if one not in side]
    contexts = [Context(left, right) for left, right in product(*sides)]
    if types & _CHANGING:
        contexts += [Context("q", _LADDER), Context("", _LADDER)]
    return contexts


def _literals(patterns: str) -> set[str]:
    """Return up to a dozen single characters that patterns contain literally."""
    bare = re.sub(r"\\[pP]\{[^}]*\}|\\[a-zA-Z]|\(\?[a-z:=!<>-]*|\{[\d,]*\}", "", patterns)
    return set(sorted(set(re.findall(r"[^\w\s\\^$.|?*+()\[\]{}'-]", bare)))[:12])


def _signs(library: Any, classes: Sequence[str], pool: Sequence[Context]) -> npt.NDArray[np.int64]:
    """Return a number for each context and class: (n_contexts, n_classes, _N_SHOWN).

    Equal numbers in a context mean the same tokens around the character.
    """
    shown = [_shown(library, characters) for characters in classes]
    flat = list(dict.fromkeys(character for characters in shown for character in characters))
    column = {character: number for number, character in enumerate(flat)}
    columns = np.array([[column[character] for character in characters] for characters in shown])
    # One text of all characters is encoded twice as fast as a text of each.
    texts = ["".join(context.text(one) + _BETWEEN for one in flat) for context in pool]
    encodings = library.encode_batch(texts, add_special_tokens=False)
    signs = [
        _around(
            encoding, len(flat), len(context.text(" ") + _BETWEEN), len(SEPARATOR + context.left)
        )
        for context, encoding in zip(pool, encodings, strict=True)
    ]
    return np.array(signs)[:, columns]


def _shown(library: Any, characters: str) -> list[str]:
    """Return characters of a class, preferably without a token of their own."""
    step = max(1, len(characters) // 12)
    some = list(characters[::step][:12])
    encodings = library.encode_batch_fast(some, add_special_tokens=False)
    ranked = sorted(zip(encodings, some, strict=True), key=lambda pair: -len(pair[0].ids))
    chosen = [character for _, character in ranked[:_N_SHOWN]]
    return (chosen * _N_SHOWN)[:_N_SHOWN]


def _around(encoding: Any, n: int, n_characters: int, place: int) -> npt.NDArray[np.int64]:
    """Return a hash for each piece of a text of `n` pieces of `n_characters`: (n,).

    Of the tokens without the character at `place` of the piece, and the extent of those with it; 0
    if no token begins in the piece, as without an unknown token.
    """
    ids = np.array(encoding.ids, np.uint64)
    bounds = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    piece = bounds[:, 0] // n_characters
    bounds -= piece[:, None] * n_characters
    is_own = (bounds[:, 0] <= place) & (bounds[:, 1] > place)
    # A character of several tokens counts once; in other words: how it is spelled does not count.
    again = np.zeros(len(ids), np.bool_)
    again[1:] = is_own[1:] & is_own[:-1] & (np.diff(bounds, axis=0) == 0).all(1)
    again[1:] &= np.diff(piece) == 0
    starts, stops = bounds.astype(np.uint64).T
    hashes = np.where(is_own, stops << np.uint64(32), (ids << np.uint64(8)) + np.uint64(1))
    hashes = (hashes ^ (starts << np.uint64(48))) * _MULTIPLIER
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _MULTIPLIER
    found = np.zeros(max(n, int(piece.max(initial=0)) + 1), np.uint64)
    np.add.at(found, piece[~again], (hashes ^ (hashes >> np.uint64(32)))[~again])
    return found[:n].view(np.int64)


def _n_distinguished(row: npt.NDArray[np.int64]) -> int:
    """Return the number of pairs of classes that a context distinguishes, by first characters."""
    _, counts = np.unique(row[:, 0], return_counts=True)
    return int(len(row) ** 2 - (counts**2).sum())


def _cover(signs: npt.NDArray[np.int64], number: int) -> list[int]:
    """Return few contexts that distinguish a class from all classes that any context does."""
    own = signs[:, number, :]
    # A context distinguishes two classes if they have no number in common.
    distinguishes = ~(signs[:, :, :, None] == own[:, None, None, :]).any(axis=(2, 3))
    missing = distinguishes.any(axis=0)
    chosen: list[int] = []
    while missing.any():
        best = int(np.argmax((distinguishes & missing).sum(axis=1)))
        chosen.append(best)
        missing &= ~distinguishes[best]
    return chosen
