"""What made the dataset that stands in a place: a run, a mix or an import; or that it is an export.

A run and an import have a plan and parts, so they can be looked at, continued, and shared out to
tasks. A mix and an export are one call each. Whoever needs a plan asks here, and says what works
instead.
"""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING

from tokmill.dataset.layout import EXPORT_RECORD, MANIFEST, MIX_REQUEST, PLAN
from tokmill.dataset.layout import MIX as MIX_FOLDER
from tokmill.dataset.lock import is_locked
from tokmill.dataset.plan_file import PLAN_BEGINNING
from tokmill.errors import StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.dataset.place import Place

RUN, MIX, IMPORT, EXPORT = "a run", "a mix", "an import", "an export"

_IMPORT_ENGINE = "import"
"""Name of the engine in plan and manifest of an imported dataset."""

MANIFEST_BEGINNING = b'{\n"config":'
"""The first bytes of every manifest."""

_FOR_RUNS = "status, run-part and finish are for runs"


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
    manifest = read(MANIFEST) if MANIFEST in names else b""
    is_finished = manifest.startswith(MANIFEST_BEGINNING)
    if is_finished and isinstance(_value(manifest, "mix"), dict):
        return MIX
    if not is_finished and MIX_REQUEST in names:
        return MIX
    plan = read(PLAN) if PLAN in names else b""
    is_planned = plan.startswith(PLAN_BEGINNING)
    if not is_finished and not is_planned:
        return ""
    engine = _value(manifest if is_finished else plan, "engine")
    is_imported = isinstance(engine, dict) and engine.get("name") == _IMPORT_ENGINE
    return IMPORT if is_imported else RUN


def maker_in(place: Place) -> str:
    """Return what made the dataset or export in a place; see `made_by`."""
    return made_by(place.entries((MIX_FOLDER,)), place.read)


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


def no_run(place: Place, maker: str) -> UsageError:
    """Return the error of a command for runs at the output of something else."""
    where, is_finished = place.where, bool(place.stamp(MANIFEST))
    if maker == EXPORT:
        return UsageError(f"{where}: holds an export: {_FOR_RUNS}: name the output of one")
    if is_finished:
        lacks = f", but no {PLAN}" if maker == RUN else ""
        return UsageError(
            f"{where}: holds {maker} that is finished{lacks}: {_FOR_RUNS}; "
            f"tokmill verify {quote(where)} checks it"
        )
    if place.mapped is not None and is_locked(place.mapped):
        return UsageError(f"{where}: a mix is writing here: wait for its end; {_FOR_RUNS}")
    return UsageError(
        f"{where}: holds a mix that is not finished: the same tokmill mix command continues it; "
        f"{_FOR_RUNS}"
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
