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

    from tokmill.tokenizer.tokenizer import Tokenizer

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

_OWN = -1

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


def derive_groups(tokenizer: Tokenizer, *, all_characters: bool = True) -> list[Group]:
    """Return characters with the contexts that distinguish their classes for a tokenizer.

    Each class gets contexts that distinguish it from other classes, the best ones first. A class
    that no context distinguishes, as if text is never split, gets a plain one.
    `all_characters`: else only the common ones, in fewer contexts.
    """
    characters = EVERY if all_characters else COMMON
    most_texts = _TEXTS_PER_CLASS if all_characters else _COMMON_TEXTS_PER_CLASS
    content = json.loads(tokenizer.json)
    classes = divided(character_classes(characters), own_sets(_patterns(content)))
    pool = _pool(content)
    rare = [alike for alike in classes if not alike.isascii()]
    signs = _signs(tokenizer, rare, pool)
    order = np.argsort([-_n_distinguished(row) for row in signs], kind="stable").tolist()
    plain = pool.index(Context("a", "a"))
    groups = [Group("".join(filter(str.isascii, classes)), tuple(pool))]
    for number, alike in enumerate(rare):
        needed = _cover(signs, number) or [plain]
        most = max(len(needed), min(len(pool), most_texts // len(alike)))
        chosen = list(dict.fromkeys([*needed, plain, *order]))[:most]
        groups.append(Group(alike, tuple(pool[i] for i in chosen)))
    return groups


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


def _signs(
    tokenizer: Tokenizer, classes: Sequence[str], pool: Sequence[Context]
) -> npt.NDArray[np.int64]:
    """Return a number for each context and class: (n_contexts, n_classes, _N_SHOWN).

    Equal numbers mean the same tokens around the character.
    """
    library = tokenizer.library()
    library.encode_special_tokens = True
    shown = [_shown(library, characters) for characters in classes]
    flat = list(dict.fromkeys(character for characters in shown for character in characters))
    column = {character: number for number, character in enumerate(flat)}
    columns = np.array([[column[character] for character in characters] for characters in shown])
    numbers: dict[Any, int] = {}
    signs = np.empty((len(pool), len(flat)), np.int64)
    for i, context in enumerate(pool):
        place = len(SEPARATOR) + len(context.left)
        texts = [context.text(character) for character in flat]
        encodings = library.encode_batch(texts, add_special_tokens=False)
        around = (_around(encoding, place) for encoding in encodings)
        signs[i] = [numbers.setdefault(one, len(numbers)) for one in around]
    return signs[:, columns]


def _shown(library: Any, characters: str) -> list[str]:
    """Return characters of a class, preferably without a token of their own."""
    step = max(1, len(characters) // 12)
    some = list(characters[::step][:12])
    encodings = library.encode_batch_fast(some, add_special_tokens=False)
    ranked = sorted(zip(encodings, some, strict=True), key=lambda pair: -len(pair[0].ids))
    chosen = [character for _, character in ranked[:_N_SHOWN]]
    return (chosen * _N_SHOWN)[:_N_SHOWN]


def _around(encoding: Any, place: int) -> tuple[Any, ...]:
    """Return the tokens without the character at `place`, and the extent of those with it."""
    found: list[Any] = []
    for id_, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        if stop <= place or start > place:
            found.append((id_, start))
        elif not found or found[-1] != (_OWN, start, stop):
            found.append((_OWN, start, stop))
    return tuple(found)


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
