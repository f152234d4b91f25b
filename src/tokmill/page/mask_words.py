"""What a dataset's masks train and what was noticed, in words that need no glossary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.words.plural import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS = {
    "other": "all else",
    "header": "headers of turns",
    "content": "text",
    "reasoning": "reasoning",
    "tool_call": "tool calls",
    "eot": "end of turn",
    "suffix": "what the template writes behind that",
    "end": "the eos appended",
    "eot_outside": "end of turn also where it stands behind the generation tag",
    "suffix_outside": "what is behind that",
}
"""By the names that the manifest has for parts of turns; in the order of the manifest."""

_COUNTERS = {
    "samples whose joint ids differ": "samples with other tokens at a boundary of the mask than "
    "the same text encoded in one piece",
    "straddling tokens": "tokens with trained and untrained bytes",
    "cut samples": "samples cut to max_tokens",
}


def trained_parts(mask: Mapping[str, Any]) -> str:
    """Return which parts of a trained turn are trained, by a manifest's `mask`."""
    names = mask.get("trained", ())
    return "trains " + ", ".join(_KINDS.get(name, name) for name in names) if names else ""


def noticed(n: int, counter: str) -> str:
    """Return a count of what a run noticed, in words."""
    return counted(n, _COUNTERS.get(counter, counter))
