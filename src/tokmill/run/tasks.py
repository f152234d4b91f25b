"""A run as an array of tasks on many machines: plan, work on a share, look, finish.

The tasks meet in the place of the dataset alone: `plan.json` there says all that they need. Each
takes every n-th part and commits it as any run does, so a task may be killed, started again or
started twice. One process finishes: it sums up, packs, and writes the manifest.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.machine import usable_memory
from tokmill.dataset.canonical import canonical_json
from tokmill.dataset.layout import MANIFEST, PARTS, PLAN
from tokmill.dataset.plan_file import OwnedNames
from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError, StorageError, TokmillError, UsageError
from tokmill.recipes.engines import reference_loader
from tokmill.recipes.spec import Increments, RunSpec
from tokmill.run.begin import Begun, begun, check_installed, output_place, planned_engine
from tokmill.run.compare_plans import check_same
from tokmill.run.output import NOTE, changed_parts, records_of_parts, refuse_foreign
from tokmill.run.part import as_resumed, check_plan
from tokmill.run.plan import Plan, planned_parts, read_plan
from tokmill.run.prepare import extensions_of
from tokmill.run.task_entry import read_task
from tokmill.run.whole_run import cpu_seconds, finished_run, kept
from tokmill.run.workers import workers_and_threads
from tokmill.settings.schema import RunSettings
from tokmill.version import __version__
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Part
    from tokmill.run.begin import Observer
    from tokmill.run.whole_run import Executor
    from tokmill.settings.schema import Config

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class ArrayStatus:
    """What the parts of a run have come to, by number.

    Attributes:
        directory: the output, a directory or a URL without secrets.
        parts: how many the plan has.
        done: those that are committed.
        running: those not done of tasks that have begun; one that was killed still counts.
        failed: those not done of tasks that stopped with an error.
        missing: all others.
        tasks: a line for each task that has begun and not ended well: since when, where, its error.
        is_finished: whether the manifest is written.
    """

    directory: str
    parts: int
    done: tuple[int, ...]
    running: tuple[int, ...]
    failed: tuple[int, ...]
    missing: tuple[int, ...]
    tasks: tuple[str, ...]
    is_finished: bool

    @property
    def undone(self) -> tuple[int, ...]:
        """Return the parts that are not done."""
        return tuple(sorted((*self.running, *self.failed, *self.missing)))


@dataclass(frozen=True, slots=True)
class _Note:
    """What a task says of itself in a hidden file of `parts/`, until it has ended well."""

    index: int
    n_tasks: int
    host: str
    since: str
    error: str = ""

    @property
    def name(self) -> str:
        return f"{PARTS}/{NOTE}{self.index}-of-{self.n_tasks}.json"

    def as_bytes(self) -> bytes:
        return canonical_json(
            {
                "index": self.index,
                "of": self.n_tasks,
                "host": self.host,
                "since": self.since,
                "error": self.error,
            }
        )

    def line(self) -> str:
        task = f"task {self.index} of {self.n_tasks} on {self.host}"
        return f"{task}: {self.error}" if self.error else f"{task}: begun {self.since}"


def plan_array(config: Config, observer: Observer, *, overwrite: bool = False) -> Plan:
    """Write the plan of a run into its place, or find that it is there; return it.

    The plan of the same run with other limits, which decide no byte, is replaced: tasks that are
    working then stop, and go on when they are started again. That of a finished dataset stays.

    Raises:
        UsageError: the input is standard input.
        TokmillError: see `make_dataset`.
    """
    if "-" in config.input.all_paths:
        raise UsageError("standard input: tasks on other machines cannot read it: give files")
    with begun(config, observer, overwrite=overwrite) as run:
        content = b"".join(run.plan.chunks())
        if run.place.size(MANIFEST) is None and content != run.place.read(PLAN):
            run.place.write(PLAN, content)
        return run.plan


def read_planned(place: Place, run: RunSettings | None = None) -> Plan:
    """Return the plan that stands in a place, as this machine will work on it.

    `run`: how it works; None: by its cores. Threads and memory are set by `for_machine`.

    Raises:
        UsageError: there is no plan.
        StateError: the plan is damaged, or of another version of tokmill, of the engine, of the
            reference or of the parser than is installed here.
    """
    where = f"{place.where}/{PLAN}"
    stamp = place.stamp(PLAN)
    written = read_plan(place)
    if written is None:
        raise UsageError(
            f"{where}: no such plan: write it first, on one machine (tokmill plan … --output "
            f"{place.where} --write); if that was done, this machine sees another place under this "
            "name: mount the same directory, or give the same endpoint and credentials"
        )
    if written["tokmill_version"] != __version__:
        raise StateError(
            f"{where}: written by tokmill {written['tokmill_version']}, installed on "
            f"{platform.node()} is {__version__}: install that version on every machine"
        )
    try:
        plan = _plan_of(written, place, run or RunSettings(), stamp)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"{where}: damaged ({error!r}): plan the run again") from None
    check_same(written, plan, place.where)
    return plan


def _plan_of(written: dict[str, Any], place: Place, run: RunSettings, stamp: str) -> Plan:
    task = read_task(written, f"{place.where}/{PLAN}")
    engine = planned_engine(written, "auto")
    try:
        check_installed(written, engine, task.tokenizer)
    except StateError as error:
        raise StateError(f"{platform.node()}: {error}") from None
    output = replace(task.config.output, dir=place.where)
    config = replace(task.config, run=run, output=output)
    formats = {row[1] for row in written["files"]}
    spec = RunSpec(
        config,
        task.tokenizer,
        engine,
        n_threads=1,
        template=task.template,
        is_named=task.is_named,
        labels=task.labels,
        extensions=extensions_of(config, engine.name, formats, task.readings),
        plan_stamp=stamp,
        readings=task.readings,
    )
    return Plan(spec, planned_parts(written))


def run_share(
    output: str, index: int, n_tasks: int, observer: Observer, execute: Executor
) -> tuple[PartRecord, ...]:
    """Work on the share of task `index` of `n_tasks`; return the records of its parts.

    Raises:
        UsageError: `index` is not one of 0 to `n_tasks` - 1, or there is no task or no plan.
        StateError: see `read_planned`; or a whole run writes to the place.
        TokmillError: see `run_part`; parts that are done stay.
    """
    if n_tasks < 1:
        raise UsageError(f"--of {n_tasks}: expected 1 or more")
    if not 0 <= index < n_tasks:
        raise UsageError(f"--index {index}: expected 0 to {n_tasks - 1}, as --of is {n_tasks}")
    with _planned(output, is_shared=True, part_of=(index, n_tasks)) as run:
        place, share = run.place, run.plan
        check = partial(check_plan, place, share.spec.plan_stamp)
        entries = place.entries()
        records = records_of_parts(
            share, place, entries, check if MANIFEST not in entries else None
        )
        observer.started(share, len(records))
        for record in records.values():
            observer.progressed(as_resumed(record.total()))
        left = [part for part in share.parts if part.index not in records]
        if left:
            with _noted(place, share, index, n_tasks):
                try:
                    for record in execute(
                        share.spec, left, observer.progressed, run.n_workers, run.reference
                    ):
                        records[record.part] = record
                except KeyboardInterrupt:
                    raise KeyboardInterrupt(kept(share, place, len(records))) from None
                for name in changed_parts(place, records.values(), check).values():
                    raise StorageError(
                        f"{place.where}/{name}: changed or removed while this task worked: start "
                        "it again"
                    )
        return tuple(records[part.index] for part in share.parts)


def array_status(output: str) -> ArrayStatus:
    """Return what the parts of the run in a place have come to.

    Raises:
        TokmillError: there is no plan that can be read here.
    """
    place = output_place(output)
    plan = read_planned(place)
    entries = place.entries()
    done = records_of_parts(plan, place, entries)
    undone = [part.index for part in plan.parts if part.index not in done]
    notes = list(_notes(place, entries))
    states = {
        part: {bool(note.error) for note in notes if part % note.n_tasks == note.index}
        for part in undone
    }
    return ArrayStatus(
        place.where,
        len(plan.parts),
        tuple(sorted(done)),
        tuple(part for part in undone if False in states[part]),
        tuple(part for part in undone if states[part] == {True}),
        tuple(part for part in undone if not states[part]),
        tuple(note.line() for note in notes),
        MANIFEST in entries,
    )


def finish_array(output: str, observer: Observer) -> dict[str, Any]:
    """Finish the run in a place once all parts are done; return its manifest.

    Raises:
        StateError: parts are missing, or tasks are running.
        TokmillError: see `finish`.
    """
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    with _planned(output) as run:
        return finished_run(run, observer, _none_left, start_s, start_cpu_s)


def _none_left(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
    reference: Callable[[], Engine],
) -> Iterator[PartRecord]:
    """Make no part; an `Executor` for a run whose parts are done."""
    undone = [part.index for part in parts]
    named = ", ".join(map(str, undone[:_MOST_NAMED])) + ", …" * (len(undone) > _MOST_NAMED)
    raise StateError(
        f"{spec.config.output.dir}: {plural(len(undone), 'part')} "
        f"{'is' if len(undone) == 1 else 'are'} not done: {named}: start their tasks again "
        f"(tokmill status {spec.config.output.dir} says more), then finish"
    )
    yield


@contextlib.contextmanager
def _planned(
    output: str, *, is_shared: bool = False, part_of: tuple[int, int] = (0, 1)
) -> Iterator[Begun]:
    """Hold a place, and yield its plan with the parts of a share."""
    index, n_tasks = part_of
    place = output_place(output)
    try:
        plan = read_planned(place)
        owned = OwnedNames(len(plan.parts), plan.spec.config.sft is not None)
        refuse_foreign(place, place.entries(), owned)
        plan = replace(plan, parts=plan.parts[index::n_tasks])
        workers, threads = workers_and_threads(plan.spec.config, plan.parts)
        spec = replace(
            plan.spec, n_threads=threads, memory_bytes=usable_memory() // max(1, workers)
        )
        with place.held(is_shared=is_shared), engine_threads(threads):
            check_plan(place, spec.plan_stamp)
            place.make_folders()
            reference = reference_loader(spec, spec.tokenizer)
            yield Begun(place, replace(plan, spec=spec), workers, reference)
    finally:
        place.close()


@contextlib.contextmanager
def _noted(place: Place, share: Plan, index: int, n_tasks: int) -> Iterator[None]:
    """Keep a note of a task for `array_status` while it works, and with its error if it fails."""
    since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    note = _Note(index, n_tasks, platform.node(), since)
    place.write(note.name, note.as_bytes())
    try:
        yield
    except TokmillError as error:
        with contextlib.suppress(TokmillError):  # the disk may be full: the first error counts
            check_plan(place, share.spec.plan_stamp)  # no note in the dataset of another run
            place.write(note.name, replace(note, error=str(error)).as_bytes())
        raise
    except BaseException:  # an interrupt is no failure: the task is started again
        place.remove(note.name)
        raise
    place.remove(note.name)


def _notes(place: Place, entries: dict[str, int | None]) -> Iterator[_Note]:
    for name in entries:
        if name.startswith(f"{PARTS}/{NOTE}"):
            with contextlib.suppress(
                FileNotFoundError, ValueError, KeyError, TypeError, RecursionError
            ):
                data = json.loads(place.read(name))
                note = _Note(
                    int(data["index"]), int(data["of"]), str(data["host"]), str(data["since"]),
                    str(data["error"]),
                )  # fmt: skip
                if 0 <= note.index < note.n_tasks:
                    yield note
