"""The bill on the screen, and the host RAM of each loading strategy, predicted and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.full_bill import FullBill, full_bill
from tokmill.bill.on_disk import on_disk
from tokmill.bill.text import PARTS
from tokmill.bill.text.breakdown import bill_tables
from tokmill.bill.text.summary import Row as SummaryRow
from tokmill.bill.text.summary import asked_parts, summary_rows
from tokmill.bill.text.tables import labelled, rows_table
from tokmill.cli.screen import print_tables, show, warn
from tokmill.errors import TokmillError
from tokmill.settings.schema import Config
from tokmill.settings.training import LOADING, TrainingSettings
from tokmill.words.plural import plural
from tokmill.words.units import memory

MORE = f"--only {'|'.join(PARTS)}, --all, or --explain (formulas)"


def show_bill(
    bill: FullBill,
    *,
    only: tuple[str, ...] = (),
    everything: bool = False,
    explain: bool = False,
    more: str = MORE,
) -> None:
    """Print the summary of a bill, and the tables of the options --only, --all and --explain.

    `more`: text of the last row if there are no tables; it names the options that show them.
    """
    parts = only or (PARTS if everything else asked_parts(bill.settings))
    rows = list(summary_rows(bill, parts))
    if only or everything or explain:
        print_tables([labelled(rows)])
        print_tables(bill_tables(bill, parts, explain=explain))
    else:
        print_tables([labelled([*rows, SummaryRow("more", more)])])


def show_at_end(config: Config, manifest: dict[str, Any]) -> None:
    """Print the bill of the dataset that a run has made, if the configuration names a model.

    An error of the bill is printed as a warning.
    """
    settings = BillSettings.of(config)
    if not settings.names_a_model:
        return
    directory = Path(config.output.dir)
    try:
        bill = full_bill(settings, on_disk(directory, manifest))
    except TokmillError as error:
        warn(f"no bill: {error}")
        return
    show()
    show_bill(bill, more=f"tokmill report {directory} --all, or --explain (formulas)")


NOT_EXACT = "not known: all resident pages were measured, shared pages once per process"


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A strategy: predicted and measured committed bytes, page cache; None: see `note`."""

    loading: str
    predicted_bytes: int
    measured_bytes: int | None = None
    page_cache_bytes: int | None = None
    note: str = ""


def measured_rows(
    directory: Path, manifest: Mapping[str, Any], training: TrainingSettings
) -> Iterator[MeasuredRow]:
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
        compared = compare_loading(directory, manifest, how, machine, torch=torch, masked=True)
        predicted, measured = compared.predicted.n_bytes, compared.measured
        if measured is None:
            yield MeasuredRow(loading, predicted, note=compared.skipped)
        else:
            peak = measured.peak
            cache, note = (peak.file, "") if peak.exact else (None, NOT_EXACT)
            yield MeasuredRow(loading, predicted, peak.committed, cache, note)


def measured_table(rows: list[MeasuredRow], training: TrainingSettings) -> RenderableType:
    """Return the rows as a table."""

    def texts(row: MeasuredRow) -> tuple[str, ...]:
        if row.measured_bytes is None:
            return (row.loading, memory(row.predicted_bytes), "not run", "", row.note)
        change = row.measured_bytes / max(1, row.predicted_bytes) - 1
        cache = row.note if row.page_cache_bytes is None else memory(row.page_cache_bytes)
        return (
            row.loading, memory(row.predicted_bytes), memory(row.measured_bytes), f"{change:+.1%}",
            cache,
        )  # fmt: skip

    workers = f"{plural(training.loader_workers, 'worker')}, {training.start_method}"
    title = f"committed host RAM, one process, {workers}"
    return rows_table(title, ("predicted", "measured", "error", "page cache"), map(texts, rows))
