"""`tokmill report`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.bill import FIRST, bill_options, bill_settings_of, show_bill, show_options
from tokmill.cli.options import (
    GroupedCommand,
    Option,
    choice_options,
    directory_argument,
    moved_tokenizer,
)
from tokmill.cli.screen import print_tables, show, show_json, show_rows
from tokmill.errors import UsageError
from tokmill.settings.training import LOADING, TrainingSettings
from tokmill.words.plural import plural
from tokmill.words.units import memory, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from tokmill.bill.measuring.loading import Comparison


@click.command("report", cls=GroupedCommand, first=(*FIRST, "measure", "html"))
@directory_argument
@bill_options
@show_options
@click.option(
    "--measure",
    is_flag=True,
    help="Also load the dataset with each strategy, and measure host RAM.",
)
@click.option(
    "--html",
    cls=Option,
    heading="Web page",
    type=click.Path(path_type=Path),
    help="Write the report as a web page with charts to this file.",
)
@moved_tokenizer
@choice_options
def command(
    directory: Path,
    config_file: Path | None,
    as_json: bool,
    only: tuple[str, ...],
    everything: bool,
    explain: bool,
    measure: bool,
    html: Path | None,
    tokenizer: str,
    **options: Any,
) -> None:
    """Show a dataset and its bill: disk, host RAM and, with a model, GPU memory.

    Settings that are not given come from the configuration of the dataset.

    \b
    Examples:
      tokmill report out
      tokmill report out --model llama-3.2-1b --gpu 'RTX 4090' --micro-batch 4
      tokmill report out --model config.json --deepspeed ds.json --explain
      tokmill report out --html report.html --model llama-3.2-1b --gpu 'RTX 4090'
      tokmill report out --loading int64 --loader-workers 4 --measure
    """
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.inputs import complete_inputs
    from tokmill.bill.on_disk import on_disk
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.page.report.write_report import write_report
    from tokmill.page.summary import detail_rows

    if html is not None and (as_json or only or everything or explain or measure):
        raise UsageError(
            "--html writes a page: leave --json, --only, --all, --explain and --measure out"
        )
    choice = {name: options.pop(name) for name in ("split", "source", "seed")}
    if html is None and any(choice.values()):
        raise UsageError("--split, --source and --seed choose what a page shows: add --html")
    manifest = read_intact_manifest(directory)
    disk = on_disk(directory, manifest)
    settings = bill_settings_of(config_file, options, manifest["config"])
    bill = full_bill(complete_inputs(settings, disk))
    training = bill.settings.training
    if html is not None:
        n_bytes = write_report(html, directory, manifest, bill, tokenizer, "--html", choice)
        show(f"{html}: {size(n_bytes)}")
        return
    rows = list(measured_rows(directory, manifest, training)) if measure else None
    if as_json:
        measured = {} if rows is None else {"measured": list(map(_as_json, rows))}
        show_json({**bill.as_json(), **measured})
        return
    show_bill(bill, only=only, everything=everything, explain=explain)
    if rows is not None:
        show()
        print_tables([measured_table(rows, training)])
    if not only:
        show()
        show_rows(detail_rows(manifest, str(directory)))


NOT_EXACT = "not known: all resident pages were measured, shared pages once per process"


def measured_rows(
    directory: Path, manifest: Mapping[str, Any], training: TrainingSettings
) -> Iterator[Comparison]:
    """Yield the memory of each strategy, which loads the dataset in a child process.

    The child is a trainer with the DataLoader workers of the settings (torch's if installed). The
    memory of a bare interpreter is measured first, and is part of the prediction.

    Raises:
        UsageError: the dataset holds less than a batch.
        WorkerError: a child failed.
    """
    from tokmill.bill.measuring.loading import compare_loading, has_torch, measure_interpreter
    from tokmill.bill.measuring.machine import this_machine

    torch = has_torch()
    bare = measure_interpreter(torch=torch)
    machine = replace(this_machine(torch=torch), interpreter_bytes=bare)
    for loading in LOADING:
        show(f"measuring: {loading}", err=True)
        how = replace(training, loading=loading, gpus=1, gpus_per_node=0)
        yield compare_loading(directory, manifest, how, machine, torch=torch, masked=True)


def _as_json(row: Comparison) -> dict[str, Any]:
    """Return predicted and measured committed bytes, and the page cache; None: see `note`."""
    peak = None if row.measured is None else row.measured.peak
    return {
        "loading": row.training.loading,
        "predicted_bytes": row.predicted.n_bytes,
        "measured_bytes": peak.committed if peak else None,
        "page_cache_bytes": peak.file if peak and peak.exact else None,
        "note": row.skipped if peak is None else "" if peak.exact else NOT_EXACT,
    }


def measured_table(rows: list[Comparison], training: TrainingSettings) -> RenderableType:
    """Return the rows as a table."""

    def texts(row: Comparison) -> tuple[str, ...]:
        predicted = row.predicted.n_bytes
        begin = (row.training.loading, memory(predicted))
        if row.measured is None:
            return (*begin, "not run", "", row.skipped)
        peak = row.measured.peak
        change = f"{peak.committed / max(1, predicted) - 1:+.1%}"
        cache = memory(peak.file) if peak.exact else NOT_EXACT
        return (*begin, memory(peak.committed), change, cache)

    from tokmill.bill.text.tables import rows_table

    workers = f"{plural(training.loader_workers, 'worker')}, {training.start_method}"
    title = f"committed host RAM, one process, {workers}"
    return rows_table(title, ("predicted", "measured", "error", "page cache"), map(texts, rows))
