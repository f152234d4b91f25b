"""What made the dataset that stands in a place: a run, a mix or an import; or that it is an export.

All datasets have a plan and parts, so they can be looked at and continued. The parts of a run or an
import can be shared out to tasks; a mix is one call, whose plan comes after a look at its inputs;
an export has neither. Whoever needs a plan or tasks asks here, and says what works instead.
"""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING

from tokmill.dataset.layout import (
    EXPORT_RECORD,
    MANIFEST,
    MIX_ENGINE,
    MIX_REQUEST,
    PLAN,
    PLAN_BEGINNING,
    check_format_version,
)
from tokmill.dataset.layout import MIX as MIX_FOLDER
from tokmill.dataset.lock import is_locked
from tokmill.errors import StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.dataset.place import Place

RUN, MIX, IMPORT, EXPORT = "a run", "a mix", "an import", "an export"

_MAKERS = {"import": IMPORT, MIX_ENGINE: MIX}
"""By the name of the engine in plan and manifest, where no text was encoded."""

MANIFEST_BEGINNING = b'{\n"config":'
"""The first bytes of every manifest."""

_FOR_TASKS = "run-part and finish are for runs that are shared out to tasks"


def made_by(entries: Mapping[str, int | None], read: Callable[[str], bytes]) -> str:
    """Return what made the dataset or export in a place; '' if nothing of tokmill stands there.

    A file of a stranger, or a damaged one, counts as none.

    Args:
        entries: the names in the place, with the bytes of files; None for what is no file.
        read: returns the bytes of a file by its name.
    """
    names = {name for name, n_bytes in entries.items() if n_bytes is not None}
    if EXPORT_RECORD in names:
        return EXPORT
    for name, beginning in ((MANIFEST, MANIFEST_BEGINNING), (PLAN, PLAN_BEGINNING)):
        content = read(name) if name in names else b""
        if content.startswith(beginning):
            engine = _value(content, "engine")
            return maker_of(engine.get("name") if isinstance(engine, dict) else None)
    return MIX if MIX_REQUEST in names else ""


def maker_of(engine: object) -> str:
    """Return what makes the plan or the manifest that names an engine."""
    return _MAKERS.get(engine, RUN) if isinstance(engine, str) else RUN


def maker_in(place: Place) -> str:
    """Return what made the dataset or export in a place; see `made_by`."""
    return made_by(place.entries((MIX_FOLDER,)), place.read)


def check_versions(place: Place, entries: Mapping[str, int | None]) -> None:
    """Check that no manifest and no plan in a place is of a later version of the format.

    Whoever will write or remove something there asks first: a run would else be finished under a
    manifest that it cannot read, and `--overwrite` would trust lists whose meaning may differ.

    Raises:
        StateError: one is; nothing was changed.
        StorageError: it cannot be read.
    """
    for name in (MANIFEST, PLAN):
        if entries.get(name) is not None:
            version = _value(place.read(name), "format_version")
            if isinstance(version, int):
                check_format_version(version, f"{place.where}/{name}")


def _value(content: bytes, key: str) -> object:
    """Return the value of a key of a manifest or plan; None without it, or if it is damaged.

    A key has a line of its own, so that the rows of a million files are not parsed.
    """
    _, _, rest = content.partition(f'\n"{key}":'.encode())
    line, _, _ = rest.partition(b"\n")
    try:
        return json.loads(line.removesuffix(b","))
    except (ValueError, RecursionError):
        return None


def unfinished(where: str, maker: str) -> StateError | UsageError:
    """Return the error of a reader for what has no manifest; `maker`: see `made_by`."""
    if maker == EXPORT:
        return UsageError(f"{where}: an export, not a dataset: name the dataset that was exported")
    of_whom = maker.split()[-1]
    return StateError(
        f"{where}: its {of_whom} is not finished (no {MANIFEST}): run the same command again to "
        "continue it"
    )


def no_plan(place: Place, maker: str) -> UsageError:
    """Return the error of a command that needs a plan, where something stands without one."""
    where = place.where
    if maker == EXPORT:
        return UsageError(f"{where}: holds an export, which has no parts: name the output of a run")
    if place.stamp(MANIFEST):
        return UsageError(
            f"{where}: holds {maker} that is finished, but no {PLAN}: tokmill verify "
            f"{quote(where)} checks it"
        )
    if place.mapped is not None and is_locked(place.mapped):
        return UsageError(
            f"{where}: a mix is looking at its inputs, and has no parts yet: wait for its plan"
        )
    return UsageError(
        f"{where}: holds a mix that was stopped before it had parts: the same tokmill mix command "
        "continues it"
    )


def no_tasks(place: Place) -> UsageError:
    """Return the error of a command for tasks at a mix that has a plan."""
    where = place.where
    if place.stamp(MANIFEST):
        return UsageError(
            f"{where}: holds a mix that is finished: {_FOR_TASKS}; tokmill verify {quote(where)} "
            "checks it"
        )
    if place.mapped is not None and is_locked(place.mapped):
        return UsageError(f"{where}: a mix is writing here: wait for its end; {_FOR_TASKS}")
    return UsageError(
        f"{where}: holds a mix that is not finished: the same tokmill mix command continues it; "
        f"{_FOR_TASKS}"
    )


def held_by_other(where: str, maker: str, *, is_finished: bool) -> StateError:
    """Return the error of a run at an output that holds something else."""
    remedy = "name another output, or --overwrite replaces it"
    if maker == RUN:
        return StateError(f"{where}: holds a dataset, but no plan of a run: {remedy}")
    if maker == MIX and not is_finished:
        remedy += "; the same tokmill mix command continues it"
        return StateError(f"{where}: holds a mix that is not finished: {remedy}")
    return StateError(f"{where}: holds {maker}: {remedy}")
