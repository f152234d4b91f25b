"""The contexts in which characters are compared, derived from a tokenizer's own parts.

A context is what stands left and right of a character. It shows how a tokenizer classes the
character only if the tokens *around* it change with the class. Which ones do is found out with the
reference: from a pool made of the literals and normalizers of the tokenizer, those are taken that
tell apart every two classes of characters that any context of the pool tells apart.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.trial.character_classes import character_classes, divided, own_sets
from tokmill.tokenizer.tokenizer_json import steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.tokenizer.tokenizer import Tokenizer

SEPARATOR = "\n"
"""Between contexts in one text. What it may do to them, the derivation has seen too."""

_LEFT = ("", " ", "  ", "a", "1", "!", "\n", "\t")
_RIGHT = ("", " ", "a", "A", "1", "!", "\n", "é")
_QUOTES = (("'", "'l"), ("'s", "'ll"))
_NUMBERS = (("12",), ("1234567",))
_MARKS = (("\u0301", "q\u0345", "\u1100", "가"), ("\u0301", "\u0334", "\u1161", "\u11a8"))
"""Left and right of a character: what it composes with, and marks that are sorted past it."""

_CHANGING = {
    *("NFC", "NFD", "NFKC", "NFKD", "Precompiled", "BertNormalizer", "StripAccents", "Nmt"),
}
_LADDER = "".join(map(chr, (0x334, 0x93C, 0x3099, 0x94D, 0x5B0, 0x327, 0x1DCE, 0x323, 0x59A)))
_LADDER += "".join(map(chr, (0x302A, 0x301, 0x315, 0x35C, 0x35D, 0x345)))
"""Marks of ever higher combining class: normal order shows between which ones a mark belongs."""

_N_SHOWN = 3
"""Characters that stand for their class; more than one, as some have tokens with neighbours."""

_TEXTS_PER_CLASS = 8000
"""Small classes are compared in more contexts than they need, up to this many texts."""

_OWN = -1


@dataclass(frozen=True, slots=True)
class Context:
    """What stands left and right of a character."""

    left: str
    right: str

    def text(self, characters: str) -> str:
        """Return the text in which every one of some characters stands in this context."""
        between = self.right + SEPARATOR + self.left
        return f"{SEPARATOR}{self.left}{between.join(characters)}{self.right}{SEPARATOR}"


@dataclass(frozen=True, slots=True)
class Group:
    """Characters that are compared in the same contexts."""

    characters: str
    contexts: tuple[Context, ...]


def derive_groups(tokenizer: Tokenizer) -> list[Group]:
    """Return all characters with the contexts that a tokenizer needs to tell their classes apart.

    Every context of a class is one that tells it from another, the most telling ones first. A class
    that nothing tells from others, as where text is never split, gets the plainest one.
    """
    content = _head(tokenizer.json)
    classes = divided(character_classes(), own_sets(_patterns(content)))
    pool = _pool(content)
    rare = [characters for characters in classes if not characters.isascii()]
    signs = _signs(tokenizer, rare, pool)
    order = np.argsort([-_n_told(row) for row in signs], kind="stable").tolist()
    plain = pool.index(Context("a", "a"))
    groups = [Group("".join(filter(str.isascii, classes)), tuple(pool))]
    for number, characters in enumerate(rare):
        needed = _cover(signs, number) or [plain]
        most = max(len(needed), min(len(pool), _TEXTS_PER_CLASS // len(characters)))
        chosen = list(dict.fromkeys([*needed, plain, *order]))[:most]
        groups.append(Group(characters, tuple(pool[i] for i in chosen)))
    return groups


def _head(tokenizer_json: str) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(tokenizer_json)
    return content


def _patterns(content: Mapping[str, Any]) -> list[str]:
    """Return the regular expressions of a tokenizer.json, wherever they stand."""
    found = [
        str((step.get("pattern") or {}).get("Regex", ""))
        for key in ("normalizer", "pre_tokenizer")
        for step in steps(content, key)
        if isinstance(step.get("pattern"), dict)
    ]
    return [pattern for pattern in found if pattern]


def _pool(content: Mapping[str, Any]) -> list[Context]:
    """Return the contexts that may tell classes apart for a tokenizer.json."""
    types = {str(step.get("type")) for key in _KEYS for step in steps(content, key)}
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


_KEYS = ("normalizer", "pre_tokenizer")


def _literals(patterns: str) -> set[str]:
    """Return single characters that patterns name outright, up to a dozen."""
    bare = re.sub(r"\\[pP]\{[^}]*\}|\\[a-zA-Z]|\(\?[a-z:=!<>-]*|\{[\d,]*\}", "", patterns)
    return set(sorted(set(re.findall(r"[^\w\s\\^$.|?*+()\[\]{}'-]", bare)))[:12])


def _signs(
    tokenizer: Tokenizer, classes: Sequence[str], pool: Sequence[Context]
) -> npt.NDArray[np.int64]:
    """Return a number for what each context makes of each class: (n_contexts, n_classes, shown).

    Equal numbers: the same tokens around the character.
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
    """Return characters of a class that have no token of their own, if there are any."""
    step = max(1, len(characters) // 12)
    some = list(characters[::step][:12])
    encodings = library.encode_batch_fast(some, add_special_tokens=False)
    ranked = sorted(zip(encodings, some, strict=True), key=lambda pair: -len(pair[0].ids))
    chosen = [character for _, character in ranked[:_N_SHOWN]]
    return (chosen * _N_SHOWN)[:_N_SHOWN]


def _around(encoding: Any, place: int) -> tuple[Any, ...]:
    """Return the tokens that do not hold the character at `place`, and how far those that do go."""
    found: list[Any] = []
    for id_, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        if stop <= place or start > place:
            found.append((id_, start))
        elif not found or found[-1] != (_OWN, start, stop):
            found.append((_OWN, start, stop))
    return tuple(found)


def _n_told(row: npt.NDArray[np.int64]) -> int:
    """Return how many pairs of classes a context tells apart, by their first characters."""
    _, counts = np.unique(row[:, 0], return_counts=True)
    return int(len(row) ** 2 - (counts**2).sum())


def _cover(signs: npt.NDArray[np.int64], number: int) -> list[int]:
    """Return few contexts that tell a class from each other one that any context tells it from."""
    own = signs[:, number, :]
    # A context tells two classes apart if no character of one is treated like one of the other.
    tells = ~(signs[:, :, :, None] == own[:, None, None, :]).any(axis=(2, 3))
    left = tells.any(axis=0)
    chosen: list[int] = []
    while left.any():
        best = int(np.argmax((tells & left).sum(axis=1)))
        chosen.append(best)
        left &= ~tells[best]
    return chosen
