"""Write a part to the output of its run: a directory, or an object store.

For a store, the part is written into a staging directory of this machine, then uploaded; its record
is the last object. Two machines that upload the same part write the same bytes.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.commit_record import parse_record
from tokmill.dataset.layout import FOLDERS, PARTS, PLAN, part_name
from tokmill.errors import StateError
from tokmill.run.part import as_resumed, run_part
from tokmill.run.staging_lock import only_here
from tokmill.storage import make_directory
from tokmill.stores.staging import staging_directory
from tokmill.stores.store import Store
from tokmill.stores.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.recipes.spec import Increments, Part, RunSpec
    from tokmill.recipes.table import Recipe


def make_part(
    spec: RunSpec,
    part: Part,
    recipe: Callable[[], Recipe],
    report: Callable[[Increments], None],
    *,
    ready: Callable[[], object] = lambda: None,
) -> PartRecord:
    """Write one part to the output of the run and return its record; see `run.part.run_part`.

    Raises:
        TokmillError: see `run_part`; also if the store cannot be reached, or holds another record
            of this part.
    """
    if not is_store(spec.config.output.dir):
        return run_part(spec, part, recipe, report, ready=ready)
    store = Store(spec.config.output.dir)
    done = stored_record(store, part, part.fingerprint(spec))
    if done is not None:
        report(as_resumed(done.counts()))
        return done
    staging = part_staging(spec, part)
    with only_here(staging, f"{store.url}: another process that makes part {part.index}"):
        for folder in FOLDERS:  # another process may just have made the part, and removed them
            make_directory(staging / folder)
        record = run_part(in_directory(spec, staging), part, recipe, report, ready=ready)
        _commit(store, spec, staging, record)
        shutil.rmtree(staging)
    return record


def part_staging(spec: RunSpec, part: Part) -> Path:
    """Return the directory of this machine in which a part for a store is made."""
    parent = staging_directory(Store(spec.config.output.dir))
    return parent / f"{part.index:07d}-{part.fingerprint(spec)[:16]}"


def in_directory(spec: RunSpec, directory: Path | str) -> RunSpec:
    """Return a run that writes the same files to another place."""
    config = spec.config
    return replace(spec, config=replace(config, output=replace(config.output, dir=str(directory))))


def _commit(store: Store, spec: RunSpec, staging: Path, record: PartRecord) -> None:
    """Upload the files of a part, then its record, which makes them durable at once.

    This process may have stood still for so long that another run took the place over: nothing is
    written into its dataset.
    """
    name, data = f"{PARTS}/{part_name(record.part)}", record.as_bytes()
    check_plan(store, spec)
    with suppress(FileNotFoundError):
        if store.read(name) != data:
            raise _another(store, name)
    for entry in record.files():
        check_plan(store, spec)
        store.upload(staging / entry.name, entry.name)
    check_plan(store, spec)
    if store.create(name, data) != data:
        raise _another(store, name)


def _another(store: Store, name: str) -> StateError:
    return StateError(
        f"{store.url}/{name}: holds another record of this part than the one just made: "
        "another run writes there too, with other settings: choose another --output"
    )


def check_plan(store: Store, spec: RunSpec) -> None:
    """Check that the plan in a store is still the one with which a run began.

    Raises:
        StateError: it was removed or replaced.
    """
    if plan_stamp(store) != spec.plan_stamp:
        raise StateError(
            f"{store.url}/{PLAN}: was replaced or removed since this run began: another run took "
            "this place over; nothing more is written to it: choose another --output"
        )


def plan_stamp(store: Store) -> str:
    """Return what changes whenever the plan in a store is written; '' if the store has no such."""
    entry = store.entry(PLAN)
    return "" if entry is None else entry.stamp


def stored_record(
    store: Store, part: Part, fingerprint: str, sizes: Mapping[str, int] | None = None
) -> PartRecord | None:
    """Return the record of a part that is done; None if it is not, or not all of its files.

    A record whose files are not there is removed. `sizes`: those of all objects, if known.

    Raises:
        StateError: the record is damaged, or of other inputs or settings.
    """
    name = f"{PARTS}/{part_name(part.index)}"
    if sizes is not None and name not in sizes:
        return None
    try:
        data = store.read(name)
    except FileNotFoundError:
        return None
    record = parse_record(data, fingerprint, f"{store.url}/{name}")
    if _has_files(store, record, sizes):
        return record
    store.remove(name)
    return None


def is_stored(store: Store, part: Part, fingerprint: str, sizes: Mapping[str, int]) -> bool:
    """Return whether a part is done, as `stored_record`; nothing is removed."""
    name = f"{PARTS}/{part_name(part.index)}"
    try:
        record = parse_record(store.read(name), fingerprint, f"{store.url}/{name}")
    except FileNotFoundError:
        return False
    return _has_files(store, record, sizes)


def _has_files(store: Store, record: PartRecord, sizes: Mapping[str, int] | None) -> bool:
    size = store.size if sizes is None else sizes.get
    return all(size(entry.name) == entry.n_bytes for entry in record.files())
