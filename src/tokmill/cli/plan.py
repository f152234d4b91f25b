"""`tokmill plan`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.budget_options import model_options
from tokmill.cli.options import config_from_options, settings_options
from tokmill.cli.screen import show, show_json, show_labelled, show_rows
from tokmill.errors import UsageError
from tokmill.settings.schema import PRETRAIN_SECTIONS

if TYPE_CHECKING:
    from tokmill.settings.schema import Config


@click.command("plan")
@settings_options(*PRETRAIN_SECTIONS)
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print the forecast as JSON.")
def command(
    paths: tuple[str, ...], config_file: Path | None, as_json: bool, **options: Any
) -> None:
    """Say what a run would make and take; write nothing.

    Up to 4 MB of input are read whole, and then tokens and documents are exact. Of more, 2 MB are
    sampled, or 5 % if that is more, spread over it; compressed files, arrays and CSV only at their
    heads.

    \b
    Examples:
      tokmill plan baike.jsonl --tokenizer my_tokenizer/ --output out
    """
    show_plan(config_from_options(paths, config_file, options), as_json=as_json)


def show_plan(config: Config, *, as_json: bool) -> None:
    """Print what a run with these settings would make and take.

    Raises:
        UsageError: the input is standard input.
        RecordError: a run with these settings would stop; what it would make is printed before.
    """
    if "-" in config.input.paths:
        raise UsageError("standard input can be read only once: plan needs files")

    from tokmill.cli.budgets import make_budgets, settings_of
    from tokmill.fields import noted_sources
    from tokmill.measure.machine import usable_memory
    from tokmill.page.bill_rows import bill_rows
    from tokmill.page.budgets import OnDisk
    from tokmill.page.budgets import as_json as plain
    from tokmill.page.forecast import forecast_rows
    from tokmill.recipes.left_out import check_fields, fields_read
    from tokmill.run.choose_engine import choose_run_engine
    from tokmill.run.forecast.forecast import forecast, sample_limits
    from tokmill.run.forecast.read_sample import add_fragments
    from tokmill.run.make_dataset import workers_and_threads
    from tokmill.run.prepare import prepare, reference_of, sample
    from tokmill.run.reject_limits import check_sample
    from tokmill.storage import free_bytes

    prepared = prepare(config)
    for warning in prepared.found.warnings:
        show_labelled("warning:", warning, colour="yellow", err=True)
    for note in [] if as_json else prepared.notes():
        show(note, err=True)
    workers, threads = workers_and_threads(prepared.config, len(prepared.parts))
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    in_records, in_all = sample_limits(prepared.parts)
    found = sample(prepared, in_records, weighs=True, keep_blocks=True)
    add_fragments(prepared.parts, found, in_all)
    engine = choose_run_engine(prepared, reference_of(prepared), threads)
    used = fields_read(prepared.config)
    memory_bytes = usable_memory()
    spec = prepared.spec(engine, threads, memory_bytes // workers)
    result = forecast(spec, prepared.parts, found, workers)
    free = free_bytes(Path(config.output.dir or "."))
    disk = OnDisk(config.output.dir or ".", result.size, result.disk, free)
    budgets = make_budgets(settings_of(config), disk)
    plan = {
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
        "budgets": plain(budgets),
    }
    if as_json:
        show_json(plan)
    else:
        show_rows(forecast_rows(plan, free))
        if rows := bill_rows(budgets):
            show()
            show_rows(rows)
    n_records = round(found.records_per_byte * result.input_bytes)
    limits = prepared.config.limits
    check_sample(limits, found, n_records)
    if used and not prepared.is_named:
        check_fields(prepared.config.render, limits.max_reject_fraction, found.sources, used)
