"""The bill on the screen, and predicted and measured host RAM of every loading strategy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.cli.screen import print_tables, show, show_json, show_rows, warn
from tokmill.errors import TokmillError
from tokmill.settings.training import LOADING
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import RenderableType

    from tokmill.bill.full_bill import FullBill
    from tokmill.settings.schema import Config
    from tokmill.settings.training import TrainingSettings


def show_bill(
    found: FullBill, *, as_json: bool, explain: bool, rows: list[Row] | None = None
) -> None:
    """Print the bill as tables or as one JSON object; `rows` are measured strategies of loading."""
    if as_json:
        from tokmill.bill.full_bill import as_json as plain

        measured = {} if rows is None else {"measured": [asdict(row) for row in rows]}
        show_json({**plain(found), **measured})
        return
    from tokmill.bill.text.breakdown import bill_tables

    print_tables(bill_tables(found, explain=explain))
    if rows is not None:
        show()
        print_tables([measured_table(rows, found.settings.training)])


def show_at_end(config: Config, directory: Path, manifest: dict[str, Any]) -> None:
    """Print the bill of a model for the dataset that a run has made, if a model is named.

    A failure is only a warning.
    """
    from tokmill.bill.full_bill import BillSettings

    settings = BillSettings.of(config)
    if not settings.names_a_model:
        return
    from tokmill.api.jobs import bill_of
    from tokmill.bill.full_bill import on_disk
    from tokmill.bill.text.summary import bill_rows

    try:
        rows = bill_rows(bill_of(settings, on_disk(directory, manifest)))
    except TokmillError as error:
        warn(f"no bill: {error}")
        return
    show()
    show_rows(rows)


NOT_EXACT = "not known separately: measured are all resident pages, shared ones per process"


@dataclass(frozen=True, slots=True)
class Row:
    """A strategy: predicted and measured committed bytes, page cache (None: see `note`)."""

    loading: str
    predicted_bytes: int
    measured_bytes: int | None = None
    page_cache_bytes: int | None = None
    note: str = ""


def measured_rows(
    directory: Path, manifest: Mapping[str, Any], training: TrainingSettings
) -> Iterator[Row]:
    """Load a dataset with every strategy in a child process, and yield the memory of each.

    The trainer is one process with the DataLoader workers of the settings (of torch if installed).
    The memory of a bare interpreter is measured first and is part of the prediction.

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
        found = compare_loading(directory, manifest, how, machine, torch=torch, masked=True)
        predicted, measured = found.predicted.n_bytes, found.measured
        if measured is None:
            yield Row(loading, predicted, note=found.skipped)
        else:
            peak = measured.peak
            cache, note = (peak.file, "") if peak.exact else (None, NOT_EXACT)
            yield Row(loading, predicted, peak.committed, cache, note)


def measured_table(rows: list[Row], training: TrainingSettings) -> RenderableType:
    """Return the rows as a table."""
    from tokmill.bill.text.tables import rows_table
    from tokmill.words.units import memory

    def texts(row: Row) -> tuple[str, ...]:
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
