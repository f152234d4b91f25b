"""Forecast a run from its settings: prepare it, sample its input, choose an engine, predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.machine import usable_memory
from tokmill.engines.engine import engine_threads
from tokmill.errors import RecordError, UsageError
from tokmill.fields import noted_sources
from tokmill.recipes.left_out import check_fields, fields_read
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
    problem: RecordError | None


def forecast_run(
    config: Config, warn: Callable[[str], None], note: Callable[[str], None]
) -> RunValues:
    """Return the forecast of a run; `warn` and `note` get lines for the user.

    Raises:
        TokmillError: the run could not start, or nothing can be predicted from the sample.
    """
    if "-" in config.input.paths:
        raise UsageError("standard input can be read only once: plan needs files")
    prepared = prepare(config)
    for warning in prepared.found.warnings:
        warn(warning)
    for line in prepared.notes():
        note(line)
    workers, threads = workers_and_threads(prepared.config, prepared.parts)
    with engine_threads(threads):
        return _forecast(prepared, workers, threads)


def _forecast(prepared: Prepared, workers: int, threads: int) -> RunValues:
    in_records, in_all = sample_limits(prepared.parts)
    found = sample(prepared, in_records, weighs=True, keep_blocks=True)
    add_fragments(prepared.parts, found, in_all)
    engine = choose_run_engine(prepared, reference_of(prepared), threads)
    memory_bytes = usable_memory()
    spec = prepared.spec(engine, threads, memory_bytes // workers)
    result = forecast(spec, prepared.parts, found, workers)
    config, tokenizer = prepared.config, prepared.tokenizer
    values = {
        "schema": 1,
        "kind": spec.kind,
        "files": len(prepared.files),
        **result.as_json(),
        "usable_memory_bytes": memory_bytes,
        "workers": workers,
        "threads": threads,
        "renderer": prepared.renderer.name,
        "fields": prepared.fields_note(),
        "left_out": noted_sources(found.sources, fields_read(config)),
        "tokenizer": tokenizer.name,
        "eos": {"id": tokenizer.eos.id, "token": tokenizer.eos.content},
        "dtype": config.output.dtype,
        "engine": engine.as_json(),
    }
    n_records = round(found.records_per_byte * result.input_bytes)
    free = free_bytes(Path(config.output.dir or "."))
    return RunValues(values, result.size, result.disk, free, _problem(prepared, found, n_records))


def _problem(prepared: Prepared, found: InputSample, n_records: int) -> RecordError | None:
    """Return the error with which the run would stop, if the sample has one."""
    limits, used = prepared.config.limits, fields_read(prepared.config)
    try:
        check_sample(limits, found, n_records)
        if used and not prepared.is_named:
            render = prepared.config.render
            check_fields(render, limits.max_reject_fraction, found.sources, used)
    except RecordError as error:
        return error
    return None
