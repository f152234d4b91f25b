"""A run as an array of tasks whose dataset is in an object store.

Each task holds a lease of its own, so that the same one does not work twice, and no whole run
begins meanwhile. Parts need none: two tasks that make one part write the same bytes, and the first
record of it stays.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.layout import MANIFEST, PARTS, part_name
from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError, TokmillError
from tokmill.recipes.engines import reference_loader
from tokmill.run.array_plan import write_array_plan
from tokmill.run.array_status import (
    array_status_of,
    check_done,
    check_kept,
    failure_name,
    failure_of,
    failures,
    is_failure,
)
from tokmill.run.staging_lock import clear_staging, locked_staging, only_here
from tokmill.run.store_part import check_plan, is_stored
from tokmill.run.store_plan import plan_in_store, visible_sizes
from tokmill.run.store_run import READERS, StoreRun, end_array
from tokmill.stores.lease import FOLDER, TASKS, is_fresh, leased, refuse_held
from tokmill.stores.store import Store
from tokmill.stores.urls import shown
from tokmill.timing import StageSeconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part, RunSpec
    from tokmill.run.array_plan import ArrayPlan
    from tokmill.run.array_status import ArrayStatus
    from tokmill.run.plan import Plan
    from tokmill.run.whole_run import Observer
    from tokmill.settings.schema import Config


def plan_store_array(config: Config, path: Path, observer: Observer, *, overwrite: bool) -> Plan:
    """Begin a run in a store, or continue one; write the plan of an array to `path`.

    Raises:
        StateError: a run or a task is writing there, or it holds another dataset.
        TokmillError: see `make_dataset`.
    """
    store = Store(config.output.dir)
    with locked_staging(store) as staging, leased(store, staging / ".lease") as lease:
        refuse_held(store, TASKS)
        plan = plan_in_store(config, observer, store, staging, lease, overwrite=overwrite).plan
        write_array_plan(path, plan)
    return plan


@contextlib.contextmanager
def store_share(
    share: Plan, index: int, n_tasks: int, warn: Callable[[str], None]
) -> Iterator[set[int]]:
    """Yield the parts of a share that are done; the lease of its task is held meanwhile.

    A scheduler may start a task elsewhere at once after it killed it: it waits for its own lease.

    Raises:
        StateError: the same task is working elsewhere, or a whole run writes to the store.
    """
    place = share.spec.config.output.dir.rstrip("/")
    store, task = Store(place), f"{index}-of-{n_tasks}"
    note = f"{PARTS}/{failure_name(index, n_tasks)}"
    with (
        locked_staging(store, is_shared=True) as staging,
        only_here(staging / f".task-{task}", f"{store.url}: task {index} of {n_tasks}"),
        leased(Store(f"{place}/{TASKS}/{task}"), staging / f".lease-{task}", wait=warn),
    ):
        # After its own lease is there: of two that begin at once, one sees the other.
        refuse_held(store, FOLDER)
        try:
            yield _done(share, store, visible_sizes(store))
            check_kept(share, _done(share, store, visible_sizes(store)))
        except TokmillError as error:
            with contextlib.suppress(TokmillError):  # the store may be gone: the first error counts
                check_plan(store, share.spec)  # no note in the dataset of another run
                store.write(note, failure_of(index, n_tasks, error).as_bytes())
            raise
        store.remove(note)


def store_status(array: ArrayPlan) -> ArrayStatus:
    """Return what the parts of an array have come to; raises `StorageError`."""
    plan = array.plan
    store = Store(plan.spec.config.output.dir)
    sizes = store.sizes()
    done = _done(plan, store, sizes)
    held = list(_held_tasks(store, sizes))
    running = [
        part.index
        for part in plan.parts
        if part.index not in done and any(part.index % of == index for index, of in held)
    ]
    found = list(failures(_failure_notes(store, sizes)))
    return array_status_of(
        store.url, len(plan.parts), done, running, found, is_finished=MANIFEST in sizes
    )


def finish_store_array(
    array: ArrayPlan, observer: Observer, start_s: float, start_cpu_s: float
) -> dict[str, Any]:
    """Finish the run of an array once all parts are done; return its manifest.

    Raises:
        StateError: tasks are running, or parts are missing.
        TokmillError: see `finish`.
    """
    plan = array.plan
    spec = plan.spec
    store = Store(spec.config.output.dir)
    with (
        locked_staging(store) as staging,
        leased(store, staging / ".lease") as lease,
        engine_threads(1),
    ):
        array.check_current()
        check_done(store_status(array), array.path)
        refuse_held(store, TASKS)
        reference = reference_loader(spec, spec.tokenizer)
        sizes = visible_sizes(store)
        run = StoreRun(store, staging, lease, plan, observer, 1, reference)
        run.started(sizes)
        prepare_s = StageSeconds(0.0, 0.0, start_s)
        manifest = run.complete(sizes) or run.work(_none_left, start_s, start_cpu_s, prepare_s)
        end_array(store, spec.config.output.dir, lease)
        clear_staging(staging)
    return manifest


def _none_left(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
    reference: Callable[[], Engine],
    ready: Callable[[], object],
) -> Iterator[PartRecord]:
    """Make no part; an `Executor` for a run whose parts are done."""
    place, numbers = shown(spec.config.output.dir), [part.index for part in parts]
    raise StateError(
        f"{place}: parts {numbers} are gone since this command began: start their tasks again"
    )


def _done(plan: Plan, store: Store, sizes: Mapping[str, int]) -> set[int]:
    """Return the parts that are done, by number; nothing is removed."""
    listed = [part for part in plan.parts if f"{PARTS}/{part_name(part.index)}" in sizes]
    with ThreadPoolExecutor(READERS, "tokmill") as pool:
        found = pool.map(
            lambda part: is_stored(store, part, part.fingerprint(plan.spec), sizes), listed
        )
        return {part.index for part, is_done in zip(listed, found, strict=True) if is_done}


def _held_tasks(store: Store, sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Yield index and number of tasks for the leases that are held."""
    for name in sizes:
        folder, _, rest = name.partition("/")
        task, _, lease = rest.partition("/")
        index, _, n_tasks = task.partition("-of-")
        if folder != TASKS or not (index.isdecimal() and n_tasks.isdecimal() and int(n_tasks)):
            continue
        with contextlib.suppress(FileNotFoundError):
            if lease.rpartition("/")[2].isdecimal() and is_fresh(store.modified(name)):
                yield int(index), int(n_tasks)


def _failure_notes(store: Store, sizes: Mapping[str, int]) -> Iterator[bytes]:
    for name in filter(is_failure, sizes):
        with contextlib.suppress(FileNotFoundError):  # its task has ended well meanwhile
            yield store.read(name)
