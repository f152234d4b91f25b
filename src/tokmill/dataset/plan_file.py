"""Recognise and read `plan.json`; its run owns certain names in the output directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import sha256_without
from tokmill.dataset.layout import (
    CUT_INDEX,
    DATASET_FILE,
    FORMAT_VERSION,
    MANIFEST,
    PLAN,
    check_format_version,
)
from tokmill.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAN_FORMAT = "tokmill plan"

PLAN_BEGINNING = b'{\n"bos_id":'
"""The first bytes of every plan: they tell a damaged plan from a file of another program."""


@dataclass(frozen=True, slots=True)
class OwnedNames:
    """The names that a run can give to files of its directory.

    `n_parts` and `is_sft` are None if the plan is damaged: then every name of a dataset is owned.
    """

    n_parts: int | None = None
    is_sft: bool | None = None

    @classmethod
    def of_plan(cls, content: bytes, where: str) -> OwnedNames:
        """Return the names that a plan with this content owns; raises as `parse_plan` does."""
        _, problem, is_tokmills = _parsed(content)
        if problem and is_tokmills:
            return cls()
        plan = parse_plan(content, where)
        return cls(len(plan["parts"]), "template_sha256" in plan)

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
        part = parts["shard"] or parts["record"] or parts["rejects"]
        return part is None or self.n_parts is None or int(part) < self.n_parts


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
    if not problem:
        return plan
    if is_tokmills:
        raise StateError(f"{where}: damaged ({problem}): run with --overwrite to start again")
    raise StateError(
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
