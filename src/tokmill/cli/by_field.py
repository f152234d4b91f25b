"""The option `--by` of `stats` and `report`, and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.options import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

_NAME_COLUMNS, _MOST_VALUES = 28, 20


def field_option(heading: str = "") -> Callable[[Any], Any]:
    """Return the option that names a kept field to count by."""
    grouped: dict[str, Any] = {"cls": Option, "heading": heading} if heading else {}
    return click.option(
        "--by", "field", default="", metavar="FIELD", help="Count by a field of --keep.", **grouped
    )


def field_table(
    field: str, counts: Sequence[Mapping[str, Any]], n_documents: int, n_tokens: int
) -> RenderableType:
    """Return the table of the values of a kept field with most tokens; others are summed up.

    `n_documents`, `n_tokens`: of the dataset, at least 1.
    """
    from tokmill.inspect.by_field import most_frequent
    from tokmill.page.markup import shortened
    from tokmill.terminal_tables import rows_table
    from tokmill.words import printable

    shown = [
        (printable(row["value"]), row["documents"], row["tokens"])
        for row in most_frequent(counts, _MOST_VALUES)
    ]
    rows = [
        (shortened(value, _NAME_COLUMNS), f"{n:,}", f"{n / n_documents:.1%}", f"{of_value:,}",
         f"{of_value / n_tokens:.1%}")
        for value, n, of_value in shown
    ]  # fmt: skip
    return rows_table(field, ("documents", "share", "tokens", "share"), rows)
