"""Make a dataset: prepare, lock, plan or resume; `run.whole_run` does the rest."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.machine import usable_memory
from tokmill.dataset.layout import MANIFEST
from tokmill.dataset.plan_file import read_owned_names
from tokmill.engines.engine import engine_threads
from tokmill.errors import UsageError
from tokmill.lock import locked
from tokmill.run.choose_engine import OtherEngineError, choose_run_engine
from tokmill.run.directory import refuse_foreign_files, refuse_unplanned_files
from tokmill.run.disk_checks import check_file_system, check_space
from tokmill.run.plan import Plan
from tokmill.run.prepare import prepare, reference_of
from tokmill.run.probes import array_ended
from tokmill.run.resume import begin_run, planned_hub_commits, resumed_plan
from tokmill.run.whole_run import Run, cpu_seconds, input_line
from tokmill.run.workers import workers_and_threads
from tokmill.storage import make_directory
from tokmill.stores.urls import check_output, is_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.engine import Engine
    from tokmill.run.prepare import Prepared
    from tokmill.run.whole_run import Executor, Observer
    from tokmill.settings.schema import Config


def make_dataset(
    config: Config, observer: Observer, execute: Executor, *, overwrite: bool = False
) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; commits and checkpoints stay.
        KeyboardInterrupt: with a message about the work that is kept.
    """
    if not config.output.dir:
        raise UsageError("no output: give --output, a directory to write the dataset to")
    check_output(config.output.dir)
    if is_store(config.output.dir):
        from tokmill.run.store_run import make_store_dataset

        return make_store_dataset(config, observer, execute, overwrite=overwrite)
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    directory = Path(config.output.dir)
    prepared = prepare(config, planned_hub_commits(config, directory, overwrite=overwrite))
    for warning in prepared.found.warnings:
        observer.warned(warning)
    for line in (input_line(prepared.parts), *prepared.all_notes()):
        observer.noted(line)
    refuse_unplanned_files(directory)
    make_directory(directory)
    workers, threads = workers_and_threads(prepared.config, prepared.parts)
    with locked(directory), engine_threads(threads), array_ended(directory):
        reference = reference_of(prepared)
        run = Run(directory, observer, execute, reference, workers, threads, start_s, start_cpu_s)
        if overwrite or not (directory / MANIFEST).exists():
            check_file_system(directory)
            check_space(prepared, reference, directory, observer.warned)
        per_worker = (threads, usable_memory() // workers)
        plan = None
        if not overwrite:
            plan = resumed_plan(prepared, directory, *per_worker, observer.warned)
        if plan is None:
            refuse_foreign_files(directory, read_owned_names(directory))
            with suppress(OtherEngineError):
                return run.while_compared(prepared, *per_worker)
            plan = begin_chosen(prepared, directory, reference, observer.noted, *per_worker)
        return run.planned(plan)


def begin_chosen(
    prepared: Prepared,
    directory: Path,
    reference: Callable[[], Engine],
    note: Callable[[str], None],
    n_threads: int,
    memory_bytes: int,
) -> Plan:
    """Choose the engine of a new run, and write the plan of the run; return the plan.

    `note` gets a line if that takes long. `n_threads` and `memory_bytes` are those of a worker.

    Raises:
        TokmillError: the tokenizer or the sample of the corpus is at fault; nothing was changed.
    """
    engine = choose_run_engine(prepared, reference, n_threads, note)
    reference()  # the library may still refuse the tokenizer
    plan = Plan(prepared.spec(engine, n_threads, memory_bytes), prepared.parts)
    begin_run(directory, plan)  # as late as possible: an error keeps an old dataset
    return plan
