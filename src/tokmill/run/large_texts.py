"""Plain-text files that become one document each: told, as a whole book seldom is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.words.plural import plural
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import SourceFile

LARGE_TEXT_BYTES = 1 << 20
"""From this size on, one document is some 250,000 tokens: longer than any model reads."""

_SPLIT = "--text-separator '\\n\\n' splits at empty lines"


def large_text_notes(files: Sequence[SourceFile], settings: InputSettings) -> list[str]:
    """Return a line if text files of `LARGE_TEXT_BYTES` or more become one document each."""
    if settings.text_separator:
        return []
    large = [f for f in files if f.format == "text" and f.n_bytes >= LARGE_TEXT_BYTES]
    if not large:
        return []
    first = f"{large[0].path}, {size(large[0].n_bytes)},"
    if len(large) == 1:
        return [f"{first} becomes one document: {_SPLIT}"]
    others = plural(len(large) - 1, "other large text file")
    return [f"{first} and {others} become one document each: {_SPLIT}"]
