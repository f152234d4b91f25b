"""A run from its settings to its manifest: begin or continue, work through the parts, finish."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tokmill.dataset.layout import MANIFEST, PARTS, part_name
from tokmill.dataset.plan_file import OwnedNames
from tokmill.errors import RecordError, StorageError
from tokmill.interrupts import STDIN_STOPPED
from tokmill.run.begin import begun
from tokmill.run.finish import Usage, check_all_read, finish
from tokmill.run.output import (
    changed_parts,
    complete_manifest,
    records_of_parts,
    refuse_foreign,
    remove_leftovers,
    remove_notes,
)
from tokmill.run.part import as_resumed, check_plan
from tokmill.run.reject_limits import RejectLimit
from tokmill.sources.slices import check_unchanged
from tokmill.timing import StageSeconds
from tokmill.tokenizer.manifest_entry import PROBE_TEXT
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part, RunSpec
    from tokmill.run.begin import Begun, Observer
    from tokmill.run.plan import Plan
    from tokmill.settings.schema import Config

_TIMES = 2
"""How often parts are made: again, if a file of one was removed while the run went on."""


class Executor(Protocol):
    """Works through parts of a plan."""

    def __call__(
        self,
        spec: RunSpec,
        parts: Sequence[Part],
        report: Callable[[Increments], None],
        n_workers: int,
        reference: Callable[[], Engine],
    ) -> Iterator[PartRecord]:
        """Yield the record of each part when it is done, in any order.

        `report` receives the increments of progress. `reference` returns the reference engine,
        loaded at most once in this process.
        """


def make_dataset(
    config: Config, observer: Observer, execute: Executor, *, overwrite: bool = False
) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; parts that are done stay.
        KeyboardInterrupt: with a message about the parts that are kept.
    """
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    with begun(config, observer, overwrite=overwrite) as run:
        return finished_run(run, observer, execute, start_s, start_cpu_s)


def finished_run(
    run: Begun, observer: Observer, execute: Executor, start_s: float, start_cpu_s: float
) -> dict[str, Any]:
    """Make the parts of a plan that are not done, and write the manifest; return it.

    `start_s`, `start_cpu_s`: when the run began, by `time.perf_counter`, in CPU seconds.
    """
    place, plan = run.place, run.plan
    owned = OwnedNames(len(plan.parts), plan.spec.config.sft is not None)
    check = partial(check_plan, place, plan.spec.plan_stamp)
    complete = complete_manifest(place, place.entries(), owned, observer.warned, check)
    place.make_folders()
    remove_leftovers(place)
    entries = place.entries()
    records = records_of_parts(plan, place, entries, check)
    observer.started(plan, len(records))
    if complete is not None and len(records) == len(plan.parts):
        remove_notes(place)
        return complete
    refuse_foreign(place, entries, owned)  # a manifest may stand beside missing records
    check()
    place.remove(MANIFEST)  # the dataset is incomplete from here on
    prepare_s = StageSeconds(time.perf_counter() - start_s, cpu_seconds() - start_cpu_s, start_s)
    n_resumed = len(records)
    limit = RejectLimit(plan, observer.progressed)
    for record in records.values():
        limit.progressed(as_resumed(record.total()))
    try:
        _make_parts(run, observer, execute, limit, records)
    except KeyboardInterrupt:
        remove_leftovers(place)  # of workers that were killed
        raise KeyboardInterrupt(kept(plan, place, len(records))) from None
    except BaseException:
        remove_leftovers(place)
        raise
    in_order = [records[part.index] for part in plan.parts]
    try:
        limit.check_at_end()
    except RecordError:
        check_all_read(plan, in_order)  # a broken file explains its rejects: a better message
        raise
    usage = Usage(
        time.perf_counter() - start_s,
        cpu_seconds() - start_cpu_s,
        observer.peak_memory_bytes(),
        n_resumed,
        limit.text_bytes,
        run.n_workers,
        {"prepare": prepare_s, **limit.stage_s},
    )
    probe_ids = run.reference().encode(pa.array([PROBE_TEXT], pa.large_string())).ids
    manifest = finish(
        plan, place, in_order, probe_ids.tolist(), usage, _mask_entry(plan, run.reference)
    )
    remove_notes(place)
    return manifest


def _make_parts(
    run: Begun,
    observer: Observer,
    execute: Executor,
    limit: RejectLimit,
    records: dict[int, PartRecord],
) -> None:
    """Make the parts without a record, and put their records into `records`.

    Files that were removed or changed meanwhile, as by the late writer of an earlier plan, are made
    again.

    Raises:
        StorageError: they were again.
    """
    place, plan = run.place, run.plan
    for n_left in reversed(range(_TIMES)):
        left = [part for part in plan.parts if part.index not in records]
        try:
            for record in _executed(run, execute, left, limit.progressed):
                records[record.part] = record
        except RecordError:
            _check_inputs(plan, place)
            raise
        changed = changed_parts(
            place, records.values(), partial(check_plan, place, plan.spec.plan_stamp)
        )
        for index in changed:
            del records[index]
        if not changed:
            return
        name = next(iter(changed.values()))
        told = f"{place.where}/{name}: changed or removed while the run went on"
        if not n_left:
            raise StorageError(f"{told}, twice: run the same command again to make it again")
        observer.warned(f"{told}: {plural(len(changed), 'part')} {_are(len(changed))} made again")


def _executed(
    run: Begun,
    execute: Executor,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
) -> Iterator[PartRecord]:
    if parts:
        yield from execute(run.plan.spec, parts, report, run.n_workers, run.reference)


def _check_inputs(plan: Plan, place: Place) -> None:
    """Raise `StorageError` if a file was replaced, which explains its rejects."""
    for file in dict.fromkeys(piece.file for part in plan.parts for piece in part.slices):
        if file.stamp == "":  # an object in a store: that would be a request each
            check_unchanged(file)


def kept(plan: Plan, place: Place, n_done: int) -> str:
    """Return the message of an interrupt, about the parts that are kept.

    A worker may have written the record of a part that it could not report any more.
    """
    if place.mapped is not None:
        names = {f"{PARTS}/{part_name(part.index)}" for part in plan.parts}
        n_done = len(names & place.entries().keys())
    if any(piece.file.path == "-" for part in plan.parts[:1] for piece in part.slices):
        return STDIN_STOPPED
    if not n_done:
        return "interrupted; no part was done, so nothing is kept: the same command begins again"
    return (
        f"interrupted; {n_done:,} of {plural(len(plan.parts), 'part')} {_are(n_done)} kept: the "
        "same command continues"
    )


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _mask_entry(plan: Plan, reference: Callable[[], Engine]) -> dict[str, Any] | None:
    """Return the manifest's entry about masks; None for pretraining."""
    if plan.spec.config.sft is None:
        return None
    from tokmill.recipes.mask_entry import describe_mask

    return describe_mask(plan.spec, reference())


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
