"""Values as text that a person reads: counts, sizes and durations; text made safe for a terminal.

Files are measured in B, kB, MB, GB, TB (powers of 1,000), memory in MiB and GiB (of 1,024). File
names, messages and records may hold any character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_THINGS = re.compile(r"\b(?:repl(ies)|\w*[^\Ws](s))\b")


def plural(n: int, thing: str) -> str:
    """Return a number and a noun, with a plural s unless the number is 1."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def epochs(n: float) -> str:
    """Return passes over a dataset: `1 epoch`, `0.25 epochs`."""
    return f"{n:.4g} {'epoch' if n == 1 else 'epochs'}"


def counted(n: int, things: str) -> str:
    """Return a number and a noun given in the plural: `1 cut sample`, `2 cut samples`.

    For 1, the first word that ends in s loses it.
    """
    if n != 1:
        return f"{n:,} {things}"
    thing = _THINGS.sub(lambda word: "reply" if word[1] else word[0][:-1], things, count=1)
    return f"1 {thing.replace(' that lose ', ' that loses ')}"


_ROUNDS_TO_1000 = 999.5
"""From this value on, three figures would print as `1e+03`."""

_MOST_HOURS = 48
"""From so many on, a duration is written in days."""

ROUNDED_FROM = 1e7
"""From this value on, a count is written as `10 million`."""


def size(n_bytes: float) -> str:
    """Return a size such as `1.39 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < _ROUNDS_TO_1000:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{_three_figures(n_bytes)} TB"


def memory(n_bytes: float) -> str:
    """Return an amount of memory such as `23.6 GiB`."""
    divisor, unit, digits = scale(n_bytes, binary=True)
    return f"{n_bytes / divisor:,.{digits}f} {unit}"


_SCALES = {
    True: (1024.0, 1024.0**2, (("MiB", 1), ("GiB", 2))),
    False: (1000.0, 1.0, (("B", 0), ("kB", 1), ("MB", 1), ("GB", 2), ("TB", 2))),
}


def scale(n_bytes: float, *, binary: bool) -> tuple[float, str, int]:
    """Return divisor, unit and decimals for a column of amounts whose largest is `n_bytes`."""
    step, divisor, units = _SCALES[binary]
    for unit, digits in units[:-1]:
        if n_bytes / divisor < step:
            return divisor, unit, digits
        divisor *= step
    return divisor, *units[-1]


def count(n: float) -> str:
    """Return a count such as `12,345` or `1.39 billion`."""
    if n < ROUNDED_FROM:
        return f"{n:,.0f}"
    for scale, name in ((1e6, "million"), (1e9, "billion")):
        if n / scale < _ROUNDS_TO_1000:
            return f"{n / scale:.3g} {name}"
    return f"{_three_figures(n / 1e12)} trillion"


def amount(n: float, thing: str) -> str:
    """Return a count and a noun: `1 token`, `12,345 tokens`, `1.39 billion tokens`."""
    return f"{count(n)} {thing}{'' if n == 1 else 's'}"


def _three_figures(n: float) -> str:
    return f"{n:.3g}" if n < _ROUNDS_TO_1000 else f"{n:,.0f}"


def seconds(s: float) -> str:
    """Return a duration such as `1.3 s`, `2 h 05 min` or `3 days 22 h`."""
    if s < 60:
        return f"{s:.1f} s"
    minutes = round(s / 60)
    if minutes < 60:
        return f"{int(s // 60)} min {int(s % 60):02d} s"
    if minutes < _MOST_HOURS * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(s / 3600)
    return f"{hours // 24} days {hours % 24:02d} h"


def in_utc(moment: datetime) -> str:
    """Return a moment such as `2026-11-29 11:07:05 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def printable(text: str) -> str:
    """Return text as one line; characters that affect a terminal are written as their numbers.

    These are control characters (escape sequences, line breaks), format characters (which reverse
    or hide text), halves of surrogate pairs, and unassigned characters.
    """
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return text of several lines, each made `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def json_text(value: Any) -> str:
    """Return a value as one line of JSON; unprintable characters are JSON escapes."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    """Return the escape of a character; JSON itself would leave U+007F as it is."""
    escaped = json.dumps(character)[1:-1]
    return f"\\u{ord(character):04x}" if escaped == character else escaped


def _is_shown(c: str) -> bool:
    return c.isprintable() or unicodedata.category(c) == "Zs"  # spaces, such as U+3000


def rows_text(rows: Sequence[tuple[str, str]]) -> str:
    """Return (label, text) rows as text: the labels in a column, one line for each line of text."""
    width = max((len(label) for label, _ in rows), default=0)
    lines: list[str] = []
    for label, text in rows:
        first, *others = text.split("\n")
        lines.append(f"{label:<{width}}  {printable(first)}")
        lines += [f"{'':<{width}}  {printable(other)}" for other in others]
    return "\n".join(line.rstrip() for line in lines)


def rows_html(rows: Sequence[tuple[str, str]]) -> str:
    """Return (label, text) rows as a table for a notebook; no text can be markup."""
    import html

    style = "text-align:left;vertical-align:top;white-space:pre-wrap"
    cells = [
        f'<tr><th style="{style}">{html.escape(label)}</th>'
        f'<td style="{style}">{html.escape(printable_lines(text))}</td></tr>'
        for label, text in rows
    ]
    return f"<table>{''.join(cells)}</table>"
