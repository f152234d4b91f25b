"""A counted thing, as messages and summaries write it: `1 file`, `1,234 files`."""

from __future__ import annotations


def plural(n: int, thing: str) -> str:
    """Return a number and its thing, with an s behind it unless there is one of them."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"
