"""Settings that name something of the records, and match nothing in the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.extensions import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokmill.settings.sft import SftSettings


def unmatched_in_chats(settings: SftSettings, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each key or role that settings name and no record has, at any depth."""
    words = Words(records)
    roles = [pair.partition("=")[0].strip() for pair in settings.role_names]
    lines = [
        words.line("--ignore-keys", key, words.keys)
        for key in settings.ignore_keys
        if key not in words.keys
    ]
    known = words.short_texts | words.keys  # a role may be a key, as in {"user": …, "agent": …}
    lines += [words.line("--role-names", role, known) for role in roles if role not in known]
    return lines


_LONGEST = 40
"""Characters; a longer text names no role."""


class Words:
    """The keys of records, and their short texts, at any depth."""

    def __init__(self, records: Iterable[Any]) -> None:
        self.keys: set[str] = set()
        self.short_texts: set[str] = set()
        pending: list[Any] = list(records)
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                self.keys.update(value)
                pending += value.values()
            elif isinstance(value, list):
                pending += value
            elif isinstance(value, str) and len(value) <= _LONGEST:
                self.short_texts.add(value)

    def line(self, option: str, name: str, known: set[str]) -> str:
        """Return the line about a name that no record has."""
        near = nearest(name, sorted(known))
        return f"{option}: no {name!r} in the first records{near}"
