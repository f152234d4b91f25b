"""The plan: a run's parts and engine, made from inputs and output-affecting settings alone.

`plan.json` fixes both for workers and for a run that continues; another choice is another dataset.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from tokmill import __version__
from tokmill.dataset.canonical import canonical_json, json_chunks
from tokmill.dataset.layout import PLAN, SHARD_BYTES, token_dtype
from tokmill.dataset.plan_file import PLAN_FORMAT, load_plan, plan_fingerprint
from tokmill.engines.choice import EngineChoice
from tokmill.errors import StateError
from tokmill.recipes.spec import Part, RunSpec
from tokmill.settings.names import flag
from tokmill.settings.plain import plain, unsaid_settings
from tokmill.settings.schema import CHECKSUMS, SHA256, Config
from tokmill.sources.files import Slice, SourceFile, cut
from tokmill.storage import write_chunks
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tokmill.tokenizer.tokenizer import Tokenizer


MAX_SLICES = 16_384
"""A part of more would keep their counts in memory, and a million tiny files on one worker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before its first token: what workers are told, and the parts in order."""

    spec: RunSpec
    parts: tuple[Part, ...]

    def head(self) -> dict[str, Any]:
        """Give all that `plan.json` says but files and parts."""
        return {
            **self.spec.identity(),
            "tokmill_version": __version__,
            "checksum": self.spec.config.output.checksum,
            "engine": self.spec.engine.as_json(),
        }

    def files(self) -> Iterator[list[Any]]:
        """Give every input file once, as `plan.json` names it, in the order of its first slice."""
        for file in self._numbered():
            yield [
                file.path, file.format, file.compression, file.n_bytes, file.mtime_ns, file.stamp
            ]  # fmt: skip

    def rows_of_parts(self) -> Iterator[list[list[int]]]:
        """Give every part's slices, as `plan.json` names them: a file by its number in `files`."""
        numbers = self._numbered()
        for part in self.parts:
            yield [[numbers[s.file], s.start, s.stop, s.n_bytes] for s in part.slices]

    def _numbered(self) -> dict[SourceFile, int]:
        numbers: dict[SourceFile, int] = {}
        for part in self.parts:
            for piece in part.slices:
                numbers.setdefault(piece.file, len(numbers))
        return numbers

    def chunks(self) -> Iterator[bytes]:
        """Return the bytes of `plan.json`, about 1 MiB at a time."""
        return json_chunks({**self._body(), "fingerprint": plan_fingerprint(self._body())})

    def _body(self) -> dict[str, Any]:
        """Return what the fingerprint is over; files and parts can be gone through once."""
        return {
            **self.head(),
            "format": PLAN_FORMAT,
            "files": self.files(),
            "parts": self.rows_of_parts(),
        }

    def as_bytes(self) -> bytes:
        """Give the plan as the bytes of `plan.json`."""
        return b"".join(self.chunks())


def resolve(config: Config, tokenizer: Tokenizer, renderer: str) -> Config:
    """Give the settings without `auto` and 0 where a byte depends on them.

    Raises:
        TokenizerError: dtype uint16 is asked for and cannot hold the tokenizer's ids.
    """
    dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
    output = replace(
        config.output,
        dtype=dtype.name,
        shard_tokens=config.output.shard_tokens or SHARD_BYTES // dtype.itemsize,
    )
    return replace(config, output=output, render=replace(config.render, renderer=renderer))


def make_parts(files: Iterable[SourceFile], part_bytes: int) -> tuple[Part, ...]:
    """Gather slices into parts of about `part_bytes` and at most `MAX_SLICES`, in order.

    A file larger than that is cut where its format allows; smaller files share a part.
    """
    parts: list[Part] = []
    gathered: list[Slice] = []
    n_bytes = 0
    for file in files:
        for piece in cut(file, part_bytes):
            is_full = n_bytes + piece.n_bytes > part_bytes or len(gathered) == MAX_SLICES
            if gathered and is_full:
                parts.append(Part(len(parts), tuple(gathered)))
                gathered, n_bytes = [], 0
            gathered.append(piece)
            n_bytes += piece.n_bytes
    if gathered:
        parts.append(Part(len(parts), tuple(gathered)))
    return tuple(parts)


def inputs_sha256(files: Iterable[SourceFile]) -> str:
    """Give the sha256 over the paths, sizes and times of files, in order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(canonical_json([file.path, file.n_bytes, file.mtime_ns]))
    return digest.hexdigest()


def read_plan(directory: Path) -> dict[str, Any] | None:
    """Read the plan of an output directory; None if it holds none.

    Raises:
        StateError: it is damaged, not tokmill's, or of a newer format.
    """
    path = directory / PLAN
    if not os.path.lexists(path):
        return None
    return load_plan(path)


def planned_hub_commits(data: dict[str, Any]) -> dict[str, str]:
    """Return the commits of the datasets of the Hub that a plan names, by path."""
    rows = (row for row in data.get("files", ()) if isinstance(row, list) and len(row) == 6)
    return {str(row[0]): str(row[5]) for row in rows if row[1] == "hub"}


def planned_engine(data: dict[str, Any], asked: str) -> EngineChoice:
    """Give the engine that an earlier attempt fixed.

    Raises:
        StateError: another one is asked for, or the plan is damaged.
    """
    try:
        engine = EngineChoice.from_json(data["engine"])
    except TypeError as error:
        raise StateError(f"{PLAN}: damaged ({error}): run with --overwrite") from None
    if asked not in ("auto", engine.name):
        raise StateError(
            f"the run in this directory began with engine {engine.name}, asked for is {asked}: "
            "leave --engine out to continue, or run with --overwrite to start anew"
        )
    return engine


def planned_checksum(data: dict[str, Any]) -> str:
    """Return the algorithm of the files' sums that an earlier attempt fixed.

    Raises:
        StateError: the plan is damaged, or names an algorithm that this version does not know.
    """
    algorithm = data.get("checksum", SHA256)  # what was used before plans named it
    if algorithm not in CHECKSUMS:
        raise StateError(
            f"{PLAN}: its files have sums by {algorithm!r}, this tokmill knows "
            f"{', '.join(CHECKSUMS)}: install a newer tokmill, or run with --overwrite"
        )
    return str(algorithm)


def write_plan(directory: Path, plan: Plan) -> None:
    """Commit the plan of a new run."""
    write_chunks(directory / PLAN, plan.chunks())


_HEAD = {
    "format_version": "the format's version",
    "tokenizer_sha256": "the tokenizer's sha256",
    "eos_id": "the id of eos",
    "bos_id": "the id of bos",
    "template_sha256": "the chat template's sha256",
}
"""What else decides the bytes, by its key in a plan."""


def check_same(found: dict[str, Any], plan: Plan, directory: Path) -> None:
    """Compare the plan in a directory with the one that a command asks for.

    Raises:
        StateError: they differ; names what changed.
    """
    asked = json.loads(json.dumps(plan.head(), sort_keys=True))
    changes = list(_changed_settings(found.get("settings", {}), asked["settings"]))
    changes += [
        f"{words} was {_short(found.get(key))}, is {_short(asked.get(key))}"
        for key, words in _HEAD.items()
        if found.get(key) != asked.get(key)
    ]
    # Row by row: the rows of a million files are not held twice.
    if not _are_rows(found["files"], plan.files()):
        changes += _changed_files(found["files"], list(plan.files()))
    elif not changes and not _are_rows(found["parts"], plan.rows_of_parts()):
        changes.append("the parts differ")
    if changes:
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        raise StateError(
            f"{directory}: holds a run of other inputs or settings: {'; '.join(changes[:3])}{more}"
            ": choose another --output, or run with --overwrite to start anew"
        )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}…"


_MOST_DIGITS = 12
"""Of a hash, so many tell two tokenizers apart."""


def _are_rows(found: Sequence[Any], asked: Iterable[Any]) -> bool:
    return all(row == other for row, other in zip_longest(found, asked))


def _changed_settings(found: dict[str, Any], asked: dict[str, Any]) -> Iterable[str]:
    if ("sft" in found) != ("sft" in asked):
        made, wanted = ("sft", "pretrain") if "sft" in found else ("pretrain", "sft")
        yield f"it was made by tokmill {made}, this is tokmill {wanted}"
        return
    unsaid = unsaid_settings()
    for section, values in asked.items():
        before = {**unsaid[section], **found.get(section, {})}
        for key, value in {**unsaid[section], **values}.items():
            if before.get(key) != value:
                words = f"{flag(section, key)} ({section}.{key})"
                yield f"{words} was {before.get(key)!r}, is {value!r}"


def _changed_files(found: Sequence[Sequence[Any]], asked: Sequence[Sequence[Any]]) -> list[str]:
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


def resolved_settings(plan: Plan) -> dict[str, Any]:
    """Give every setting of a run as plain values, for the manifest."""
    return plain(plan.spec.config)
