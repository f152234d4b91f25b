"""Makes and prints budgets, for the commands that end with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokmill.cli.screen import show, show_json, show_rows, warn
from tokmill.cli.tables import print_tables
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.cli.measuring import Row
    from tokmill.page.budgets import Budgets
    from tokmill.settings.schema import Config


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


def show_at_end(config: Config, directory: Path, manifest: dict[str, Any]) -> None:
    """Print the bill of a model for the dataset that a run has made, if a model is named.

    A failure is only a warning.
    """
    from tokmill.page.budgets import BudgetSettings

    settings = BudgetSettings.of(config)
    if not settings.names_a_model:
        return
    from tokmill.api.jobs import budgets_of
    from tokmill.page.bill_rows import bill_rows
    from tokmill.page.budgets import on_disk

    try:
        rows = bill_rows(budgets_of(settings, on_disk(directory, manifest)))
    except TokmillError as error:
        warn(f"no bill: {error}")
        return
    show()
    show_rows(rows)
