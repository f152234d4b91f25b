"""Settings that name something of the data and match nothing: in the first records, in all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.extensions import nearest
from tokmill.recipes.named import Named, named_by
from tokmill.settings.names import flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tokmill.dataset.counts import Counts
    from tokmill.recipes.spec import Part, RunSpec
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


COMPARED_BEFORE = frozenset(("input.keep", "sft.ignore_keys", "sft.role_names"))
"""Settings that the first records were compared with, before anything was encoded."""

_NOT_FOUND = {
    "input.keep": "no record of {where} has a value in {name!r}",
    "input.text_separator": "{name!r} divides no text file of {where}",
    "render.fields": "no record of {where} has a value in {name!r}",
    "render.template": "no record of {where} has a value in {name!r}",
    "render.strip_end": "no text of {where} ends with {name!r}",
    "sft.fields": "no record of {where} has {name!r}",
    "sft.ignore_keys": "no record of {where} has {name!r}",
    "sft.role_names": "no record of {where} has {name!r}",
    "sft.weigh": "no reply of {where} matches {name!r}",
}


def unmatched(
    spec: RunSpec, sources: Sequence[tuple[Part, int]], totals: Counts, where: str
) -> Iterator[tuple[Named, str]]:
    """Yield what settings name and none of some records has, each with a line about it.

    `totals`: the counts of the records; `sources`: the parts, each with its number of records;
    `where`: what the records are, such as `this run`.
    """
    named: list[Named] = []
    for reading in spec.readings:
        own = replace(spec.config, input=reading.input, render=reading.render, sft=reading.sft)
        named += named_by(own)
    missing = [one for one in dict.fromkeys(named) if not totals.named[one.label]]
    for one in (*missing, *_separators(spec, sources)):
        told = _NOT_FOUND[one.setting].format(name=one.name, where=where)
        yield one, f"{flag(*one.setting.split('.'))}: {told}"


def _separators(spec: RunSpec, sources: Sequence[tuple[Part, int]]) -> Iterator[Named]:
    """Yield the separators of texts that divide no file: each text file has one record at most."""
    n_files, n_records = Counter[str](), Counter[str]()
    for part, records in sources:
        separator = spec.readings[part.reading].input.text_separator
        firsts = [piece for piece in part.slices if piece.start == 0]
        if separator and all(piece.file.format == "text" for piece in part.slices):
            n_files[separator] += len(firsts)
            n_records[separator] += records
    for separator, n in n_files.items():
        if n_records[separator] <= n:
            yield Named("input.text_separator", separator)


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
