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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import canonical_json
from tokmill.dataset.contents import NOTE, is_note
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import MANIFEST, PARTS, PLAN
from tokmill.dataset.lock import RUN, TASKS
from tokmill.dataset.made_by import RUN as A_RUN
from tokmill.dataset.made_by import maker_of
from tokmill.dataset.plan_file import OwnedNames
from tokmill.engines.engine import engine_threads
from tokmill.errors import TokmillError, UsageError
from tokmill.machine.limits import usable_memory
from tokmill.rendering.user_functions import local_function
from tokmill.run.begin import Begun, begun, output_place, read_planned, used_seconds, written_plan
from tokmill.run.finish import finished_run, made_parts
from tokmill.run.mixes import MixPlan
from tokmill.run.output import records_of_parts, refuse_foreign
from tokmill.run.plan import Plan, check_plan, code_named_by, plan_of_file
from tokmill.run.prepare import workers_and_threads
from tokmill.run.stopped_rejects import naming_rejects
from tokmill.settings.schema import Config, RunSettings
from tokmill.sources.hub import HUB_PREFIX
from tokmill.storage import status_inside
from tokmill.urls import is_store
from tokmill.words import in_utc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.run.begin import Observer
    from tokmill.run.imports import ImportSettings
    from tokmill.run.output import Planned

_NOTE_KEYS = {"index": int, "of": int, "host": str, "since": str, "error": str}


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
        is_working: whether a whole run, which is no array, is writing here now; its parts that are
            not done count as running.
        are_tasks_working: whether tasks are writing here now.
        last_written: of a store, which cannot say that, the time of its newest object.
        made_by: what these parts are of: `a run`, `a mix` or `an import`. Those of a mix are not
            shared out to tasks: the call that began it continues it.
        totals: what the parts that are done hold; `total_bytes`: of the whole input.
        elapsed_s: seconds since the plan was written, 0 if unknown.
        code: dotted paths that the plan names, such as `my_render:render`: `run_part` and `finish`
            import them only if they are told to.
    """

    directory: str
    parts: int
    done: tuple[int, ...]
    running: tuple[int, ...]
    failed: tuple[int, ...]
    missing: tuple[int, ...]
    tasks: tuple[str, ...]
    is_finished: bool
    code: tuple[str, ...] = ()
    is_working: bool = False
    are_tasks_working: bool = False
    last_written: str = ""
    made_by: str = A_RUN
    totals: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def undone(self) -> tuple[int, ...]:
        """Return the parts that are not done."""
        return tuple(sorted((*self.running, *self.failed, *self.missing)))


def plan_array(
    config: Config | ImportSettings, observer: Observer, *, overwrite: bool = False
) -> Plan:
    """Write the plan of a run into its place, or find that it is there; return it.

    The plan of the same run with other limits, which decide no byte, is replaced: tasks that are
    working then stop, and go on when they are started again. That of a finished dataset stays.

    Raises:
        UsageError: the input is standard input, or only this process has a function of the run.
        TokmillError: see `finished_run`.
    """
    if isinstance(config, Config) and "-" in config.input.all_paths:
        raise UsageError("standard input: tasks on other machines cannot read it: give files")
    if isinstance(config, Config) and (function := local_function(config)):
        raise UsageError(
            f"{function}: tasks cannot import a function of __main__, a notebook cell or a lambda: "
            "put it into a module"
        )
    with begun(config, observer, overwrite=overwrite) as run:
        content = b"".join(run.plan.chunks())
        if not run.place.stamp(MANIFEST) and content != run.place.read(PLAN):
            run.place.write(PLAN, content)
        return run.plan


def run_share(
    output: str, index: int, n_tasks: int, observer: Observer, allowed: Collection[str] = ()
) -> tuple[PartRecord, ...]:
    """Work on the share of task `index` of `n_tasks`; return the records of its parts.

    `allowed`: dotted paths that may be imported if the plan names them.

    Raises:
        UsageError: `index` is not one of 0 to `n_tasks` - 1, or there is no task or no plan; or the
            plan names code that is not allowed.
        StateError: see `read_planned`; or a whole run writes to the place.
        TokmillError: see `run_part`; parts that are done stay.
    """
    if n_tasks < 1:
        raise UsageError(f"--of {n_tasks}: expected 1 or more")
    if not 0 <= index < n_tasks:
        raise UsageError(f"--index {index}: expected 0 to {n_tasks - 1}, as --of is {n_tasks}")
    with _planned(output, allowed, is_shared=True, part_of=(index, n_tasks)) as run:
        place, share = run.place, run.plan
        entries = place.entries()
        is_finished = MANIFEST in entries
        records, _ = records_of_parts(share, place, entries, None if is_finished else run.check)
        observer.started(share, len(records))
        is_done = len(records) == len(share.parts)
        noted = contextlib.nullcontext() if is_done else _noted(run, index, n_tasks)
        with _for_tasks(share), naming_rejects(place, share.parts), noted:
            records = made_parts(run, observer, observer.progressed, records)
        return tuple(records[part.index] for part in share.parts)


def array_status(output: str) -> ArrayStatus:
    """Return what the parts of the run in a place have come to; runs no code of the user.

    Raises:
        TokmillError: there is no plan that can be read here.
    """
    place = output_place(output)
    written, stamp = written_plan(place)
    plan: Planned
    code: tuple[str, ...] = ()
    if written.mix is not None:
        plan = MixPlan.of(written)
    else:
        plan = of_run = plan_of_file(written, stamp, place, RunSettings())
        code = code_named_by(of_run)
    entries = place.entries()
    done, undone = records_of_parts(plan, place, entries)
    notes = _notes(place, entries)
    holder, last_written = place.holder(), place.last_written()
    states = {
        part: {bool(note["error"]) for note in notes if part % note["of"] == note["index"]}
        for part in undone
    }
    if holder == RUN:
        states = {part: {False} for part in undone}
    return ArrayStatus(
        place.where,
        len(plan.parts),
        tuple(sorted(done)),
        running=tuple(part for part, has_failed in states.items() if False in has_failed),
        failed=tuple(part for part, has_failed in states.items() if has_failed == {True}),
        missing=tuple(part for part, has_failed in states.items() if not has_failed),
        tasks=tuple(
            f"task {note['index']} of {note['of']} on {note['host']}: "
            + (note["error"] or f"begun {note['since']}")
            for note in notes
        ),
        is_finished=MANIFEST in entries,
        code=code,
        made_by=maker_of(written.engine.name),
        is_working=holder == RUN,
        are_tasks_working=holder == TASKS,
        last_written="" if last_written is None else in_utc(last_written),
        totals=_totals(plan, done.values()),
        elapsed_s=_seconds_since_plan(place),
    )


def _totals(plan: Planned, records: Iterable[PartRecord]) -> dict[str, int]:
    """Return the sums of some parts, and the bytes of the input of all."""
    total = Counts()
    for record in records:
        total.add(record.total())
    return {
        "total_bytes": sum(piece.n_bytes for part in plan.parts for piece in part.slices),
        "input_bytes": total.input_bytes,
        "text_bytes": total.text_bytes,
        "tokens": total.tokens,
        "documents": total.documents,
        "drops": total.drops.total(),
        "rejects": total.rejects.total(),
    }


def _seconds_since_plan(place: Place) -> float:
    """Return how long ago the plan of a directory was written; 0 for a store."""
    if place.mapped is None:
        return 0.0
    status = status_inside(place.mapped, PLAN)
    return 0.0 if status is None else max(0.0, time.time() - status.st_mtime)


def finish_array(output: str, observer: Observer, allowed: Collection[str] = ()) -> Manifest:
    """Finish the run in a place once all parts are done; return its manifest.

    `allowed`: see `run_share`.

    Raises:
        UsageError: there is no plan, or it names code that is not allowed.
        StateError: parts are missing, or tasks are running.
        TokmillError: see `finished_run`.
    """
    with _planned(output, allowed) as run:
        return finished_run(run, observer, is_array=True)


@contextlib.contextmanager
def _planned(
    output: str,
    allowed: Collection[str],
    *,
    is_shared: bool = False,
    part_of: tuple[int, int] = (0, 1),
) -> Iterator[Begun]:
    """Hold a place, and yield its plan with the parts of a share."""
    (index, n_tasks), start = part_of, used_seconds()
    with contextlib.closing(output_place(output)) as place:
        plan = read_planned(place)
        _refuse_code(plan, allowed)
        owned = OwnedNames(len(plan.parts), plan.spec.config.sft is not None)
        refuse_foreign(place, place.entries(), owned)
        parts = plan.parts[index::n_tasks]
        workers, threads = workers_and_threads(plan.spec.config, parts)
        spec = replace(plan.spec, n_threads=threads, memory_bytes=usable_memory() // workers)
        with place.held(is_shared=is_shared), engine_threads(threads):
            check_plan(place, spec.plan_stamp)
            place.make_folders()
            yield Begun(place, replace(plan, spec=spec, parts=parts), workers, start)


def _refuse_code(plan: Plan, allowed: Collection[str]) -> None:
    """Refuse a plan that names code, unless the command names it too.

    A plan may come from a stranger, or have been changed by whoever can write to its place.

    Raises:
        UsageError: says which code, and how to allow it.
    """
    code = [name for name in code_named_by(plan) if name not in allowed]
    if code:
        raise UsageError(
            f"{plan.spec.config.output.dir}/{PLAN}: names code, {', '.join(code)}, which was not "
            f"run: if you know it, run this command with --allow-code={','.join(code)}"
        )


@contextlib.contextmanager
def _for_tasks(plan: Plan) -> Iterator[None]:
    """Add to an error what somebody must know who did not plan the run himself."""
    try:
        yield
    except TokmillError as error:
        message = str(error.args[0])
        if "--overwrite" in message:
            message += " (an option of the command that wrote the plan)"
        files = [piece.file.path for part in plan.parts for piece in part.slices]
        if any(_is_lost(path) for path in files):
            message += (
                f"; the plan has relative paths, and this task runs in {Path.cwd()}: start it "
                "where the run was planned"
            )
        error.args = (message, *error.args[1:])
        raise


def _is_lost(path: str) -> bool:
    """Return whether a path is relative to a directory, and leads nowhere from here."""
    is_elsewhere = is_store(path) or path.startswith(HUB_PREFIX)
    return not is_elsewhere and not Path(path).is_absolute() and not Path(path).exists()


# What a task says of itself in a hidden file of `parts/`, until it has ended well


@contextlib.contextmanager
def _noted(run: Begun, index: int, n_tasks: int) -> Iterator[None]:
    """Keep a note of a task for `array_status` while it works, and with its error if it fails."""
    place, name = run.place, f"{PARTS}/{NOTE}{index}-of-{n_tasks}.json"
    note = {"index": index, "of": n_tasks, "host": platform.node(), "error": ""}
    note["since"] = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    place.write(name, canonical_json(note))
    try:
        yield
    except TokmillError as error:
        with contextlib.suppress(TokmillError):  # the disk may be full: the first error counts
            run.check()  # no note in the dataset of another run
            place.write(name, canonical_json({**note, "error": str(error)}))
        raise
    except BaseException:  # an interrupt is no failure: the task is started again
        place.remove(name)
        raise
    place.remove(name)


def _notes(place: Place, entries: Mapping[str, int | None]) -> list[dict[str, Any]]:
    """Return the notes that can be read: files of others and damaged ones are none."""
    notes = []
    for name, n_bytes in entries.items():
        if n_bytes is not None and is_note(name):
            with contextlib.suppress(
                FileNotFoundError, ValueError, KeyError, TypeError, RecursionError
            ):
                note = json.loads(place.read(name))
                note = {key: kind(note[key]) for key, kind in _NOTE_KEYS.items()}
                if 0 <= note["index"] < note["of"]:
                    notes.append(note)
    return notes
