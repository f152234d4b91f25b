"""Recognise and read `plan.json`; its run owns certain names in the output directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, NamedTuple

from tokmill.dataset.checksum import FileEntry, sha256_without
from tokmill.dataset.layout import (
    CUT_INDEX,
    DATASET_FILE,
    FORMAT_VERSION,
    KEPT_TOKENIZER,
    MANIFEST,
    MIX_ENGINE,
    PLAN,
    PLAN_BEGINNING,
    check_format_version,
)
from tokmill.dataset.manifest import EngineEntry, Mix, ReadingEntry, Rules
from tokmill.dataset.typed_json import (
    Count,
    Id,
    ObjectReader,
    Text,
    WrongValue,
    field_kinds,
    is_text,
    shown,
)
from tokmill.errors import StateError
from tokmill.extensions import Extension
from tokmill.settings.schema import CHECKSUMS

PLAN_FORMAT = "tokmill plan"


@dataclass(frozen=True, slots=True)
class OwnedNames:
    """The names that a run can give to files of its directory.

    `n_parts` and `is_sft` are None if the plan is damaged: then every name of a dataset is owned.
    Of a mix, `is_sft` is None, too.
    """

    n_parts: int | None = None
    is_sft: bool | None = None

    @classmethod
    def of_plan(cls, content: bytes, where: str) -> OwnedNames:
        """Return the names that a plan with this content owns; raises as `parse_plan` does."""
        plan, problem, is_tokmills = _parsed(content)
        if not is_tokmills:
            raise _foreign(where, problem)
        n_linked = plan.get("linked_parts", 0)
        if problem or not isinstance(plan.get("parts"), list) or not isinstance(n_linked, int):
            return cls()
        check_format_version(plan.get("format_version", FORMAT_VERSION), where)
        n_parts = max(len(plan["parts"]), n_linked)
        return cls(n_parts, None if "mix" in plan else "template_sha256" in plan)

    def has(self, name: str) -> bool:
        """Return whether `name`, relative to the directory, can belong to this run."""
        if name in (PLAN, MANIFEST):
            return True
        parts = DATASET_FILE.fullmatch(name)
        if parts is None:
            return False
        is_cut = CUT_INDEX.fullmatch(name) is not None
        is_of_sft = (name.startswith("pack") and not is_cut) or name.endswith((".mask", ".weight"))
        if (is_of_sft and self.is_sft is False) or (is_cut and self.is_sft):
            return False
        part = parts["shard"] or parts["record"] or parts["rejects"] or parts["stopped"]
        return part is None or self.n_parts is None or int(part) < self.n_parts


class TokenRulesEntry(NamedTuple):
    """How the files of an import are read; `val`: those of the val split."""

    trainer: Text
    adds_eos: bool
    dtype: Text
    val: tuple[Text, ...]


class TaskReading(NamedTuple):
    """How a worker reads a group of files; see `recipes.spec.ReadingSettings`."""

    source: Text
    files: Text
    settings: Mapping[str, Any]
    is_named: bool
    labels: tuple[Text, ...]


class Task(NamedTuple):
    """What the processes of a run need besides; it may change with every version."""

    config: Mapping[str, Mapping[str, Any]]
    template: Text
    readings: tuple[TaskReading, ...]
    tokens: TokenRulesEntry | None = None
    rows: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PlanFile:
    """What `plan.json` says; docs/format.md explains its keys.

    `plain`: all of it as plain values. `files` and `parts` are its rows, which may be millions, so
    they are checked and stay as they are: of a file path, kind, compression, bytes, time and stamp,
    and the number of its reading where there are several; of a slice the number of its file, first
    byte, end or -1, and bytes.
    """

    plain: Mapping[str, Any] = field(repr=False)
    files: Sequence[Sequence[Any]] = field(repr=False)
    parts: Sequence[Sequence[Sequence[int]]] = field(repr=False)
    format_version: Count
    tokmill_version: Text
    settings: Mapping[str, Mapping[str, Any]]
    tokenizer_identity: Text
    eos_id: Id
    bos_id: Id | None
    checksum: Annotated[str, frozenset(CHECKSUMS)]
    engine: EngineEntry
    tokenizer: FileEntry | None = None
    rules: Rules | None = None
    parser: Mapping[str, Text] | None = None
    extensions: tuple[Extension, ...] = ()
    readings: tuple[ReadingEntry, ...] = ()
    template_sha256: Text | None = None
    template_tokens: Mapping[str, Text] | None = None
    tokens: TokenRulesEntry | None = None
    task: Task | None = None
    mix: Mix | None = None
    linked_parts: Count = 0

    @property
    def kept(self) -> FileEntry:
        """Return the file of the tokenizer; only the plan of a mix may lack it: `WrongValue`."""
        if self.tokenizer is None:
            raise WrongValue("missing", "tokenizer")
        return self.tokenizer

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> PlanFile:
        """Return the plan of plain values; raises `WrongValue` for the first that is wrong."""
        values = _plan_reader()(data)
        kept, is_mix = values.get("tokenizer"), "mix" in values
        if is_mix != (values["engine"].name == MIX_ENGINE):
            raise WrongValue(f"expected the engine {MIX_ENGINE} with it, and no other", "mix")
        if kept is None and not is_mix:  # an input of a mix may have lost its own
            raise WrongValue("missing", "tokenizer")
        if kept is not None and kept.name != KEPT_TOKENIZER:
            raise WrongValue(
                f"expected {KEPT_TOKENIZER}, found {shown(kept.name)}", "tokenizer.name"
            )
        task = values.get("task")
        n_readings = len(task.readings) if task else 0
        _check_rows(data, max(1, n_readings))
        return cls(plain=data, files=data["files"], parts=data["parts"], **values)


@cache
def _plan_reader() -> ObjectReader:
    """Return what reads all of a plan but the rows of files and parts."""
    kinds, optional = field_kinds(PlanFile)
    own = {name: kind for name, kind in kinds.items() if name not in ("plain", "files", "parts")}
    return ObjectReader(own, optional)


_FILE_KINDS = [str, str, str, int, int, str]
"""Of an input file: path, kind, compression, bytes, time and stamp."""

_SLICE_KINDS = [int] * 4


def _check_rows(data: Mapping[str, Any], n_readings: int) -> None:
    """Check the rows of files and parts; raises `WrongValue`."""
    for name in ("files", "parts"):
        if not isinstance(data.get(name), list):
            raise WrongValue("expected a list", name)
    for i, row in enumerate(data["files"]):
        if not _is_file(row, n_readings):
            raise WrongValue("expected an input file", f"files[{i}]")
    for i, slices in enumerate(data["parts"]):
        if not _are_slices(slices, len(data["files"])):
            raise WrongValue("expected slices", f"parts[{i}]")


def _is_file(row: Any, n_readings: int) -> bool:
    """Return whether a row of a plan can be that of an input file."""
    kinds = [type(value) for value in row] if isinstance(row, list) else []
    has_reading = kinds == [*_FILE_KINDS, int]
    if kinds != _FILE_KINDS and not has_reading:
        return False
    if has_reading and not 0 <= row[-1] < n_readings:
        return False
    texts = (row[0], row[1], row[2], row[5])
    return min(row[3], row[4]) >= 0 and all(map(is_text, texts))


def _are_slices(rows: Any, n_files: int) -> bool:
    """Return whether rows of a plan can be the slices of a part."""
    if not isinstance(rows, list) or not rows:
        return False
    for row in rows:
        kinds = [type(value) for value in row] if isinstance(row, list) else []
        if kinds != _SLICE_KINDS or not 0 <= row[0] < n_files or min(row[1:]) < -1:
            return False
    return True


def plan_fingerprint(data: Mapping[str, Any]) -> str:
    """Return the sha256 of a plan without its fingerprint."""
    return sha256_without(data, "fingerprint")


def parse_plan(content: bytes, where: str) -> PlanFile:
    """Return the plan with this content; `where` is for messages.

    Raises:
        StateError: it is another program's file, damaged, or of a newer format.
    """
    plan, problem, is_tokmills = _parsed(content)
    if is_tokmills:
        check_format_version(plan.get("format_version", FORMAT_VERSION), where)
    if not is_tokmills:
        raise _foreign(where, problem)
    try:
        if problem:
            raise WrongValue(problem)
        return PlanFile.of(plan)
    except (WrongValue, RecursionError) as error:
        told = str(error) or "nested too deeply"
        raise StateError(
            f"{where}: damaged ({told}): run with --overwrite to start again"
        ) from None


def _foreign(where: str, problem: str) -> StateError:
    return StateError(
        f"{where}: not written by tokmill ({problem}): nothing was changed; choose another --output"
    )


def _parsed(content: bytes) -> tuple[dict[str, Any], str, bool]:
    """Return a plan, why it is no complete one or '', and whether tokmill has written it."""
    begins = content.startswith(PLAN_BEGINNING)
    try:
        plan = json.loads(content)
        if not isinstance(plan, dict):
            return {}, "expected an object", begins
        is_intact = plan.get("fingerprint") == plan_fingerprint(plan)
    except (ValueError, RecursionError) as error:
        return {}, str(error), begins
    if plan.get("format") != PLAN_FORMAT:
        return plan, f'"format" is not "{PLAN_FORMAT}"', begins
    return plan, "" if is_intact else "its fingerprint does not match", True
