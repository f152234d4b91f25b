"""Recognise and read `plan.json`; its run owns certain names in the output directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, sha256_without
from tokmill.dataset.layout import (
    CUT_INDEX,
    DATASET_FILE,
    FORMAT_VERSION,
    KEPT_TOKENIZER,
    MANIFEST,
    MIX_ENGINE,
    PLAN,
    check_format_version,
)
from tokmill.dataset.manifest_shape import ENGINE, EXTENSION, FILE, MIX, READING, RULES
from tokmill.dataset.shapes import ANY, COUNT, FLAG, ID, TEXT, is_text, shape_problem_of
from tokmill.errors import StateError
from tokmill.settings.schema import CHECKSUMS

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAN_FORMAT = "tokmill plan"

PLAN_BEGINNING = b'{\n"bos_id":'
"""The first bytes of every plan: they tell a damaged plan from a file of another program."""


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


_TOKEN_RULES = {"trainer": TEXT, "adds_eos": FLAG, "dtype": TEXT, "val": [TEXT]}

_SHAPE = {
    "format_version": COUNT,
    "tokmill_version": TEXT,
    "rules?": RULES,
    "settings": {ANY: {}},
    "tokenizer_identity": TEXT,
    "eos_id": ID,
    "bos_id": (ID, None),
    "checksum": set(CHECKSUMS),
    "engine": ENGINE,
    "parser?": {"name": TEXT, "version": TEXT},
    "extensions?": [EXTENSION],
    "readings?": [READING],
    "template_sha256?": TEXT,
    "template_tokens?": {ANY: TEXT},
    "tokens?": _TOKEN_RULES,
    "mix?": MIX,
    "linked_parts?": COUNT,
    "tokenizer?": {**FILE, "name": {KEPT_TOKENIZER}},
    "task?": {
        "config": {ANY: {}},
        "template": TEXT,
        "readings": [
            {"source": TEXT, "files": TEXT, "settings": {}, "is_named": FLAG, "labels": [TEXT]}
        ],
        "tokens?": _TOKEN_RULES,
    },
}
"""Of all but the rows of files and parts, which may be millions. `tokenizer`: its file."""

_FILE_KINDS = [str, str, str, int, int, str]
"""Of an input file: path, kind, compression, bytes, time and stamp; the number of its reading may
follow."""

_SLICE_KINDS = [int] * 4
"""Of a slice: number of its file, first byte, end or -1, bytes."""


def _values_problem(plan: Mapping[str, Any]) -> str:
    """Return a line on the first file or slice that cannot be one, or ''."""
    is_mix = "mix" in plan
    if is_mix != (plan["engine"]["name"] == MIX_ENGINE):
        return f"mix: expected the engine {MIX_ENGINE} with it, and no other"
    if "tokenizer" not in plan and not is_mix:  # an input of a mix may have lost its own
        return "tokenizer: missing"
    try:
        if "tokenizer" in plan:
            FileEntry.from_json(plan["tokenizer"])
    except ValueError as error:
        return str(error)
    for name in ("files", "parts"):
        if not isinstance(plan.get(name), list):
            return f"{name}: expected a list"
    n_readings = len(plan.get("task", {}).get("readings", ())) or 1
    for i, row in enumerate(plan["files"]):
        if not _is_file(row, n_readings):
            return f"files[{i}]: expected an input file"
    for i, slices in enumerate(plan["parts"]):
        if not _are_slices(slices, len(plan["files"])):
            return f"parts[{i}]: expected slices"
    return ""


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


def parse_plan(content: bytes, where: str) -> dict[str, Any]:
    """Return the plan with this content; `where` is for messages.

    Raises:
        StateError: it is another program's file, damaged, or of a newer format.
    """
    plan, problem, is_tokmills = _parsed(content)
    if is_tokmills:
        check_format_version(plan.get("format_version", FORMAT_VERSION), where)
    if not is_tokmills:
        raise _foreign(where, problem)
    if problem := problem or shape_problem_of(plan, _SHAPE) or _values_problem(plan):
        raise StateError(f"{where}: damaged ({problem}): run with --overwrite to start again")
    return plan


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
