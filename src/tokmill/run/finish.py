"""A whole run: make the parts, sum them up, pack, finish.

Parts are made one after the other in this process, on worker processes, or on Ray. The manifest is
written last: where it stands, all of its files do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.dataset.contents import remove_leftovers
from tokmill.dataset.counts import CUT_SAMPLES, Increments
from tokmill.dataset.finish import Statement, plan_entry, write_manifest
from tokmill.dataset.layout import MANIFEST, REJECTS
from tokmill.dataset.manifest import ReadingEntry, Usage
from tokmill.dataset.part_record import Sums
from tokmill.dataset.plan_file import OwnedNames
from tokmill.errors import RecordError, StateError, UsageError
from tokmill.recipes.engines import reference_loader
from tokmill.recipes.left_out import check_read_fields
from tokmill.recipes.table import Recipes
from tokmill.rendering.user_functions import local_function
from tokmill.run.begin import begun, used_seconds
from tokmill.run.output import (
    are,
    complete_manifest,
    make_parts,
    records_of_parts,
    refuse_foreign,
    remove_notes,
)
from tokmill.run.part import run_part
from tokmill.run.reject_limits import RejectLimit, check_outcome, sum_unread
from tokmill.run.stopped_rejects import (
    keep_rejects_of_killed,
    naming_rejects,
    remove_stopped_rejects,
)
from tokmill.run.unmatched import unmatched
from tokmill.settings.names import plain
from tokmill.settings.schema import Config
from tokmill.timing import LIBRARIES, StageSeconds
from tokmill.tokenizer.kept import keep_tokenizer, packed_tokenizer
from tokmill.tokenizer.tokenizer import PROBE_TEXT, tokenizer_entry
from tokmill.urls import shown
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.dataset.manifest import Manifest, SourceEntry
    from tokmill.dataset.part_record import PartRecord
    from tokmill.recipes.spec import Part
    from tokmill.run.begin import Begun, Observer
    from tokmill.run.imports import ImportSettings
    from tokmill.run.plan import Plan

_MOST_REJECTS = 20
"""Files of rejects that are read for examples in a message."""

_MOST_NAMED = 10
"""Parts that are named in a message."""


def run(
    config: Config | ImportSettings, observer: Observer, *, overwrite: bool = False
) -> Manifest:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; parts that are done stay.
        KeyboardInterrupt: says what is kept.
    """
    if config.run.is_on_ray:
        _check_for_ray(config)
    with begun(config, observer, overwrite=overwrite) as begun_run:
        return finished_run(begun_run, observer)


def _check_for_ray(config: Config | ImportSettings) -> None:
    """Check that Ray is installed and that its tasks can do this; raises `UsageError`."""
    if find_spec("ray") is None:
        raise UsageError("executor ray: the package ray is missing: pip install 'tokmill[ray]'")
    if not isinstance(config, Config):
        return
    if "-" in config.input.all_paths:
        raise UsageError("executor ray: other machines cannot read standard input: give files")
    if function := local_function(config):
        raise UsageError(
            f"executor ray: other processes cannot import {function}: put it into a module that is "
            "installed on every node"
        )


def finished_run(run: Begun, observer: Observer, *, is_array: bool = False) -> Manifest:
    """Make the parts of a plan that are not done, and write the manifest; return it.

    `is_array`: such parts are those of tasks: they are an error.

    Raises:
        TokmillError: see `errors`; parts that are done stay.
        KeyboardInterrupt: with a message about the parts that are kept.
    """
    place, plan, start = run.place, run.plan, run.start
    owned = OwnedNames(len(plan.parts), plan.spec.config.sft is not None)
    complete = complete_manifest(place, place.entries(), owned, observer.warned, run.check)
    place.make_folders()
    remove_leftovers(place)
    entries = place.entries()
    records, missing = records_of_parts(plan, place, entries, run.check)
    observer.started(plan, len(records))
    if complete is not None and not missing:
        remove_notes(place)
        remove_stopped_rejects(place)
        return complete
    refuse_foreign(place, entries, owned)  # a manifest may stand beside missing records
    run.check()
    place.remove(MANIFEST)  # the dataset is incomplete from here on
    place.sync()
    if is_array and missing:
        raise StateError(_undone(place.where, list(missing)))
    stage_s = {"prepare": used_seconds(start)}
    n_resumed = len(records)
    limit = RejectLimit(plan.spec.config.limits, observer.progressed)
    with naming_rejects(place, plan.parts):
        try:
            records = made_parts(run, observer, limit.progressed, records)
        except BaseException:
            remove_leftovers(place)  # of workers that were killed
            raise
        return _summed_up(run, observer, limit, records, n_resumed, stage_s)


def _summed_up(
    run: Begun,
    observer: Observer,
    limit: RejectLimit,
    records: Mapping[int, PartRecord],
    n_resumed: int,
    stage_s: dict[str, StageSeconds],
) -> Manifest:
    """Sum up all parts, and write the manifest; `stage_s`: seconds before the parts."""
    place, plan, start = run.place, run.plan, run.start
    sums = Sums(plan.spec.config.output.checksum)
    for part in plan.parts:
        slices = [(piece.file.path, piece.start == 0) for piece in part.slices]
        sums.add(records[part.index], slices)
    n_records = [(part, records[part.index].total().records) for part in plan.parts]
    names_without_records = [
        line for _, line in unmatched(plan.spec, n_records, sums.totals, "this run")
    ]
    stage_s |= limit.stage_s
    used = used_seconds(start)
    manifest = _finish(
        run,
        sums,
        Usage(
            wall_s=round(used.wall_s, 3),
            cpu_s=round(used.cpu_s, 3),
            start_s=round(start_seconds(stage_s), 3),
            stage_s={k: round(s.wall_s, 3) for k, s in stage_s.items() if k != LIBRARIES},
            stage_cpu_s={stage: round(seconds.cpu_s, 3) for stage, seconds in stage_s.items()},
            text_bytes_per_s=round(limit.text_bytes / max(used.wall_s, 1e-9)),
            peak_memory_bytes=observer.peak_memory_bytes(),
            resumed_parts=n_resumed,
            workers=run.n_workers,
            threads=plan.spec.n_threads,
        ),
    )
    remove_notes(place)
    remove_stopped_rejects(place)
    for line in names_without_records:
        observer.warned(line, always=True)
    return manifest


def _undone(where: str, parts: list[int]) -> str:
    """Return the message that parts are not done, by their numbers."""
    named = ", ".join(map(str, parts[:_MOST_NAMED])) + (", …" if len(parts) > _MOST_NAMED else "")
    return (
        f"{where}: {plural(len(parts), 'part')} {are(len(parts))} not done: {named}: start their "
        f"tasks again (tokmill status {quote(where)} says more), then finish"
    )


def start_seconds(stage_s: Mapping[str, StageSeconds]) -> float:
    """Return the seconds before the first text was encoded: until then, no engine was loaded.

    Of a run without texts, those before the first block.
    """
    first, encode = stage_s["prepare"], stage_s.get("encode")
    return first.wall_s if encode is None else encode.since_s - first.since_s


def made_parts(
    run: Begun,
    observer: Observer,
    report: Callable[[Increments], None],
    records: dict[int, PartRecord],
) -> dict[int, PartRecord]:
    """Make the parts of a run that have no record yet; see `output.make_parts`."""

    def make(parts: Sequence[Part]) -> None:
        remove_stopped_rejects(run.place, parts)
        run_parts(run, parts, report)

    return make_parts(run, observer.warned, make, report, records)


def run_parts(run: Begun, parts: Sequence[Part], report: Callable[[Increments], None]) -> None:
    """Make parts, in any order; what `report` raises stops them. It receives increments."""
    spec = run.plan.spec
    if spec.config.run.is_on_ray:
        from tokmill.run import ray  # takes a second

        try:
            ray.run_parts(spec, parts, report)
        except BaseException:
            keep_rejects_of_killed(run.place, parts, None, run.check)
            raise
    elif run.n_workers > 1:
        from tokmill.run import workers

        workers.run_parts(spec, parts, report, run.n_workers)
    else:
        recipes = Recipes(spec)
        for part in parts:
            run_part(spec, part, run.place, recipes.of(part), report)


def _finish(run: Begun, sums: Sums, usage: Usage) -> Manifest:
    """Write packs and manifest, and return the manifest.

    Raises:
        RecordError: see `check_outcome`; no manifest is written.
        StorageError: a file cannot be read or written.
    """
    place, plan = run.place, run.plan
    spec, config = plan.spec, plan.spec.config
    sources: Sequence[SourceEntry] = sums.sources
    used: Sequence[frozenset[str]] = [frozenset()]
    if spec.tokens is None:
        _check_records(run, sums)
    if not spec.is_import:
        used = check_read_fields(spec, plan.parts, sources)
    elif not sums.totals.documents:
        raise RecordError(f"{sources[0].path}: no document to import")
    sources = _with_readings(plan, sources)
    readings = _readings(plan, used)
    reference = reference_loader(spec, spec.tokenizer)()
    probe = reference.encode(pa.array([PROBE_TEXT], pa.large_string()))
    mask = None
    if config.sft is not None and spec.is_import:
        from tokmill.recipes.tokens import imported_mask

        mask = imported_mask()
    elif config.sft is not None:
        from tokmill.recipes.sft_setup import describe_mask

        mask = describe_mask(spec, reference, sums.totals.counters[CUT_SAMPLES])
    output = replace(config.output, dir=shown(config.output.dir))  # a URL may hold a password
    keep_tokenizer(place, plan.kept, partial(packed_tokenizer, spec.tokenizer, spec.template))
    statement = Statement(
        kind=spec.kind,
        rules=spec.rules,
        config=plain(replace(config, output=output)),
        tokenizer=tokenizer_entry(spec.tokenizer, probe.ids.tolist()),
        engine=spec.engine.as_json(),
        totals=sums.totals,
        unread=sum_unread(sources),
        length_histogram=sums.length_histogram(),
        sources=sources,
        shards=sums.shards,
        files=[plan_entry(place, config.output.checksum), plan.kept, *sums.files],
        run=usage,
        mask=mask,
        fields_read=() if readings else sorted(used[0]),
        readings=readings,
        keep=config.input.keep,
        extensions=[extension.as_json() for extension in spec.extensions],
        noticed=sums.noticed,
    )
    return write_manifest(place, statement, run.check)


def _check_records(run: Begun, sums: Sums) -> None:
    """Check what became of the records of a run; raises what `check_outcome` raises."""
    place, names = run.place, [file.name for file in sums.files]
    rejects = [name for name in names if name.startswith(f"{REJECTS}/")][:_MOST_REJECTS]
    place.fetch(rejects)
    paths = list(map(place.local.joinpath, rejects))
    spec = run.plan.spec
    check_outcome(spec.config.limits, sums.totals, sums.sources, paths, is_import=spec.is_import)


def _with_readings(plan: Plan, sources: Sequence[SourceEntry]) -> Sequence[SourceEntry]:
    """Return the input files with their readings, if not all are read in one way."""
    readings = plan.spec.own_readings
    if not readings:
        return sources
    of_path = {piece.file.path: part.reading for part in plan.parts for piece in part.slices}
    numbers = [of_path[source.path] for source in sources]
    return [
        replace(source, reading=number, name=readings[number].source)
        for source, number in zip(sources, numbers, strict=True)
    ]


def _readings(plan: Plan, used: Sequence[frozenset[str]]) -> list[ReadingEntry]:
    """Return how each group of files was read; nothing if all are read in one way."""
    readings = plan.spec.own_readings
    return [
        ReadingEntry(**reading.as_json(), fields_read=tuple(sorted(paths)))
        for reading, paths in zip(readings, used, strict=False)
    ]
