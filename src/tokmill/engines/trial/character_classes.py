r"""Classes of characters that a tokenizer is likely to treat alike.

The classes are finer than those in patterns (`\p{L}`, `\s`): general category, combining class,
decomposition, case, Hangul, white space. Ranges and scripts in a tokenizer's own patterns divide
them further.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from tokmill.engines.characters import EVERY, CharacterSet
from tokmill.tokenizer.tokenizer_json import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CATEGORIES = re.compile(r"[LMNPSZC][a-z&]?|Any|Assigned|ASCII", re.IGNORECASE)
_PROPERTY = re.compile(r"\\[pP]\{\^?([\w&= ]+)\}|\[:\^?(\w+):\]")
_RANGE = re.compile(r"(\\u[0-9A-Fa-f]{4}|\\x\{[0-9A-Fa-f]+\}|[^\x00-\x7f])-(\\u\w{4}|\\x\{\w+\}|.)")
_ORDERS = (1, 7, 9, 10, 200, 216, 220, 221, 230, 231)
"""Bounds between combining classes; the most frequent one, 230, has the marks above letters."""


@cache
def character_classes(characters: CharacterSet) -> tuple[str, ...]:
    """Return characters, one string per class, in the order of their first characters."""
    found: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for code in characters.codes():
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Co"):
            found[category,].append(character)
        else:
            found[_traits(character, category)].append(character)
    return tuple(map("".join, found.values()))


def divided(classes: Iterable[str], sets: Sequence[CharacterSet]) -> list[str]:
    """Return classes divided by sets: all characters of a class belong to the same sets."""
    if not sets:
        return list(classes)
    members = [frozenset(one.codes()) for one in sets]
    found: list[str] = []
    for characters in classes:
        parts: dict[tuple[bool, ...], list[str]] = defaultdict(list)
        for character in characters:
            parts[tuple(ord(character) in one for one in members)].append(character)
        found += map("".join, parts.values())
    return found


def own_sets(patterns: Iterable[str]) -> list[CharacterSet]:
    r"""Return the sets in patterns that no class covers: ranges, and properties like `\p{Han}`."""
    found: dict[CharacterSet, None] = {}
    for pattern in patterns:
        for first, last in _RANGE.findall(pattern):
            bounds = _code(first), _code(last)
            if bounds[1] > 0x7F and bounds[0] <= bounds[1]:
                found[CharacterSet((bounds,))] = None
        for name in {a or b for a, b in _PROPERTY.findall(pattern)}:
            if not _CATEGORIES.fullmatch(name):
                found[_of_property(name)] = None
    return [one for one in found if one.ranges]


def _traits(character: str, category: str) -> tuple[object, ...]:
    combining = unicodedata.combining(character)
    decomposition = unicodedata.decomposition(character)
    folded = character.casefold()
    return (
        category,
        bisect_right(_ORDERS, combining),
        decomposition[:1] == "<" if decomposition else None,
        (folded.isascii() and folded != character, character.lower() != character),
        character.upper() != character,
        character in WHITE_SPACE or (character if character.isascii() else ""),
        _block(ord(character)),
    )


def _block(code: int) -> str:
    """Return a name for ideographs and Hangul, which are many and alike, else ''."""
    if 0x1100 <= code < 0x1200:
        return "L" if code < 0x1160 else "V" if code < 0x11A8 else "T"
    if 0xAC00 <= code < 0xD7A4:
        return "LV" if (code - 0xAC00) % 28 == 0 else "LVT"
    ideographs = 0x3400 <= code < 0xA000 or 0xF900 <= code < 0xFB00 or 0x20000 <= code < 0x40000
    return "ideograph" if ideographs else ""


def _code(written: str) -> int:
    return ord(written) if len(written) == 1 else int(written.strip("\\ux{}"), 16)


def _of_property(name: str) -> CharacterSet:
    """Return the characters of a property, as the reference library's own regex knows them."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    try:
        split = Split(Regex(rf"[^\p{{{name}}}]+"), "removed")
    except Exception:  # unknown to the library, so it cannot be in its pattern either
        return CharacterSet()
    runs = split.pre_tokenize_str("".join(map(chr, EVERY.codes())))
    return CharacterSet.of(ord(character) for run, _ in runs for character in run)
