"""The forecast of a run: its tokens, disk, time and memory, predicted from a sample."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.api.jobs import budgets_of
from tokmill.errors import RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.page.budgets import Budgets
    from tokmill.run.forecast.sample import InputSample
    from tokmill.run.prepare import Prepared
    from tokmill.settings.schema import Config


@dataclass(frozen=True, slots=True)
class RunForecast:
    """The predicted amounts of a run.

    Amounts with a `_low` and a `_high` lie between the two in 9 of 10 runs; all three are equal
    if `is_counted`: the input was small enough to be read to its end.

    Attributes:
        kind: `pretrain` or `sft`.
        files: input files.
        parts: parts of the plan, the most worker processes that can help.
        input_bytes: size of the input, as it is stored.
        sampled_bytes: input that was read for this forecast.
        is_counted: whether that was all of it.
        documents: documents or samples.
        documents_low: lower end of the 90 % range of `documents`.
        documents_high: upper end of the 90 % range of `documents`.
        tokens: tokens, eos included.
        tokens_low: lower end of the 90 % range of `tokens`.
        tokens_high: upper end of the 90 % range of `tokens`.
        text_bytes: rendered text in UTF-8.
        disk_bytes: size of the dataset.
        disk_low_bytes: lower end of the 90 % range of `disk_bytes`.
        disk_high_bytes: upper end of the 90 % range of `disk_bytes`.
        free_bytes: free space where the output is to stand, or in the current directory.
        time_s: wall time in seconds.
        memory_bytes: bound on the peak of memory, all processes together.
        usable_memory_bytes: what this machine, or its cgroup, leaves to the run.
        reject_fraction: share of records that are rejected.
        drop_fraction: share of records that a setting leaves out.
        dtype: type of the ids, `uint16` or `uint32`.
        tokenizer: name of the tokenizer.
        renderer: how records become text.
        engine: name of the engine that encodes.
        values: all of this and more, as `tokmill plan --json` prints it.
    """

    kind: str
    files: int
    parts: int
    input_bytes: int
    sampled_bytes: int
    is_counted: bool
    documents: int
    documents_low: int
    documents_high: int
    tokens: int
    tokens_low: int
    tokens_high: int
    text_bytes: int
    disk_bytes: int
    disk_low_bytes: int
    disk_high_bytes: int
    free_bytes: int
    time_s: float
    memory_bytes: int
    usable_memory_bytes: int
    reject_fraction: float
    drop_fraction: float
    dtype: str
    tokenizer: str
    renderer: str
    engine: str
    values: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any], free_bytes: int) -> RunForecast:
        """Return the forecast with these values."""
        disk = values["disk"]
        every = {
            **values,
            "disk_low_bytes": disk["low_bytes"],
            "disk_high_bytes": disk["high_bytes"],
            "free_bytes": free_bytes,
            "engine": values["engine"]["name"],
            "values": dict(values),
        }
        return cls(**{one.name: every[one.name] for one in fields(cls)})


@dataclass(frozen=True, slots=True)
class Planned:
    """A forecast with its bill; `problem` is the error with which the run would stop, if any."""

    forecast: RunForecast
    budgets: Budgets
    problem: RecordError | None


def plan_run(config: Config, warn: Callable[[str], None], note: Callable[[str], None]) -> Planned:
    """Forecast a run from a sample of its input; write nothing.

    Args:
        config: the settings of the run.
        warn: gets lines about what may go wrong.
        note: gets lines about what may surprise.

    Raises:
        TokmillError: the run could not start, or nothing can be predicted from the sample.
    """
    if "-" in config.input.paths:
        raise UsageError("standard input can be read only once: plan needs files")

    from tokmill.engines.threads import engine_threads
    from tokmill.run.make_dataset import workers_and_threads
    from tokmill.run.prepare import prepare

    prepared = prepare(config)
    for warning in prepared.found.warnings:
        warn(warning)
    for line in prepared.notes():
        note(line)
    workers, threads = workers_and_threads(prepared.config, len(prepared.parts))
    with engine_threads(threads):
        return _forecast(prepared, config, workers, threads)


def _forecast(prepared: Prepared, config: Config, workers: int, threads: int) -> Planned:
    from tokmill.fields import noted_sources
    from tokmill.measure.machine import usable_memory
    from tokmill.page.budgets import BudgetSettings, OnDisk, as_json
    from tokmill.recipes.left_out import fields_read
    from tokmill.run.choose_engine import choose_run_engine
    from tokmill.run.forecast.forecast import forecast, sample_limits
    from tokmill.run.forecast.read_sample import add_fragments
    from tokmill.run.prepare import reference_of, sample
    from tokmill.storage import free_bytes

    in_records, in_all = sample_limits(prepared.parts)
    found = sample(prepared, in_records, weighs=True, keep_blocks=True)
    add_fragments(prepared.parts, found, in_all)
    engine = choose_run_engine(prepared, reference_of(prepared), threads)
    used = fields_read(prepared.config)
    memory_bytes = usable_memory()
    spec = prepared.spec(engine, threads, memory_bytes // workers)
    result = forecast(spec, prepared.parts, found, workers)
    directory = config.output.dir or "."
    free = free_bytes(Path(directory))
    disk = OnDisk(directory, result.size, result.disk, free)
    bill = budgets_of(BudgetSettings.of(config), disk)
    values = {
        "schema": 1,
        "kind": spec.kind,
        "files": len(prepared.files),
        **result.as_json(),
        "usable_memory_bytes": memory_bytes,
        "renderer": prepared.renderer.name,
        "fields": prepared.fields_note(),
        "left_out": noted_sources(found.sources, used),
        "tokenizer": prepared.tokenizer.name,
        "eos": {"id": prepared.tokenizer.eos.id, "token": prepared.tokenizer.eos.content},
        "dtype": prepared.config.output.dtype,
        "engine": engine.as_json(),
        "budgets": as_json(bill),
    }
    n_records = round(found.records_per_byte * result.input_bytes)
    return Planned(RunForecast.of(values, free), bill, _problem(prepared, found, n_records))


def _problem(prepared: Prepared, found: InputSample, n_records: int) -> RecordError | None:
    """Return the error with which the run would stop, if the sample says so."""
    from tokmill.recipes.left_out import check_fields, fields_read
    from tokmill.run.reject_limits import check_sample

    limits, used = prepared.config.limits, fields_read(prepared.config)
    try:
        check_sample(limits, found, n_records)
        if used and not prepared.is_named:
            render = prepared.config.render
            check_fields(render, limits.max_reject_fraction, found.sources, used)
    except RecordError as error:
        return error
    return None
