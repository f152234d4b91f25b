"""Begin a run in a place, or continue the one that the place holds.

A run continues with the engine and the Hub revisions of its `plan.json`, and only with the same
inputs and output-affecting settings. Parts whose records stand in `parts/` are kept.
"""

from __future__ import annotations

import errno
import os
import platform
import secrets
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokmill.dataset.contents import contents_of, owned_names, remove_contents
from tokmill.dataset.layout import KEPT_TOKENIZER, LOCK_NAME, MANIFEST, PLAN
from tokmill.dataset.made_by import check_versions, maker_in, no_plan, no_tasks
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import IMPORT, REFERENCE, engine_row, engine_threads, engine_version
from tokmill.errors import StateError, StorageError, TokmillError, UsageError
from tokmill.place import open_place
from tokmill.recipes.engines import reference_loader
from tokmill.run.output import holds_only_plan, refuse_foreign, refuse_other_makers
from tokmill.run.plan import (
    Plan,
    check_command,
    check_plan,
    check_rules,
    check_same,
    new_plan,
    plan_of_file,
    read_plan,
)
from tokmill.run.prepare import Prepared, choose_run_engine, prepare
from tokmill.run.sample import encoded_sample
from tokmill.run.stopped_rejects import remove_stopped_rejects
from tokmill.settings.schema import Config, RunSettings
from tokmill.sources.hub import is_hub
from tokmill.sources.json_lines import parser_entry
from tokmill.storage import UNSUPPORTED, free_bytes, remove_file, write_file
from tokmill.timing import StageSeconds
from tokmill.tokenizer.kept import keep_tokenizer, packed_tokenizer
from tokmill.urls import check_output
from tokmill.version import __version__
from tokmill.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokmill.dataset.counts import Increments
    from tokmill.dataset.place import Place
    from tokmill.dataset.plan_file import PlanFile
    from tokmill.recipes.spec import Part
    from tokmill.run.imports import ImportSettings, PreparedImport
    from tokmill.tokenizer.tokenizer import Tokenizer

_NOT_POSSIBLE = {
    *UNSUPPORTED, errno.EPERM, errno.EINVAL, errno.EXDEV, errno.EMLINK, errno.EBADF, errno.EEXIST,
}  # fmt: skip
"""Error numbers of a file system that lacks an operation."""

AMPLE = 100
"""If this many times the input is free, nothing is sampled: no usual corpus grows so much."""

SAMPLE_BYTES = 256 << 10

LEAST_SHARE = 0.5
"""A run is refused if even this share of the least prediction has no room."""


class Observer(Protocol):
    """Receives news of a run while it goes on."""

    def warned(self, text: str, *, always: bool = False) -> None:
        """Receive a warning; `always`: also if the user wants to see errors only."""

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
    """A run whose plan stands in its place, which is held; `start`: `used_seconds` at first."""

    place: Place
    plan: Plan
    n_workers: int
    start: StageSeconds

    def check(self) -> None:
        """Check that no other run took the place over; raises `StateError`."""
        check_plan(self.place, self.plan.spec.plan_stamp)


def used_seconds(since: StageSeconds | None = None) -> StageSeconds:
    """Return wall and CPU seconds, of this process and its ended children, since a moment.

    Without `since`: a moment.
    """
    now_s, times = time.perf_counter(), os.times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    if since is None:
        return StageSeconds(0.0, cpu_s, now_s)
    return StageSeconds(now_s - since.since_s, cpu_s - since.cpu_s, since.since_s)


def output_place(output: str) -> Place:
    """Return the place of a run's dataset; raises `UsageError`, and as `check_versions` does."""
    if not output:
        raise UsageError("no output: give --output, a directory to write the dataset to")
    check_output(output)
    place = open_place(output)
    try:
        check_versions(place, place.entries(()))
    except TokmillError:
        place.close()
        raise
    return place


@contextmanager
def begun(
    config: Config | ImportSettings, observer: Observer, *, overwrite: bool
) -> Iterator[Begun]:
    """Prepare a run, hold its place, and yield its plan, which then stands in the place.

    Raises:
        TokmillError: nothing was changed in the place.
    """
    start = used_seconds()
    output = config.output.dir if isinstance(config, Config) else config.output
    with closing(output_place(output)) as place:
        prepared: Prepared | PreparedImport
        if isinstance(config, Config):
            paths: Iterable[str] = config.input.all_paths
            prepared = prepare(config, hub_commits(paths, place, overwrite=overwrite))
        else:
            from tokmill.run.imports import prepare_import  # a run of text needs none of it

            paths = map(str, (*config.sources, *config.val))
            prepared = prepare_import(config, hub_commits(paths, place, overwrite=overwrite))
        for warning in prepared.discovery.warnings:
            observer.warned(warning)
        for warning in prepared.discovery.unmatched:
            observer.warned(warning, always=True)
        for line in (input_line(prepared.parts), *prepared.notes(with_fields=True)):
            observer.noted(line)
        entries = place.entries()
        if overwrite:
            check_inputs_stay(prepared, place)
            contents_of(place).check_replaceable()  # before a lock is put there
        elif LOCK_NAME not in entries and owned_names(place, entries) is None:
            refuse_foreign(place, entries, None)
        with place.held(), engine_threads(prepared.threads):
            plan = _plan(place, prepared, observer, overwrite=overwrite)
            yield Begun(place, plan, prepared.workers, start)


def check_inputs_stay(prepared: Prepared | PreparedImport, place: Place) -> None:
    """Check that no input, and no tokenizer, stands in the place whose contents are replaced.

    Raises:
        StateError: names the first that does.
    """
    if place.mapped is None:
        return
    output = place.mapped.resolve()
    named = [file.path for file in prepared.discovery.files]
    for path in map(Path, (*named, prepared.config.tokenizer.path)):
        if path.exists() and output in path.resolve().parents:
            raise StateError(
                f"{path}: is inside {place.where}, which would be replaced: name another output"
            )


def input_line(parts: Sequence[Part]) -> str:
    """Return a line about the files of a run and their size."""
    slices = [piece for part in parts for piece in part.slices]
    n_bytes = sum(piece.n_bytes for piece in slices)
    is_known = n_bytes or not any(piece.file.is_stream for piece in slices)
    files = plural(len({piece.file.path for piece in slices}), "file")
    amount = size(n_bytes) if is_known else "size unknown"
    return f"input: {files}, {amount}, in {plural(len(parts), 'part')}"


def _plan(
    place: Place, prepared: Prepared | PreparedImport, observer: Observer, *, overwrite: bool
) -> Plan:
    """Return the plan of the run that a held place holds, or write that of a new one."""
    entries = place.entries()
    if place.mapped is not None and (overwrite or MANIFEST not in entries):
        check_file_system(place.mapped)
        if isinstance(prepared, Prepared):
            check_space(prepared, place.mapped, observer.warned)
        else:
            prepared.check_space(place.mapped)
    earlier = None if overwrite or holds_only_plan(entries) else read_plan(place)
    if overwrite:
        contents_of(place).check_replaceable()
    elif earlier is None:
        refuse_other_makers(place, entries)
        refuse_foreign(place, entries, owned_names(place, entries))
    if earlier is None:
        if isinstance(prepared, Prepared):
            engine = choose_run_engine(prepared, observer.noted)
        else:
            engine = prepared.engine()
    else:
        check_command(earlier[0], prepared.command, place.where)
        engine = _planned_engine(earlier[0], prepared, place)
    spec = prepared.spec(engine)
    if earlier is None:
        plan, packed = new_plan(spec, prepared.parts)
        reference_loader(plan.spec, prepared.tokenizer)()  # it may still refuse the tokenizer
        if overwrite:  # as late as possible: an error keeps an old dataset
            remove_contents(place)
        else:
            place.remove(KEPT_TOKENIZER)  # first: without a plan it would be a file of nobody
            place.remove(PLAN)
            remove_stopped_rejects(place)
        if not place.create(PLAN, plan.chunks()):
            raise StateError(
                f"{place.where}/{PLAN}: another run has just begun here: wait for its end"
            )
        stamp = place.stamp(PLAN)
        keep_tokenizer(place, plan.kept, lambda: packed)
    else:
        written, stamp = earlier
        plan = Plan(spec, prepared.parts, written.kept)
        check_same(written, plan, place)
        pack = partial(packed_tokenizer, spec.tokenizer, spec.template)
        if keep_tokenizer(place, plan.kept, pack) and MANIFEST in entries:
            what = f"{place.where}: {KEPT_TOKENIZER} was removed or cut"
            observer.warned(f"{what}: it is made again")
    return replace(plan, spec=replace(plan.spec, plan_stamp=stamp))


def hub_commits(paths: Iterable[str], place: Place, *, overwrite: bool) -> dict[str, str]:
    """Return the commits of Hub datasets, by path, that the run in a place began with."""
    if overwrite or not any(is_hub(path) for path in paths):
        return {}
    earlier = None if holds_only_plan(place.entries()) else read_plan(place)
    rows = earlier[0].files if earlier else ()
    return {path: stamp for path, kind, _, _, _, stamp, *_ in rows if kind == "hub"}


def _planned_engine(
    written: PlanFile, prepared: Prepared | PreparedImport, place: Place
) -> EngineChoice:
    """Return the engine of a plan that this command may continue with."""
    if any(file.path == "-" for file in prepared.discovery.files):
        raise StateError(
            f"{place.where}: holds a run already, and standard input cannot be continued: "
            "choose another --output, or run with --overwrite to start again"
        )
    try:
        engine = EngineChoice.from_json(written.plain["engine"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{place.where}/{PLAN}: damaged ({error}): run with --overwrite") from None
    asked = prepared.config.run.engine
    if asked not in ("auto", engine.name):
        raise StateError(
            f"the run in this directory began with engine {engine.name}, asked for is {asked}: "
            "leave --engine out to continue, or run with --overwrite to start again"
        )
    check_installed(written, engine, prepared.tokenizer)
    return engine


def read_planned(place: Place, run: RunSettings | None = None) -> Plan:
    """Return the plan that stands in a place, as this machine will work on it.

    `run`: how it works; None: by its cores. Code from outside tokmill is compared where a recipe is
    made of it.

    Raises:
        UsageError: there is no plan, or it is that of a mix.
        StateError: the plan is damaged, or of another version of tokmill, of the engine, of the
            reference or of the parser than is installed here.
    """
    written, stamp = written_plan(place)
    if written.mix is not None:
        raise no_tasks(place)
    machine = platform.node()
    if written.tokmill_version != __version__:
        raise StateError(
            f"{place.where}/{PLAN}: written by tokmill {written.tokmill_version}, installed on "
            f"{machine} is {__version__}: install that version on every machine"
        )
    plan = plan_of_file(written, stamp, place, run or RunSettings())
    check_rules(written, plan.spec.command, place.where)
    try:
        check_installed(written, plan.spec.engine, plan.spec.tokenizer)
    except (StateError, LookupError, TypeError, AttributeError) as error:
        raise StateError(f"{machine}: {error}") from None
    return plan


def written_plan(place: Place) -> tuple[PlanFile, str]:
    """Return what `read_plan` does; raises `UsageError` without a plan."""
    written = read_plan(place)
    if written is None and (maker := maker_in(place)):
        raise no_plan(place, maker)
    if written is None:
        raise UsageError(
            f"{place.where}/{PLAN}: no such plan: write it first, on one machine (tokmill plan … "
            f"--output {place.where} --write); if that was done, this machine sees another place "
            "under this name: mount the same directory, or give the same endpoint and credentials"
        )
    return written


def check_installed(written: PlanFile, engine: EngineChoice, tokenizer: Tokenizer) -> None:
    """Check that the planned versions of engine, reference and parser are installed.

    An engine of another package is compared as an extension.

    Raises:
        StateError: another version is installed here.
    """
    parser = parser_entry()
    planned_parser = written.parser or parser
    is_own = False
    if engine.name != IMPORT:  # which encodes nothing
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


def check_file_system(directory: Path) -> None:
    """Write a file in a directory in both ways of a run, and remove it.

    The file has a name of `storage.PendingFile`: the next run removes it after a kill.

    Raises:
        StorageError: the file system lacks an operation, or nothing can be written.
    """
    name = f".{PLAN}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        write_file(directory, name, b"\n", first_wins=True)
        write_file(directory, name, b"\n", replace=True)
    except StorageError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _NOT_POSSIBLE:
            raise StorageError(str(error).replace(str(directory / name), str(directory))) from None
        raise StorageError(
            f"{directory}: its file system lacks hard links, read-only files (chmod), renames over "
            f"a file, or durable writes and names (fsync): {(cause.strerror or '').lower()}; "
            "without them a dataset is not safe from a crash: choose an --output on another disk"
        ) from None
    finally:
        remove_file(directory, name)


def check_space(prepared: Prepared, directory: Path, warn: Callable[[str], None]) -> None:
    """Compare the predicted bytes of a run with the free space, its earlier files included.

    Nothing is predicted for standard input.

    Raises:
        StorageError: the output cannot fit; where it may not fit, `warn` gets a line.
    """
    held = open_place(str(directory)).entries().values()
    room = sum(filter(None, held)) + free_bytes(directory)
    n_bytes = sum(file.n_bytes for file in prepared.discovery.files)
    if not n_bytes or room >= AMPLE * n_bytes:
        return
    from tokmill.run.forecast import predict

    spec = prepared.spec(EngineChoice(REFERENCE, "", "for a prediction"))
    sampled = encoded_sample(spec, prepared.parts, prepared.renderers(), SAMPLE_BYTES)
    if not sampled.totals().documents:
        return
    _, disk = predict(spec, prepared.parts, sampled)
    needed, least = disk.n_bytes, round(disk.low_bytes * LEAST_SHARE)
    if least > room:
        raise StorageError(
            f"{directory}: no room for this dataset: about {size(needed)} are needed, "
            f"at least {size(least)}, and there is room for {size(room)}: make room, or choose "
            "another --output"
        )
    if needed > room:
        warn(
            f"{directory}: this dataset may not fit: about {size(needed)} are "
            f"needed, there is room for {size(room)}"
        )
