"""Compare the plan in a directory with that of a command: inputs and settings must match."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from tokmill.errors import StateError
from tokmill.settings.names import flag
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tokmill.run.plan import Plan

    Rows = Sequence[Sequence[Any]]

_HEAD = {
    "format_version": "the format's version",
    "tokenizer_sha256": "the tokenizer's sha256",
    "eos_id": "the id of eos",
    "bos_id": "the id of bos",
    "template_sha256": "the chat template's sha256",
}
"""Keys of a plan besides its settings that decide bytes, and their names in messages."""

_MOST_CHARACTERS = 12
"""Of a hash: enough to tell two tokenizers apart."""


def check_same(found: dict[str, Any], plan: Plan, directory: Path | str) -> None:
    """Check that the plan in a directory is the plan of this command.

    Raises:
        StateError: they differ; names the first three differences.
    """
    asked = json.loads(json.dumps(plan.head(), sort_keys=True))
    changes = list(_changed_settings(found.get("settings", {}), asked["settings"]))
    changes += [
        f"{words} was {_short(found.get(key))}, is {_short(asked.get(key))}"
        for key, words in _HEAD.items()
        if found.get(key) != asked.get(key)
    ]
    changes += _changed_readings(found.get("readings", []), asked.get("readings", []))
    before = {_key(one): one for one in found.get("extensions", ())}
    changes += [
        _changed_extension(before.get(_key(one)), one)
        for one in asked.get("extensions", ())
        if before.get(_key(one)) != one
    ]
    # Row by row, so that the rows of a million files are not in memory twice.
    if not _are_equal(found["files"], plan.files()):
        changes += _changed_files(found["files"], list(plan.files()))
    elif not changes and not _are_equal(found["parts"], plan.rows_of_parts()):
        changes.append("the parts differ")
    if changes:
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        raise StateError(
            f"{directory}: holds a run of other inputs or settings: {'; '.join(changes[:3])}{more}"
            ": choose another --output, or run with --overwrite to start again"
        )


def _changed_readings(before: Sequence[Any], after: Sequence[Any]) -> Iterator[str]:
    """Yield the settings of groups of files that differ."""
    if len(before) != len(after):
        yield f"files are read in {len(after) or 1} ways instead of {len(before) or 1}"
        return
    for was, now in zip(before, after, strict=True):
        old = {"source": was["source"], **was["settings"]}
        for key, value in {"source": now["source"], **now["settings"]}.items():
            if old.get(key) != value:
                yield f"{key} of {now['files']} was {old.get(key)!r}, is {value!r}"


def _key(extension: dict[str, str]) -> tuple[str, str]:
    return extension["kind"], extension["name"]


def _changed_extension(before: dict[str, str] | None, now: dict[str, str]) -> str:
    """Return how something from outside tokmill differs; other names are other settings."""
    words = f"{now['kind']} {now['name']}"
    if before is None:
        return f"{words} is new"
    for key in ("distribution", "version", "target"):
        if before.get(key) != now[key]:
            return f"{key} of {words} was {before.get(key) or 'none'}, is {now[key] or 'none'}"
    return f"source of {words} was {_short(before['sha256'])}, is {_short(now['sha256'])}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _are_equal(found: Sequence[Any], asked: Iterable[Any]) -> bool:
    return all(row == other for row, other in zip_longest(found, asked))


def _changed_settings(found: dict[str, Any], asked: dict[str, Any]) -> Iterator[str]:
    if ("sft" in found) != ("sft" in asked):
        made, wanted = ("sft", "pretrain") if "sft" in found else ("pretrain", "sft")
        yield f"it was made by tokmill {made}, this is tokmill {wanted}"
        return
    for section, values in asked.items():
        before = found.get(section, {})
        for key, value in values.items():
            if before.get(key) != value:
                words = f"{flag(section, key)} ({section}.{key})"
                yield f"{words} was {before.get(key)!r}, is {value!r}"


def _changed_files(found: Rows, asked: Rows) -> list[str]:
    before = {entry[0]: entry[1:] for entry in found}
    after = {entry[0]: entry[1:] for entry in asked}
    changes = [f"{path} is gone" for path in before if path not in after]
    changes += [f"{path} is new" for path in after if path not in before]
    changes += [
        f"{path} has changed ({_file_change(before[path], after[path])})"
        for path in after
        if path in before and before[path] != after[path]
    ]
    if not changes and [entry[0] for entry in found] != [entry[0] for entry in asked]:
        changes.append("the input files come in another order")
    return changes


def _file_change(before: Sequence[Any], after: Sequence[Any]) -> str:
    if before[2] != after[2]:
        return f"{plural(before[2], 'byte')} before, {after[2]:,} now"
    if before[3] != after[3]:
        return "it was modified"
    return "its kind or revision"
