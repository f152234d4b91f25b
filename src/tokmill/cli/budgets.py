"""Makes and prints budgets, for the commands that end with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokmill.cli.screen import show, show_json, show_labelled, show_rows
from tokmill.cli.tables import print_tables
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.cli.measuring import Row
    from tokmill.page.budgets import Budgets, BudgetSettings, OnDisk
    from tokmill.settings.schema import Config


def make_budgets(settings: BudgetSettings, disk: OnDisk | None) -> Budgets:
    """Give the budgets of a dataset, a model, or both, on this machine.

    Raises:
        UsageError: see `report.budgets.budgets`.
    """
    from tokmill.measure.machine import this_machine
    from tokmill.page.budgets import budgets

    return budgets(settings, disk, this_machine())


def show_budgets(
    found: Budgets, *, as_json: bool, explain: bool, rows: list[Row] | None = None
) -> None:
    """Print budgets as tables or as one JSON object; `rows` are measured strategies of loading."""
    if as_json:
        from tokmill.page.budgets import as_json as plain

        measured = {} if rows is None else {"measured": [asdict(row) for row in rows]}
        show_json({**plain(found), **measured})
        return
    from tokmill.page.budget_text import budget_tables

    print_tables(budget_tables(found, explain=explain))
    if rows is not None:
        from tokmill.cli.measuring import measured_table

        show()
        print_tables([measured_table(rows, found.settings.training)])


def settings_of(config: Config) -> BudgetSettings:
    """Give the settings of the bill from those of a run."""
    from tokmill.page.budgets import BudgetSettings

    return BudgetSettings.of(config)


def check_budgets(config: Config) -> None:
    """Make sure before a run that its end can give the budgets; raises `UsageError`."""
    if config.model is not None or config.training is not None:
        from tokmill.page.budgets import check

        check(settings_of(config))


def show_at_end(config: Config, directory: Path, manifest: dict[str, Any]) -> None:
    """Print the bill of a model for the dataset that a run has made, if a model is named.

    A failure is only a warning.
    """
    settings = settings_of(config)
    if not settings.names_a_model:
        return
    from tokmill.page.bill_rows import bill_rows
    from tokmill.page.budgets import on_disk

    try:
        rows = bill_rows(make_budgets(settings, on_disk(directory, manifest)))
    except TokmillError as error:
        show_labelled("warning:", f"no bill: {error}", colour="yellow", err=True)
        return
    show()
    show_rows(rows)
