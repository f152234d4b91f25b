"""A whole run: plan or continue, work through the parts, write the manifest."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tokmill.dataset.commit_record import PartRecord, read_committed
from tokmill.dataset.layout import MANIFEST, PARTS, REJECTS, part_name
from tokmill.dataset.plan_file import OwnedNames, read_owned_names
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import REFERENCE, engine_version
from tokmill.errors import RecordError, StateError, UsageError
from tokmill.lock import locked
from tokmill.measure.machine import usable_cores, usable_memory
from tokmill.recipes.spec import Part
from tokmill.run.choose_engine import choose
from tokmill.run.complete import complete_manifest
from tokmill.run.directory import (
    clear,
    has_only_plan,
    refuse_foreign_files,
    refuse_stdin,
    refuse_unplanned_files,
    sweep,
)
from tokmill.run.file_system import check_file_system
from tokmill.run.finish import PROBE_TEXT, Usage, check_all_read, finish
from tokmill.run.plan import (
    Plan,
    check_same,
    planned_checksum,
    planned_engine,
    planned_hub_commits,
    read_plan,
    write_plan,
)
from tokmill.run.prepare import Prepared, prepare, reference_of
from tokmill.run.reject_limits import RejectLimit
from tokmill.run.space import check_space
from tokmill.run.stopped import explain_interrupt
from tokmill.settings.schema import OutputSettings
from tokmill.sources.hub import HUB_PREFIX
from tokmill.storage import make_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Progress, RunSpec
    from tokmill.settings.schema import Config


class Observer(Protocol):
    """What a run tells about itself while it goes on."""

    def warned(self, text: str) -> None:
        """Hear what may go wrong, before the run begins."""

    def started(self, plan: Plan, n_done: int, notes: Sequence[str]) -> None:
        """Hear that the plan stands; `n_done` parts are done, `notes`: what may surprise."""

    def progressed(self, progress: Progress) -> None:
        """Hear increments."""

    def peak_memory_bytes(self) -> int:
        """Give the peak so far of the process tree's memory, 0 if unknown."""


class Executor(Protocol):
    """What works through the parts of a plan."""

    def __call__(
        self,
        spec: RunSpec,
        parts: Sequence[Part],
        report: Callable[[Progress], None],
        n_workers: int,
        reference: Callable[[], Engine],
    ) -> Iterator[PartRecord]:
        """Yield the record of each part as it is done, in any order.

        Args:
            spec: the run as workers see it.
            parts: those to be worked through.
            report: hears the increments of progress.
            n_workers: processes to use.
            reference: returns the reference engine, loaded at most once in this process.
        """


def workers_and_threads(config: Config, n_parts: int) -> tuple[int, int]:
    """Give (worker processes, threads in each); one process with all threads by default."""
    if "-" in config.input.paths:
        n_parts = 1  # a spawned process has no standard input
    workers = max(1, min(config.run.workers or 1, n_parts))
    threads = config.run.threads or max(1, usable_cores() // workers)
    return workers, threads


def make_dataset(
    config: Config, observer: Observer, execute: Executor, *, overwrite: bool = False
) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; what is committed stays, and what a checkpoint names.
        KeyboardInterrupt: says what is kept.
    """
    if not config.output.dir:
        raise UsageError("no output: give --output, a directory to write the dataset to")
    start_wall, start_cpu = time.perf_counter(), _cpu_s()
    directory = Path(config.output.dir)
    prepared = prepare(config, _planned_commits(config, directory, overwrite=overwrite))
    for warning in prepared.found.warnings:
        observer.warned(warning)
    refuse_unplanned_files(directory)
    make_directory(directory)
    with locked(directory):
        workers, threads = workers_and_threads(prepared.config, len(prepared.parts))
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        reference = reference_of(prepared)
        if overwrite or not (directory / MANIFEST).exists():
            check_file_system(directory)
            check_space(prepared, reference, directory, observer.warned)
        memory_bytes = usable_memory() // workers
        means = (threads, memory_bytes, observer.warned)
        plan = _plan(prepared, reference, directory, *means, overwrite=overwrite)
        owned = OwnedNames(len(plan.parts), config.sft is not None)
        complete = complete_manifest(directory, owned, observer.warned)
        for name in (PARTS, REJECTS):
            make_directory(directory / name)
        sweep(directory)
        done = [part for part in plan.parts if _is_done(plan, part, directory)]
        observer.started(plan, len(done), prepared.all_notes())
        prepared_s = time.perf_counter() - start_wall
        if complete is not None and len(done) == len(plan.parts):
            return complete
        refuse_foreign_files(directory, owned)  # a whole manifest beside records that are gone
        (directory / MANIFEST).unlink(missing_ok=True)  # files of it were gone: not complete now
        watch = RejectLimit(plan, observer.progressed)
        found = execute(plan.spec, plan.parts, watch.progressed, workers, reference)
        with explain_interrupt(plan, directory):
            try:
                records = sorted(found, key=lambda record: record.part)
            except BaseException:
                sweep(directory)  # workers that were stopped could not
                raise
            try:
                watch.check_at_end()
            except RecordError:
                check_all_read(plan, records)  # damage explains rejects, and is no advice to take
                raise
            usage = Usage(
                time.perf_counter() - start_wall,
                _cpu_s() - start_cpu,
                observer.peak_memory_bytes(),
                len(done),
                watch.text_bytes,
                workers,
                {"prepare": prepared_s, **watch.stage_s},
            )
            probe_ids = reference().encode(pa.array([PROBE_TEXT], pa.large_string())).ids
            return finish(plan, records, probe_ids.tolist(), usage, _mask(plan, reference))


def _planned_commits(config: Config, directory: Path, *, overwrite: bool) -> dict[str, str]:
    """Return the commits of Hub datasets that a run which is continued began with."""
    from_hub = any(path.startswith(HUB_PREFIX) for path in config.input.paths)
    if not from_hub or overwrite or has_only_plan(directory):
        return {}
    return planned_hub_commits(read_plan(directory) or {})


def _mask(plan: Plan, reference: Callable[[], Engine]) -> dict[str, Any] | None:
    """Give what the manifest says of the masks; None for pretraining."""
    if plan.spec.config.sft is None:
        return None
    from tokmill.recipes.mask_entry import describe_mask

    return describe_mask(plan.spec, reference())


def _plan(
    prepared: Prepared,
    reference: Callable[[], Engine],
    directory: Path,
    n_threads: int,
    memory_bytes: int,
    warn: Callable[[str], None],
    *,
    overwrite: bool,
) -> Plan:
    anew = overwrite or has_only_plan(directory)
    found = None if anew else read_plan(directory)
    owned = read_owned_names(directory) if found is None else None
    if found is None:
        refuse_foreign_files(directory, owned)
        engine = choose(prepared, reference, n_threads)
    else:
        refuse_stdin(prepared.files, directory)
        engine = planned_engine(found, prepared.config.run.engine)
        _check_engine(engine, prepared, warn)
        prepared = _with_planned_checksum(found, prepared, directory, warn)
    plan = Plan(prepared.spec(engine, n_threads, memory_bytes), prepared.parts)
    if found is not None:
        check_same(found, plan, directory)
    else:
        clear(directory, owned)  # as late as this: what fails before leaves the old dataset whole
        write_plan(directory, plan)  # first: files without a plan are taken for somebody else's
    return plan


def _with_planned_checksum(
    found: dict[str, Any], prepared: Prepared, directory: Path, warn: Callable[[str], None]
) -> Prepared:
    """Go on with the sums that a run began with: a dataset has them by one algorithm."""
    began, asked = planned_checksum(found), prepared.config.output.checksum
    if asked not in (began, OutputSettings().checksum):
        warn(
            f"{directory}: began with sums by {began}, and ends with them, not {asked}: "
            "--overwrite starts anew"
        )
    return prepared.with_checksum(began)


def _check_engine(engine: EngineChoice, prepared: Prepared, warn: Callable[[str], None]) -> None:
    """Check that what the plan names is installed: the engine, and what it was held against.

    Raises:
        StateError: it is another version.
    """
    versions = [(engine.name, engine.version)]
    if engine.reference:
        versions.append((REFERENCE, engine.reference))
    elif engine.name != REFERENCE:
        warn(
            f"this run began before engines were compared on all characters: where {engine.name} "
            "knows characters that the reference does not, its tokens may differ: --overwrite "
            "starts anew"
        )
    for name, planned in versions:
        installed = engine_version(name, prepared.tokenizer)
        if installed != planned:
            raise StateError(
                f"the run in this directory began with {name} {planned}, installed is "
                f"{installed}: install that version, or run with --overwrite to start anew"
            )


def _is_done(plan: Plan, part: Part, directory: Path) -> bool:
    path = directory / PARTS / part_name(part.index)
    return (
        path.exists() and read_committed(path, part.fingerprint(plan.spec), directory) is not None
    )


def _cpu_s() -> float:
    """Give the CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
