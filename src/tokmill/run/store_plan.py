"""The plan of a dataset in an object store: found there, or begun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.bill.measuring.machine import usable_memory
from tokmill.dataset.layout import MANIFEST, PARTS, PLAN
from tokmill.dataset.plan_file import read_owned_names
from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError
from tokmill.run.choose_engine import choose_run_engine
from tokmill.run.plan import Plan, read_plan
from tokmill.run.prepare import prepare, reference_of
from tokmill.run.resume import continued_plan, hub_commits
from tokmill.run.store_part import plan_stamp
from tokmill.run.whole_run import input_line
from tokmill.run.workers import workers_and_threads
from tokmill.stores.store import remove_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tokmill.engines.engine import Engine
    from tokmill.run.whole_run import Observer
    from tokmill.settings.schema import Config
    from tokmill.stores.lease import Lease
    from tokmill.stores.store import Store


class StorePlan(NamedTuple):
    """A plan that stands in a store, and what its run goes on with.

    `sizes`: bytes of the objects of earlier runs of this plan, by name.
    """

    plan: Plan
    sizes: dict[str, int]
    n_workers: int
    n_threads: int
    reference: Callable[[], Engine]


def plan_in_store(
    config: Config,
    observer: Observer,
    store: Store,
    staging: Path,
    lease: Lease,
    *,
    overwrite: bool,
) -> StorePlan:
    """Continue the plan of a place in a store, or begin one.

    Raises:
        TokmillError: see `make_dataset`; nothing was changed.
    """
    sizes = visible_sizes(store)
    begins = overwrite or set(sizes) <= {PLAN}
    found = _stored_plan(store, sizes, staging, begins=begins)
    prepared = prepare(config, hub_commits(config, found or {}))
    for warning in prepared.found.warnings:
        observer.warned(warning)
    for line in (input_line(prepared.parts), *prepared.all_notes()):
        observer.noted(line)
    workers, threads = workers_and_threads(prepared.config, prepared.parts)
    per_worker = (threads, usable_memory() // workers)
    with engine_threads(threads):
        reference = reference_of(prepared)
        if found is None:
            engine = choose_run_engine(prepared, reference, threads, observer.noted)
            reference()  # the library may still refuse the tokenizer
            plan = Plan(prepared.spec(engine, *per_worker), prepared.parts)
            _begin(store, plan, sizes, lease)
            sizes = {}
        else:
            plan = continued_plan(found, prepared, store.url, *per_worker, observer.warned)
    plan = replace(plan, spec=replace(plan.spec, plan_stamp=plan_stamp(store)))
    return StorePlan(plan, sizes, workers, threads, reference)


def visible_sizes(store: Store) -> dict[str, int]:
    """Return the bytes of all objects by name, but those of hidden names."""
    return {name: size for name, size in store.sizes().items() if not _is_hidden(name)}


def downloaded_plan(store: Store, staging: Path) -> dict[str, Any] | None:
    """Return the plan that stands in a store; None without one.

    Raises:
        StateError: it is damaged, not tokmill's, or of a newer format.
    """
    size = store.size(PLAN)
    if size is None:
        return None
    with TemporaryDirectory(dir=staging) as place:  # tasks of this machine read it at once
        store.download(PLAN, size, Path(place) / PLAN)
        try:
            return read_plan(Path(place))
        except StateError as error:
            raise StateError(str(error).replace(place, store.url)) from None


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _stored_plan(
    store: Store, sizes: Mapping[str, int], staging: Path, *, begins: bool
) -> dict[str, Any] | None:
    """Return the plan that stands in a store; None without one, or if a new run begins.

    Raises:
        StateError: the plan is damaged, not tokmill's, or of a newer format; or the store holds
            objects of others: nothing was changed.
    """
    path = staging / PLAN
    path.unlink(missing_ok=True)
    if PLAN in sizes:
        store.download(PLAN, sizes[PLAN], path)
    try:
        owned = read_owned_names(staging)
        found = None if begins else read_plan(staging)
    except StateError as error:
        raise StateError(str(error).replace(str(staging), store.url)) from None
    foreign = [name for name in sizes if owned is None or not owned.has(name)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        held = "objects but no plan of a run" if owned is None else "more than this dataset"
        raise StateError(
            f"{store.url}: holds {held} ({foreign[0]}{more}): nothing was changed; choose "
            "another --output"
        )
    return found


def _begin(store: Store, plan: Plan, old: Iterable[str], lease: Lease) -> None:
    """Remove the dataset of an earlier run, and write the plan of a new one.

    The lease is looked at each time: a run that stood still removes nothing of a later one.

    The manifest goes first, then records: no record names a removed object. The old plan is last.
    """
    order = sorted(
        old, key=lambda name: (name == PLAN, name != MANIFEST, not name.startswith(f"{PARTS}/"))
    )
    remove_all(store, order, lease.check)
    lease.check()
    data = b"".join(plan.chunks())
    if store.create(PLAN, data) != data:
        raise StateError(f"{store.url}/{PLAN}: another run has just begun here: wait for its end")
