"""Forecast a run from its settings: prepare it, sample its input, choose an engine, predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.machine import usable_memory
from tokmill.engines.engine import engine_threads
from tokmill.errors import RecordError, TokmillError, UsageError
from tokmill.fields import noted_sources
from tokmill.recipes.left_out import check_read_fields, fields_read
from tokmill.run.choose_engine import choose_run_engine
from tokmill.run.forecast.forecast import forecast, sample_limits
from tokmill.run.forecast.read_sample import add_fragments
from tokmill.run.prepare import prepare, reference_of, sample
from tokmill.run.reject_limits import check_sample
from tokmill.run.workers import workers_and_threads
from tokmill.storage import free_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.bill.dataset_size import DatasetSize
    from tokmill.bill.formula import Bill
    from tokmill.recipes.spec import RunSpec
    from tokmill.run.forecast.sample import InputSample
    from tokmill.run.prepare import Prepared
    from tokmill.settings.schema import Config


@dataclass(frozen=True, slots=True)
class RunValues:
    """The forecast of a run as plain values; `size` and `disk` are of its dataset.

    `free_bytes`: of the disk of the output. `problem`: the error with which the run would stop.
    """

    values: dict[str, Any]
    size: DatasetSize
    disk: Bill
    free_bytes: int
    problem: TokmillError | None


def forecast_run(
    config: Config, warn: Callable[[str], None], note: Callable[[str], None]
) -> RunValues:
    """Return the forecast of a run; `warn` and `note` get lines for the user.

    Raises:
        TokmillError: the run could not start, or nothing can be predicted from the sample.
    """
    if "-" in config.input.all_paths:
        raise UsageError("standard input can be read only once: plan needs files")
    prepared = prepare(config, leave_bad_out=True)
    for warning in prepared.found.warnings:
        warn(warning)
    for line in prepared.bad:
        warn(f"{line} (left out of this forecast)")
    for line in (*prepared.notes(), *prepared.document_notes()):
        note(line)
    workers, threads = workers_and_threads(prepared.config, prepared.parts)
    with engine_threads(threads):
        return _forecast(prepared, workers, threads, note)


def _forecast(
    prepared: Prepared, workers: int, threads: int, note: Callable[[str], None]
) -> RunValues:
    in_records, in_all = sample_limits(prepared.parts)
    found = sample(prepared, in_records, weighs=True, keep_blocks=True)
    add_fragments(prepared.parts, found, in_all)
    engine = choose_run_engine(prepared, reference_of(prepared), threads, note)
    memory_bytes = usable_memory()
    spec = prepared.spec(engine, threads, memory_bytes // workers)
    result = forecast(spec, prepared.parts, found, workers)
    config, tokenizer = prepared.config, prepared.tokenizer
    renderers = [renderer for _, renderer in prepared.renderers().values()]
    values = {
        "schema": 1,
        "kind": spec.kind,
        "files": len(prepared.files),
        **result.as_json(),
        "usable_memory_bytes": memory_bytes,
        "workers": workers,
        "threads": threads,
        "renderer": ", ".join(dict.fromkeys(one.name for one in renderers)),
        "fields": prepared.fields_note(),
        "left_out": _left_out(prepared, spec, found),
        "tokenizer": tokenizer.name,
        "eos": {"id": tokenizer.eos.id, "token": tokenizer.eos.content},
        "dtype": config.output.dtype,
        "engine": engine.as_json(),
    }
    n_records = round(found.records_per_byte * result.input_bytes)
    free = free_bytes(Path(config.output.dir or "."))
    problem = _problem(prepared, spec, found, n_records)
    return RunValues(values, result.size, result.disk, free, problem)


def _problem(
    prepared: Prepared, spec: RunSpec, found: InputSample, n_records: int
) -> TokmillError | None:
    """Return the error with which the run would stop, if the sample has one."""
    if prepared.bad:
        return UsageError(f"the run would stop: {prepared.bad[0]}")
    try:
        check_sample(prepared.config.limits, found, n_records)
        check_read_fields(spec, prepared.parts, found.sources)
    except RecordError as error:
        return error
    return None


def _left_out(prepared: Prepared, spec: RunSpec, found: InputSample) -> str:
    """Return the sources that use less than 90% of their text; '' if none."""
    noted = []
    for part in {part.reading: part for part in prepared.parts}.values():
        paths = {file.path for file in prepared.readings[part.reading].files}
        rows = [row for row in found.sources if row["path"] in paths]
        noted.append(noted_sources(rows, fields_read(spec.for_part(part).config)))
    return ", ".join(filter(None, noted))
