"""A run as an array of tasks on many machines: plan, work on a share, look, finish.

The tasks meet in the output directory alone. Each takes every n-th part of the plan, holds the
locks of these parts, and commits them with `run.part` as any run does; so a task may be killed,
started again or started twice. One process finishes: it sums up, packs, and writes the manifest.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.machine import usable_memory
from tokmill.dataset.canonical import canonical_json
from tokmill.dataset.commit_record import read_committed
from tokmill.dataset.layout import FOLDERS, MANIFEST, PARTS, part_name
from tokmill.dataset.plan_file import read_owned_names
from tokmill.engines.engine import REFERENCE, engine_threads
from tokmill.errors import StateError, TokmillError, UsageError
from tokmill.lock import PART_LOCKS, locked, locked_parts, parts_locked
from tokmill.recipes.spec import Increments
from tokmill.run.array_plan import read_array_plan, write_array_plan
from tokmill.run.directory import refuse_foreign_files, refuse_unplanned_files
from tokmill.run.disk_checks import check_file_system, check_space
from tokmill.run.make_dataset import begin_chosen
from tokmill.run.part import as_resumed
from tokmill.run.prepare import prepare, reference_of
from tokmill.run.resume import explain_interrupt, planned_hub_commits, resumed_plan
from tokmill.run.whole_run import Run, cpu_seconds
from tokmill.run.workers import workers_and_threads
from tokmill.storage import make_directory, remove_file, write_file
from tokmill.stores.urls import is_store, shown
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.run.plan import Plan
    from tokmill.run.whole_run import Executor, Observer
    from tokmill.settings.schema import Config

_MOST_NAMED = 10

_FAILED = ".failed-task-{index}-of-{n_tasks}.json"
"""A private file in `parts/`: why a task stopped. The task removes it when it is done."""


@dataclass(frozen=True, slots=True)
class ArrayStatus:
    """What the parts of an array have come to, by number.

    Attributes:
        directory: the output directory.
        parts: how many the plan has.
        done: those that are committed.
        running: those that a task holds.
        failed: those that are not done and belong to a task that stopped with an error.
        missing: all others: not begun, or their task was killed.
        errors: for each task that failed, one line: which task, its machine, its error.
        is_finished: whether `tokmill finish` has written the manifest.
    """

    directory: Path
    parts: int
    done: tuple[int, ...]
    running: tuple[int, ...]
    failed: tuple[int, ...]
    missing: tuple[int, ...]
    errors: tuple[str, ...]
    is_finished: bool

    @property
    def undone(self) -> tuple[int, ...]:
        """Return the parts that are not done."""
        return tuple(sorted((*self.running, *self.failed, *self.missing)))


def plan_array(config: Config, path: Path, observer: Observer, *, overwrite: bool = False) -> Plan:
    """Begin a run in its output directory, or continue one; write the plan of an array to `path`.

    Raises:
        UsageError: there is no output, or the input is standard input.
        TokmillError: see `make_dataset`.
    """
    if not config.output.dir:
        raise UsageError("no output: give --output, a directory that every machine sees")
    if is_store(config.output.dir):
        raise UsageError(
            f"{shown(config.output.dir)}: tasks of an array write to a directory that every "
            "machine sees: give one, and copy the dataset afterwards"
        )
    if "-" in config.input.paths:
        raise UsageError("standard input: tasks on other machines cannot read it: give files")
    directory = Path(config.output.dir)
    prepared = prepare(config, planned_hub_commits(config, directory, overwrite=overwrite))
    for warning in prepared.found.warnings:
        observer.warned(warning)
    refuse_unplanned_files(directory)
    make_directory(directory)
    workers, threads = workers_and_threads(prepared.config, prepared.parts)
    with locked(directory), engine_threads(threads):
        reference, means = reference_of(prepared), (threads, usable_memory() // workers)
        check_file_system(directory)
        check_space(prepared, reference, directory, observer.warned)
        plan = None
        if not overwrite:
            plan = resumed_plan(prepared, directory, *means, observer.warned)
        if plan is None:
            refuse_foreign_files(directory, read_owned_names(directory))
            plan = begin_chosen(prepared, directory, reference, *means)
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
        StateError: see `read_array_plan`; or another task holds a part of the share.
        TokmillError: see `run_part`; what is committed stays.
    """
    if n_tasks < 1:
        raise UsageError(f"--of {n_tasks}: expected 1 or more")
    if not 0 <= index < n_tasks:
        raise UsageError(f"--index {index}: expected 0 to {n_tasks - 1}, as --of is {n_tasks}")
    array = read_array_plan(path, observer.warned)
    share = array.for_share(index, n_tasks)
    if not share.parts:
        return ()
    workers, threads = workers_and_threads(share.spec.config, share.parts)
    share = replace(
        share,
        spec=replace(share.spec, n_threads=threads, memory_bytes=usable_memory() // workers),
    )
    numbers = [part.index for part in share.parts]
    with (
        locked(array.directory, is_shared=True),
        parts_locked(array.directory, numbers),
        engine_threads(threads),
        _failure_noted(array.directory, index, n_tasks),
        explain_interrupt(share, array.directory),
    ):
        observer.started(share, len(_done(share)), [])
        found = execute(
            share.spec,
            share.parts,
            observer.progressed,
            workers,
            _reference(share.spec),
            lambda: None,
        )
        return tuple(found)


def finish_array(path: Path, observer: Observer) -> dict[str, Any]:
    """Finish the run of an array once all parts are done; return its manifest.

    Raises:
        StateError: see `read_array_plan`; or tasks are running; or parts are missing.
        TokmillError: see `finish`.
    """
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    array = read_array_plan(path, observer.warned)
    directory = array.directory
    with locked(directory), engine_threads(1):
        _check_done(_status(array.plan, directory), path)
        reference = _reference(array.plan.spec)
        run = Run(directory, observer, _committed, reference, [], 1, 1, start_s, start_cpu_s)
        manifest = run.planned(array.plan)
        for note in (directory / PARTS).glob(_FAILED.format(index="*", n_tasks="*")):
            remove_file(note)
        remove_file(directory / PART_LOCKS)  # no task is running
    return manifest


def array_status(path: Path, warn: Callable[[str], None]) -> ArrayStatus:
    """Return what the parts of an array have come to.

    Raises:
        TokmillError: see `read_array_plan`.
    """
    array = read_array_plan(path, warn)
    return _status(array.plan, array.directory)


def _status(plan: Plan, directory: Path) -> ArrayStatus:
    done = _done(plan)
    undone = [part.index for part in plan.parts if part.index not in done]
    running = set(locked_parts(directory, undone))
    notes = list(_failure_notes(directory))
    failed = {
        part
        for part in undone
        if part not in running and any(part % note["of"] == note["index"] for note in notes)
    }
    return ArrayStatus(
        directory,
        len(plan.parts),
        tuple(sorted(done)),
        tuple(sorted(running)),
        tuple(sorted(failed)),
        tuple(part for part in undone if part not in running | failed),
        tuple(f"task {n['index']} of {n['of']} on {n['host']}: {n['error']}" for n in notes),
        (directory / MANIFEST).is_file(),
    )


def _done(plan: Plan) -> set[int]:
    directory = Path(plan.spec.config.output.dir)
    return {
        part.index
        for part in plan.parts
        if read_committed(
            directory / PARTS / part_name(part.index), part.fingerprint(plan.spec), directory
        )
    }


def _check_done(status: ArrayStatus, path: Path) -> None:
    undone = status.undone
    if undone:
        named = ", ".join(map(str, undone[:_MOST_NAMED])) + ", …" * (len(undone) > _MOST_NAMED)
        error = f" ({status.errors[0]})" if status.errors else ""
        raise StateError(
            f"{status.directory}: {len(undone):,} of {plural(status.parts, 'part')} "
            f"{'is' if len(undone) == 1 else 'are'} not done: {named}{error}: start their tasks "
            f"again (tokmill status {path} says more), then finish"
        )


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


def _reference(spec: RunSpec) -> Callable[[], Engine]:
    control = spec.config.tokenizer.control_tokens_in_text
    return spec.engines.share(REFERENCE, spec.tokenizer, control_in_text=control, n_threads=1)


@contextlib.contextmanager
def _failure_noted(directory: Path, index: int, n_tasks: int) -> Iterator[None]:
    """Keep the error of a task for `array_status`; without an error, remove that of an earlier one.

    An interrupt is no failure: the task is started again.
    """
    path = directory / PARTS / _FAILED.format(index=index, n_tasks=n_tasks)
    try:
        yield
    except TokmillError as error:
        host = platform.node()
        note = {"index": index, "of": n_tasks, "host": host, "error": str(error)}
        with contextlib.suppress(TokmillError):  # the disk may be full: the first error counts
            write_file(path, canonical_json(note), replace=True)
        raise
    remove_file(path)


def _failure_notes(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((directory / PARTS).glob(_FAILED.format(index="*", n_tasks="*"))):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(path.read_bytes())
            index, n_tasks = int(note["index"]), int(note["of"])
            if 0 <= index < n_tasks:
                error, host = str(note["error"]), str(note["host"])
                yield {"index": index, "of": n_tasks, "host": host, "error": error}
