"""Begin a run in a place, or continue the one that the place holds.

A run continues with the engine, the checksum algorithm and the Hub revisions of its `plan.json`,
and only with the same inputs and output-affecting settings. Parts whose records stand in `parts/`
are kept.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tokmill.bill.measuring.machine import usable_memory
from tokmill.dataset.layout import LOCK_NAME, MANIFEST, PLAN
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import REFERENCE, engine_row, engine_threads, engine_version
from tokmill.errors import StateError, UsageError
from tokmill.place import open_place
from tokmill.run.choose_engine import choose_run_engine
from tokmill.run.compare_plans import check_same
from tokmill.run.disk_checks import check_file_system, check_space
from tokmill.run.output import (
    holds_only_plan,
    owned_names,
    refuse_foreign,
    remove_dataset,
)
from tokmill.run.plan import Plan, read_plan
from tokmill.run.prepare import prepare, reference_of
from tokmill.run.workers import workers_and_threads
from tokmill.settings.schema import CHECKSUMS, OutputSettings
from tokmill.sources.hub import is_hub
from tokmill.sources.json_lines import parser_entry
from tokmill.urls import check_output
from tokmill.words.plural import plural
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.place import Place
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part
    from tokmill.run.prepare import Prepared
    from tokmill.settings.schema import Config
    from tokmill.tokenizer.tokenizer import Tokenizer


class Observer(Protocol):
    """Receives news of a run while it goes on."""

    def warned(self, text: str) -> None:
        """Receive a warning."""

    def noted(self, text: str) -> None:
        """Receive a line about the input or the choice of the engine, before the run begins."""

    def started(self, plan: Plan, n_done: int) -> None:
        """Receive the plan, and how many parts earlier attempts finished."""

    def progressed(self, progress: Increments) -> None:
        """Receive increments."""

    def peak_memory_bytes(self) -> int:
        """Return the peak memory of the process tree so far, 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A run whose plan stands in its place, which is held. `reference` loads the reference."""

    place: Place
    plan: Plan
    n_workers: int
    reference: Callable[[], Engine]


def output_place(output: str) -> Place:
    """Return the place of a run's dataset; raises `UsageError`."""
    if not output:
        raise UsageError("no output: give --output, a directory to write the dataset to")
    check_output(output)
    return open_place(output)


@contextmanager
def begun(config: Config, observer: Observer, *, overwrite: bool) -> Iterator[Begun]:
    """Prepare a run, hold its place, and yield its plan, which then stands in the place.

    Raises:
        TokmillError: nothing was changed in the place.
    """
    place = output_place(config.output.dir)
    try:
        prepared = prepare(config, hub_commits(config, place, overwrite=overwrite))
        for warning in prepared.found.warnings:
            observer.warned(warning)
        for line in (input_line(prepared.parts), *prepared.all_notes()):
            observer.noted(line)
        entries = place.entries()
        if LOCK_NAME not in entries and owned_names(place, entries) is None:
            refuse_foreign(place, entries, None)  # before a lock is put there
        workers, threads = workers_and_threads(prepared.config, prepared.parts)
        with place.held(), engine_threads(threads):
            reference = reference_of(prepared)
            per_worker = (threads, usable_memory() // workers)
            plan = _plan(place, prepared, reference, observer, *per_worker, overwrite=overwrite)
            yield Begun(place, plan, workers, reference)
    finally:
        place.close()


def input_line(parts: Sequence[Part]) -> str:
    """Return a line about the files of a run and their size."""
    slices = [piece for part in parts for piece in part.slices]
    n_bytes = sum(piece.n_bytes for piece in slices)
    is_known = n_bytes or not any(piece.file.is_stream for piece in slices)
    files = plural(len({piece.file.path for piece in slices}), "file")
    amount = size(n_bytes) if is_known else "size unknown"
    return f"input: {files}, {amount}, in {plural(len(parts), 'part')}"


def _plan(
    place: Place,
    prepared: Prepared,
    reference: Callable[[], Engine],
    observer: Observer,
    n_threads: int,
    memory_bytes: int,
    *,
    overwrite: bool,
) -> Plan:
    """Return the plan of the run that a held place holds, or write that of a new one."""
    entries = place.entries()
    if place.mapped is not None and (overwrite or MANIFEST not in entries):
        check_file_system(place.mapped)
        check_space(prepared, reference, place.mapped, observer.warned)
    stamp = place.stamp(PLAN)  # before it is read: it may be replaced meanwhile
    earlier = None if overwrite or holds_only_plan(entries) else read_plan(place)
    if earlier is not None:
        _refuse_stdin(prepared, place)
        engine = planned_engine(earlier, prepared.config.run.engine)
        check_installed(earlier, engine, prepared.tokenizer)
        prepared = _with_planned_checksum(earlier, prepared, place, observer.warned)
        plan = Plan(prepared.spec(engine, n_threads, memory_bytes), prepared.parts)
        check_same(earlier, plan, place.where)
        return _stamped(plan, stamp)
    refuse_foreign(place, entries, owned_names(place, entries))
    engine = choose_run_engine(prepared, reference, n_threads, observer.noted)
    reference()  # the library may still refuse the tokenizer
    plan = Plan(prepared.spec(engine, n_threads, memory_bytes), prepared.parts)
    remove_dataset(place, entries)  # as late as possible: an error keeps an old dataset
    if not place.create(PLAN, plan.chunks()):
        raise StateError(f"{place.where}/{PLAN}: another run has just begun here: wait for its end")
    return _stamped(plan, place.stamp(PLAN))


def _stamped(plan: Plan, stamp: str) -> Plan:
    return replace(plan, spec=replace(plan.spec, plan_stamp=stamp))


def hub_commits(config: Config, place: Place, *, overwrite: bool) -> dict[str, str]:
    """Return the commits of Hub datasets, by path, that the run in a place began with."""
    if overwrite or not any(is_hub(path) for path in config.input.all_paths):
        return {}
    earlier = {} if holds_only_plan(place.entries()) else read_plan(place) or {}
    rows = (row for row in earlier.get("files", ()) if isinstance(row, list) and len(row) >= 6)
    return {str(row[0]): str(row[5]) for row in rows if row[1] == "hub"}


def _refuse_stdin(prepared: Prepared, place: Place) -> None:
    """Refuse to continue a run of standard input: its content cannot be compared."""
    if any(file.path == "-" for file in prepared.files):
        raise StateError(
            f"{place.where}: holds a run already, and standard input cannot be continued: "
            "choose another --output, or run with --overwrite to start again"
        )


def planned_engine(earlier: dict[str, Any], asked: str) -> EngineChoice:
    """Return the engine of a plan.

    Raises:
        StateError: another one is asked for, or the plan is damaged.
    """
    try:
        engine = EngineChoice.from_json(earlier["engine"])
    except TypeError as error:
        raise StateError(f"{PLAN}: damaged ({error}): run with --overwrite") from None
    if asked not in ("auto", engine.name):
        raise StateError(
            f"the run in this directory began with engine {engine.name}, asked for is {asked}: "
            "leave --engine out to continue, or run with --overwrite to start again"
        )
    return engine


def check_installed(earlier: dict[str, Any], engine: EngineChoice, tokenizer: Tokenizer) -> None:
    """Check that the planned versions of engine, reference and parser are installed.

    `check_same` compares an engine of another package.

    Raises:
        StateError: another version is installed here.
    """
    parser = parser_entry()
    planned_parser = earlier.get("parser", parser)  # an import parses nothing: it names none
    try:
        is_own = engine_row(engine.name)[1] is None
    except UsageError as error:
        message = f"the run in this directory began with engine {engine.name}: {error}"
        raise StateError(message) from None
    reader = f"the JSON parser {planned_parser['name']}"
    versions = [(reader, planned_parser["version"], parser["version"])]
    if is_own:
        versions.append((engine.name, engine.version, engine_version(engine.name, tokenizer)))
    if engine.reference:
        versions.append((REFERENCE, engine.reference, engine_version(REFERENCE, tokenizer)))
    for name, planned, installed in versions:
        if installed != planned:
            raise StateError(
                f"the run in this directory began with {name} {planned}, installed is {installed}: "
                "install that version, or run with --overwrite to start again"
            )


def _with_planned_checksum(
    earlier: dict[str, Any], prepared: Prepared, place: Place, warn: Callable[[str], None]
) -> Prepared:
    """Return the run with the checksum algorithm of its plan: a dataset has one.

    Raises:
        StateError: this version does not know the algorithm.
    """
    planned = earlier["checksum"]
    if planned not in CHECKSUMS:
        raise StateError(
            f"{PLAN}: its files have sums by {planned!r}, this tokmill knows "
            f"{', '.join(CHECKSUMS)}: install a newer tokmill, or run with --overwrite"
        )
    asked = prepared.config.output.checksum
    if asked not in (planned, OutputSettings().checksum):
        warn(
            f"{place.where}: this run began with checksums by {planned} and continues with them, "
            f"not {asked}: --overwrite starts again"
        )
    return prepared.with_checksum(planned)
