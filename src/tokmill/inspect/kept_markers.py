"""A line about strings of control tokens that stayed text, with the option that fits."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

from tokmill.tokenizer.markers import Marker, kept_markers
from tokmill.words import plural, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.dataset.manifest import Manifest

_MOST_NAMED = 3


def markers_line(counters: Mapping[str, int], documents: int, *, can_separate: bool) -> str:
    """Return how many strings of control tokens stayed text, and what to do; '' if none.

    `documents`: of which the counters are. `can_separate`: some files are text that no separator
    divides.
    """
    counted = kept_markers(counters)
    if not counted:
        return ""
    by_string: dict[str, int] = {}
    for marker, n in counted.items():
        by_string[marker.string] = by_string.get(marker.string, 0) + n
    named = sorted(by_string.items(), key=lambda pair: (-pair[1], pair[0]))
    listed = [f"{n:,} {printable(string)}" for string, n in named[:_MOST_NAMED]]
    if len(named) > _MOST_NAMED:
        listed.append(plural(len(named) - _MOST_NAMED, "other string"))
    most = next(iter(counted))
    at_end = counted.get(most._replace(is_at_end=True), 0)
    advice = _advice(most, is_at_ends=2 * at_end >= documents, can_separate=can_separate)
    return f"{', '.join(listed)} in texts, kept as text; {advice}"


def _advice(marker: Marker, *, is_at_ends: bool, can_separate: bool) -> str:
    """Return what to do about the most frequent string."""
    string = shlex.quote(marker.string)
    if can_separate:
        return f"--text-separator {string} makes a document of each piece"
    if is_at_ends:
        return f"--strip-end {string} leaves it out where a text ends with it"
    if marker.is_own:
        return "--control-tokens-in-text parse makes control tokens of them, reject rejects them"
    return "this tokenizer has no such token"


def markers_row(manifest: Manifest) -> str:
    """Return that line for a finished dataset of pretraining; '' if none."""
    totals = manifest.totals
    counters = totals.counters
    if not kept_markers(counters):
        return ""
    return markers_line(counters, totals.documents, can_separate=_can_separate(manifest))


def _can_separate(manifest: Manifest) -> bool:
    """Return whether a finished dataset was made of text files without a separator."""
    settings = manifest.config.input
    if settings.text_separator:
        return False
    if settings.format != "auto":
        return settings.format == "text"
    from tokmill.sources.formats import format_named  # takes 30 ms, with Arrow

    suffixes = {suffix for file in manifest.input_files for suffix in PurePath(file.path).suffixes}
    return not suffixes.isdisjoint(format_named("text").suffixes)
