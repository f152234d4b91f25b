"""Plan a run, or continue the one that an output directory holds.

A run continues with the engine, the checksum algorithm and the Hub revisions of its `plan.json`,
and only with the same inputs and output-affecting settings. Finished parts are kept (their records
stand in `parts/`); a part that was stopped continues in `part.run_part`, from its last commit or
checkpoint.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checkpoint import unfinished_records
from tokmill.dataset.layout import PARTS, PLAN, is_part_record
from tokmill.dataset.plan_file import read_owned_names
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import REFERENCE, engine_row, engine_version
from tokmill.errors import StateError, UsageError
from tokmill.interrupts import STDIN_STOPPED
from tokmill.run.compare_plans import check_same
from tokmill.run.directory import has_only_plan, remove_dataset
from tokmill.run.plan import Plan, read_plan, write_plan
from tokmill.settings.schema import CHECKSUMS, OutputSettings
from tokmill.sources.hub import is_hub
from tokmill.sources.json_parser import parser_entry
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tokmill.run.prepare import Prepared
    from tokmill.settings.schema import Config
    from tokmill.sources.files import SourceFile
    from tokmill.tokenizer.tokenizer import Tokenizer

NOTHING_KEPT = "interrupted; nothing is kept yet: the same command begins again"


def planned_hub_commits(config: Config, directory: Path, *, overwrite: bool) -> dict[str, str]:
    """Return the commits of Hub datasets, by path, that the run in a directory began with."""
    if not _is_from_hub(config) or overwrite or has_only_plan(directory):
        return {}
    return hub_commits(config, read_plan(directory) or {})


def _is_from_hub(config: Config) -> bool:
    return any(is_hub(path) for path in config.input.all_paths)


def hub_commits(config: Config, found: dict[str, Any]) -> dict[str, str]:
    """Return the commits of Hub datasets, by path, that stand in a plan."""
    if not _is_from_hub(config):
        return {}
    rows = (row for row in found.get("files", ()) if isinstance(row, list) and len(row) >= 6)
    return {str(row[0]): str(row[5]) for row in rows if row[1] == "hub"}


def resumed_plan(
    prepared: Prepared,
    directory: Path,
    n_threads: int,
    memory_bytes: int,
    warn: Callable[[str], None],
) -> Plan | None:
    """Return the plan of the run that a directory holds; None if it holds none.

    `n_threads` and `memory_bytes` are those of a worker.

    Raises:
        StateError: the run cannot be continued like this.
    """
    found = None if has_only_plan(directory) else read_plan(directory)
    if found is None:
        return None
    return continued_plan(found, prepared, directory, n_threads, memory_bytes, warn)


def continued_plan(
    found: dict[str, Any],
    prepared: Prepared,
    where: Path | str,
    n_threads: int,
    memory_bytes: int,
    warn: Callable[[str], None],
) -> Plan:
    """Return the plan of the run that began with the plan `found`; `where` is for messages.

    Raises:
        StateError: the run cannot be continued like this.
    """
    refuse_stdin(prepared.files, where)
    engine = planned_engine(found, prepared.config.run.engine)
    check_installed(found, engine, prepared.tokenizer)
    prepared = _with_planned_checksum(found, prepared, where, warn)
    plan = Plan(prepared.spec(engine, n_threads, memory_bytes), prepared.parts)
    check_same(found, plan, where)
    return plan


def begin_run(directory: Path, plan: Plan) -> None:
    """Write the plan of a new run; remove the dataset of an earlier one from its directory.

    Raises:
        StateError: the directory holds other files; nothing was changed.
    """
    remove_dataset(directory, read_owned_names(directory))
    write_plan(directory, plan)  # first: files without a plan count as foreign


def refuse_stdin(files: Iterable[SourceFile], where: Path | str) -> None:
    """Refuse to continue a run of standard input: its content cannot be compared."""
    if any(file.path == "-" for file in files):
        raise StateError(
            f"{where}: holds a run already, and standard input cannot be continued: "
            "choose another --output, or run with --overwrite to start again"
        )


def planned_engine(found: dict[str, Any], asked: str) -> EngineChoice:
    """Return the engine of a plan.

    Raises:
        StateError: another one is asked for, or the plan is damaged.
    """
    try:
        engine = EngineChoice.from_json(found["engine"])
    except TypeError as error:
        raise StateError(f"{PLAN}: damaged ({error}): run with --overwrite") from None
    if asked not in ("auto", engine.name):
        raise StateError(
            f"the run in this directory began with engine {engine.name}, asked for is {asked}: "
            "leave --engine out to continue, or run with --overwrite to start again"
        )
    return engine


def check_installed(found: dict[str, Any], engine: EngineChoice, tokenizer: Tokenizer) -> None:
    """Check that the planned versions of engine, reference and parser are installed.

    `check_same` compares an engine of another package.

    Raises:
        StateError: another version is installed here.
    """
    _check_parser(found)
    try:
        is_own = engine_row(engine.name)[1] is None
    except UsageError as error:
        message = f"the run in this directory began with engine {engine.name}: {error}"
        raise StateError(message) from None
    versions = [(engine.name, engine.version)] if is_own else []
    if engine.reference:
        versions.append((REFERENCE, engine.reference))
    for name, planned in versions:
        installed = engine_version(name, tokenizer)
        if installed != planned:
            raise StateError(
                f"the run in this directory began with {name} {planned}, installed is "
                f"{installed}: install that version, or run with --overwrite to start again"
            )


def _check_parser(found: dict[str, Any]) -> None:
    """Check that the planned parser is this one: other texts could come from another one.

    An import parses nothing: its plan names none.
    """
    now = parser_entry()
    planned = found.get("parser", now)
    if planned != now:
        raise StateError(
            f"the run in this directory began with the JSON parser {planned['name']} "
            f"{planned['version']}, installed is {now['name']} {now['version']}: install that "
            "version, or run with --overwrite to start again"
        )


def _with_planned_checksum(
    found: dict[str, Any], prepared: Prepared, where: Path | str, warn: Callable[[str], None]
) -> Prepared:
    """Return the run with the checksum algorithm of its plan: a dataset has one.

    Raises:
        StateError: this version does not know the algorithm.
    """
    planned = found["checksum"]
    if planned not in CHECKSUMS:
        raise StateError(
            f"{PLAN}: its files have sums by {planned!r}, this tokmill knows "
            f"{', '.join(CHECKSUMS)}: install a newer tokmill, or run with --overwrite"
        )
    asked = prepared.config.output.checksum
    if asked not in (planned, OutputSettings().checksum):
        warn(
            f"{where}: this run began with checksums by {planned} and continues with them, "
            f"not {asked}: --overwrite starts again"
        )
    return prepared.with_checksum(planned)


@contextlib.contextmanager
def explain_interrupt(plan: Plan, directory: Path) -> Iterator[None]:
    """Add to an interrupt a message about the work that is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept_work(plan, directory)) from None


def _kept_work(plan: Plan, directory: Path) -> str:
    if any(piece.file.path == "-" for part in plan.parts[:1] for piece in part.slices):
        return STDIN_STOPPED
    parts = directory / PARTS
    if not parts.is_dir():  # the engine was still being compared
        return NOTHING_KEPT
    n_done = sum(is_part_record(path.name) for path in parts.iterdir())
    n_records = unfinished_records(directory)
    kept = [f"{n_done:,} of {plural(len(plan.parts), 'part')}"] if n_done else []
    kept += [plural(n_records, "record") + " of others" * (n_done > 0)] if n_records else []
    if not kept:
        return NOTHING_KEPT
    are = "is" if n_done + n_records == 1 else "are"
    return f"interrupted; {' and '.join(kept)} {are} kept: the same command continues"
