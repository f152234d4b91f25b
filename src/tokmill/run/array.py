"""A run as an array of tasks on many machines: plan, work on a share, look, finish.

The tasks meet in the output directory alone. Each takes every n-th part of the plan, holds the
locks of these parts, and commits them with `run.part` as any run does; so a task may be killed,
started again or started twice. One process finishes: it sums up, packs, and writes the manifest.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.machine import usable_memory
from tokmill.dataset.commit_record import read_committed
from tokmill.dataset.layout import FOLDERS, MANIFEST, PARTS, part_name
from tokmill.dataset.plan_file import read_owned_names
from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError, TokmillError, UsageError
from tokmill.lock import locked, locked_parts, parts_locked
from tokmill.recipes.engines import reference_loader
from tokmill.recipes.spec import Increments
from tokmill.run.array_place import check_plan_place
from tokmill.run.array_plan import read_array_plan, write_array_plan
from tokmill.run.array_status import (
    array_status_of,
    check_done,
    check_kept,
    failure_name,
    failure_of,
    failures,
)
from tokmill.run.directory import refuse_foreign_files, refuse_unplanned_files
from tokmill.run.disk_checks import check_file_system, check_space
from tokmill.run.make_dataset import begin_chosen
from tokmill.run.node_proof import check_input
from tokmill.run.part import as_resumed
from tokmill.run.prepare import prepare, reference_of
from tokmill.run.probes import end_array
from tokmill.run.resume import explain_interrupt, planned_hub_commits, resumed_plan
from tokmill.run.store_array import (
    finish_store_array,
    plan_store_array,
    store_share,
    store_status,
)
from tokmill.run.whole_run import Run, cpu_seconds
from tokmill.run.workers import workers_and_threads
from tokmill.storage import make_directory, remove_file, write_file
from tokmill.stores.urls import check_output, is_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.run.array_status import ArrayStatus
    from tokmill.run.plan import Plan
    from tokmill.run.whole_run import Executor, Observer
    from tokmill.settings.schema import Config


def plan_array(config: Config, path: Path, observer: Observer, *, overwrite: bool = False) -> Plan:
    """Begin a run in its output directory, or continue one; write the plan of an array to `path`.

    Raises:
        UsageError: there is no output, or the input is standard input, or `path` is not free: see
            `check_plan_place`.
        TokmillError: see `make_dataset`.
    """
    if not config.output.dir:
        raise UsageError("no output: give --output, a directory that every machine sees")
    check_output(config.output.dir)
    if "-" in config.input.all_paths:
        raise UsageError("standard input: tasks on other machines cannot read it: give files")
    check_plan_place(path, config)  # before anything is begun
    if is_store(config.output.dir):
        return plan_store_array(config, path, observer, overwrite=overwrite)
    directory = Path(config.output.dir)
    prepared = prepare(config, planned_hub_commits(config, directory, overwrite=overwrite))
    for warning in prepared.found.warnings:
        observer.warned(warning)
    refuse_unplanned_files(directory)
    make_directory(directory)
    workers, threads = workers_and_threads(prepared.config, prepared.parts)
    with locked(directory), engine_threads(threads):
        reference, per_worker = reference_of(prepared), (threads, usable_memory() // workers)
        check_file_system(directory)
        check_space(prepared, reference, directory, observer.warned)
        plan = None
        if not overwrite:
            plan = resumed_plan(prepared, directory, *per_worker, observer.warned)
        if plan is None:
            refuse_foreign_files(directory, read_owned_names(directory))
            plan = begin_chosen(prepared, directory, reference, observer.noted, *per_worker)
        for name in FOLDERS:
            make_directory(directory / name)
        write_array_plan(path, plan)
    return plan


def run_share(
    path: Path, index: int, n_tasks: int, observer: Observer, execute: Executor
) -> tuple[PartRecord, ...]:
    """Work on the share of task `index` of `n_tasks`; return the records of its parts.

    Raises:
        UsageError: `index` is not one of 0 to `n_tasks` - 1, or there is no task.
        StateError: see `read_array_plan`; or another task holds a part of the share; or this
            machine does not see the output of the plan, or cannot write there.
        StorageError: this machine does not see the input of the plan.
        TokmillError: see `run_part`; what is committed stays.
    """
    if n_tasks < 1:
        raise UsageError(f"--of {n_tasks}: expected 1 or more")
    if not 0 <= index < n_tasks:
        raise UsageError(f"--index {index}: expected 0 to {n_tasks - 1}, as --of is {n_tasks}")
    array = read_array_plan(path)
    share = array.for_share(index, n_tasks)
    if not share.parts:
        return ()
    is_finished = array.is_finished()  # then it makes nothing, unless a part is gone
    if not is_finished:
        array.check_machine()
    workers, threads = workers_and_threads(share.spec.config, share.parts)
    share = replace(
        share,
        spec=replace(share.spec, n_threads=threads, memory_bytes=usable_memory() // workers),
    )
    held = (
        store_share(share, index, n_tasks, observer.warned)
        if array.is_in_store
        else _share(share, index, n_tasks)
    )
    with held as done, engine_threads(threads):
        array.check_current()
        left = [part for part in share.parts if part.index not in done]
        if left:
            if is_finished:
                array.check_machine()
            check_input(array.proof.for_parts(left))
        observer.started(share, len(done))
        found = tuple(
            execute(
                share.spec,
                share.parts,
                observer.progressed,
                workers,
                reference_loader(share.spec, share.spec.tokenizer),
                lambda: None,
            )
        )
        array.check_current()
        return found


def finish_array(path: Path, observer: Observer) -> dict[str, Any]:
    """Finish the run of an array once all parts are done; return its manifest.

    Raises:
        StateError: see `read_array_plan`; or tasks are running; or parts are missing; or this
            machine does not see the output of the plan, or cannot write there.
        TokmillError: see `finish`.
    """
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    array = read_array_plan(path)
    if not array.is_finished():
        array.check_machine()
    if array.is_in_store:
        return finish_store_array(array, observer, start_s, start_cpu_s)
    directory = array.directory
    with locked(directory), engine_threads(1):
        array.check_current()
        check_done(_status(array.plan, directory), path)
        reference = reference_loader(array.plan.spec, array.plan.spec.tokenizer)
        run = Run(directory, observer, _committed, reference, 1, 1, start_s, start_cpu_s)
        manifest = run.planned(array.plan)
        end_array(directory)
    return manifest


def array_status(path: Path) -> ArrayStatus:
    """Return what the parts of an array have come to.

    Raises:
        TokmillError: see `read_array_plan`.
    """
    array = read_array_plan(path)
    return store_status(array) if array.is_in_store else _status(array.plan, array.directory)


def _status(plan: Plan, directory: Path) -> ArrayStatus:
    done = _done(plan)
    undone = [part.index for part in plan.parts if part.index not in done]
    return array_status_of(
        directory,
        len(plan.parts),
        done,
        locked_parts(directory, undone),
        list(failures(_failure_notes(directory))),
        is_finished=(directory / MANIFEST).is_file(),
    )


@contextlib.contextmanager
def _share(share: Plan, index: int, n_tasks: int) -> Iterator[set[int]]:
    """Hold a share of parts, and yield those that are done."""
    directory = Path(share.spec.config.output.dir)
    refuse_foreign_files(directory, read_owned_names(directory), folders_alone=True)
    with (
        locked(directory, is_shared=True),
        parts_locked(directory, [part.index for part in share.parts]),
        _failure_noted(directory, index, n_tasks),
        explain_interrupt(share, directory),
    ):
        yield _done(share)
        check_kept(share, _done(share))


def _done(plan: Plan) -> set[int]:
    directory = Path(plan.spec.config.output.dir)
    return {
        part.index
        for part in plan.parts
        if read_committed(
            directory / PARTS / part_name(part.index), part.fingerprint(plan.spec), directory
        )
    }


def _committed(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
    reference: Callable[[], Engine],
    ready: Callable[[], object],
) -> Iterator[PartRecord]:
    """Yield the records of parts that are all committed; an `Executor` that makes none."""
    directory = Path(spec.config.output.dir)
    for part in parts:
        path = directory / PARTS / part_name(part.index)
        record = read_committed(path, part.fingerprint(spec), directory)
        if record is None:
            raise StateError(f"{path}: gone since this command began: start its task again")
        report(as_resumed(record.counts()))
        yield record


@contextlib.contextmanager
def _failure_noted(directory: Path, index: int, n_tasks: int) -> Iterator[None]:
    """Keep the error of a task for `array_status`; without an error, remove that of an earlier one.

    An interrupt is no failure: the task is started again.
    """
    path = directory / PARTS / failure_name(index, n_tasks)
    try:
        yield
    except TokmillError as error:
        note = failure_of(index, n_tasks, error).as_bytes()
        with contextlib.suppress(TokmillError):  # the disk may be full: the first error counts
            write_file(path, note, replace=True)
        raise
    remove_file(path)


def _failure_notes(directory: Path) -> Iterator[bytes]:
    for path in sorted((directory / PARTS).glob(failure_name("*", "*"))):
        with contextlib.suppress(OSError):
            yield path.read_bytes()
