"""A run from its plan to its manifest: work through the parts, and finish."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tokmill.dataset.commit_record import PartRecord, read_committed
from tokmill.dataset.layout import FOLDERS, MANIFEST, PARTS, part_name
from tokmill.dataset.plan_file import OwnedNames
from tokmill.errors import RecordError
from tokmill.recipes.spec import Part
from tokmill.run.choose_engine import OtherEngineError, compare_remembered
from tokmill.run.directory import (
    complete_manifest,
    holds_no_commits,
    refuse_foreign_files,
    remove_leftovers,
)
from tokmill.run.finish import Usage, check_all_read, finish
from tokmill.run.plan import Plan
from tokmill.run.reject_limits import RejectLimit
from tokmill.run.resume import begin_run, explain_interrupt
from tokmill.sources.slices import check_unchanged
from tokmill.storage import make_directory, remove_file
from tokmill.stores.urls import is_store
from tokmill.timing import StageSeconds, StageTimer, add_seconds
from tokmill.tokenizer.manifest_entry import PROBE_TEXT
from tokmill.words.plural import plural
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, RunSpec
    from tokmill.run.prepare import Prepared


class Observer(Protocol):
    """Receives news of a run while it goes on."""

    def warned(self, text: str) -> None:
        """Receive a warning, before the run begins."""

    def noted(self, text: str) -> None:
        """Receive a line about the input or the choice of the engine, before the run begins."""

    def started(self, plan: Plan, n_done: int) -> None:
        """Receive the plan, and how many parts earlier attempts finished."""

    def progressed(self, progress: Increments) -> None:
        """Receive increments."""

    def peak_memory_bytes(self) -> int:
        """Return the peak memory of the process tree so far, 0 if unknown."""


def input_line(parts: Sequence[Part]) -> str:
    """Return a line about the files of a run and their size."""
    slices = [piece for part in parts for piece in part.slices]
    n_bytes = sum(piece.n_bytes for piece in slices)
    is_known = n_bytes or not any(piece.file.is_stream for piece in slices)
    files = plural(len({piece.file.path for piece in slices}), "file")
    amount = size(n_bytes) if is_known else "size unknown"
    return f"input: {files}, {amount}, in {plural(len(parts), 'part')}"


class Executor(Protocol):
    """Works through the parts of a plan."""

    def __call__(
        self,
        spec: RunSpec,
        parts: Sequence[Part],
        report: Callable[[Increments], None],
        n_workers: int,
        reference: Callable[[], Engine],
        ready: Callable[[], object],
    ) -> Iterator[PartRecord]:
        """Yield the record of each part when it is done, in any order.

        `report` receives the increments of progress. `reference` returns the reference engine,
        loaded at most once in this process. `ready`: called before anything is written, in this
        process; it may wait, or raise.
        """


class Run:
    """A run from its plan to its manifest.

    `reference` returns the reference engine. `start_s`, `start_cpu_s`: when the run began, by
    `time.perf_counter` and in CPU seconds of this process.
    """

    def __init__(
        self,
        directory: Path,
        observer: Observer,
        execute: Executor,
        reference: Callable[[], Engine],
        n_workers: int,
        n_threads: int,
        start_s: float,
        start_cpu_s: float,
    ) -> None:
        self._reference = reference
        self._directory = directory
        self._observer = observer
        self._execute = execute
        self._n_workers = n_workers
        self._n_threads = n_threads
        self._start_s = start_s
        self._start_cpu_s = start_cpu_s
        self._stage_s: dict[str, StageSeconds] = {}
        self._n_done = 0

    def planned(self, plan: Plan) -> dict[str, Any]:
        """Work through the plan that stands in the directory; return the manifest."""
        complete = self._begin(plan)
        self._end_prepare()
        return complete or self._work(plan, lambda: plan)

    def while_compared(self, prepared: Prepared, *per_worker: int) -> dict[str, Any]:
        """Encode with the engine that is expected while it is compared; write once it is proven.

        Raises:
            OtherEngineError: no engine is expected, or it is not exact here: nothing was written.
        """
        if not holds_no_commits(self._directory):
            raise OtherEngineError  # an old dataset stays until the new engine is known
        with compare_remembered(prepared, self._reference, self._n_threads) as compared:

            @cache
            def proven() -> Plan:
                timer = StageTimer()
                plan = Plan(prepared.spec(compared.result(), *per_worker), prepared.parts)
                timer.end("prepare")  # the wait: that much of the comparison was not hidden
                add_seconds(self._stage_s, timer.seconds | compared.seconds)
                begin_run(self._directory, plan)
                self._begin(plan)
                return plan

            expected = Plan(prepared.spec(compared.expected, *per_worker), prepared.parts)
            self._end_prepare()
            try:
                return self._work(expected, proven)
            except KeyboardInterrupt:
                raise
            except BaseException:
                compared.result()  # if the engine is another one, the error may be due to this one
                raise

    def _end_prepare(self) -> None:
        """Set the seconds of everything before the parts."""
        wall_s, cpu_s = time.perf_counter() - self._start_s, cpu_seconds() - self._start_cpu_s
        self._stage_s = {"prepare": StageSeconds(wall_s, cpu_s, self._start_s)}

    def _begin(self, plan: Plan) -> dict[str, Any] | None:
        complete, self._n_done = _clean_output(plan, self._directory, self._observer.warned)
        self._observer.started(plan, self._n_done)
        return complete

    def _work(self, plan: Plan, proven: Callable[[], Plan]) -> dict[str, Any]:
        """Run the parts and finish; `proven` returns the plan once it stands in the directory."""
        limit = RejectLimit(plan, self._observer.progressed)
        n_workers, reference = self._n_workers, self._reference
        with explain_interrupt(plan, self._directory):
            found = self._execute(
                plan.spec, plan.parts, limit.progressed, n_workers, reference, proven
            )
            records = _all_records(plan, found, limit, self._directory)
            plan = proven()
            usage = Usage(
                time.perf_counter() - self._start_s,
                cpu_seconds() - self._start_cpu_s,
                self._observer.peak_memory_bytes(),
                self._n_done,
                limit.text_bytes,
                n_workers,
                self._stage_s | limit.stage_s,
            )
            probe_ids = reference().encode(pa.array([PROBE_TEXT], pa.large_string())).ids
            return finish(plan, records, probe_ids.tolist(), usage, mask_entry(plan, reference))


def _clean_output(
    plan: Plan, directory: Path, warn: Callable[[str], None]
) -> tuple[dict[str, Any] | None, int]:
    """Remove what stopped attempts left; return the manifest if complete, and the parts done."""
    owned = OwnedNames(len(plan.parts), plan.spec.config.sft is not None)
    manifest = complete_manifest(directory, owned, warn)
    for name in FOLDERS:
        make_directory(directory / name)
    remove_leftovers(directory)
    n_done = sum(_is_done(plan, part, directory) for part in plan.parts)
    if manifest is not None and n_done == len(plan.parts):
        return manifest, n_done
    refuse_foreign_files(directory, owned)  # a manifest may stand beside missing records
    remove_file(directory / MANIFEST)  # the dataset is incomplete from here on
    return None, n_done


def _is_done(plan: Plan, part: Part, directory: Path) -> bool:
    path = directory / PARTS / part_name(part.index)
    return (
        path.exists() and read_committed(path, part.fingerprint(plan.spec), directory) is not None
    )


def _all_records(
    plan: Plan, found: Iterable[PartRecord], limit: RejectLimit, directory: Path
) -> list[PartRecord]:
    """Return the records of all parts, in order, as soon as all are done."""
    try:
        records = sorted(found, key=lambda record: record.part)
    except RecordError:
        remove_leftovers(directory)
        for file in dict.fromkeys(piece.file for part in plan.parts for piece in part.slices):
            if not is_store(file.path):  # that would be a request each
                check_unchanged(file)  # a file that was replaced explains its rejects
        raise
    except BaseException:
        remove_leftovers(directory)  # of workers that were killed
        raise
    try:
        limit.check_at_end()
    except RecordError:
        check_all_read(plan, records)  # a broken file explains its rejects: a better message
        raise
    return records


def mask_entry(plan: Plan, reference: Callable[[], Engine]) -> dict[str, Any] | None:
    """Return the manifest's entry about masks; None for pretraining."""
    if plan.spec.config.sft is None:
        return None
    from tokmill.recipes.mask_entry import describe_mask

    return describe_mask(plan.spec, reference())


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
