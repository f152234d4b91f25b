"""Counts with their nouns: `1 file`, `1,234 files`."""

from __future__ import annotations

import re

_THINGS = re.compile(r"\b(?:repl(ies)|\w*[^\Ws](s))\b")


def plural(n: int, thing: str) -> str:
    """Return a number and a noun, with a plural s unless the number is 1."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def counted(n: int, things: str) -> str:
    """Return a number and a noun given in the plural: `1 cut sample`, `2 cut samples`.

    For 1, the first word that ends in s loses it.
    """
    if n != 1:
        return f"{n:,} {things}"
    thing = _THINGS.sub(lambda word: "reply" if word[1] else word[0][:-1], things, count=1)
    return f"1 {thing.replace(' that lose ', ' that loses ')}"
