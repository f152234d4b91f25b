"""The only module that prints; control characters in names, messages and records are escaped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from tokmill.words.printable import json_text, printable

if TYPE_CHECKING:
    from collections.abc import Sequence


def show(text: str = "", *, bold: bool = False, err: bool = False) -> None:
    """Print one line on standard output or standard error."""
    show_styled(click.style(printable(text), bold=True) if bold else printable(text), err=err)


def show_labelled(label: str, text: str, *, colour: str, err: bool = False) -> None:
    """Print one line behind a word that stands out, such as `warning:`."""
    show_styled(f"{click.style(label, fg=colour, bold=True)} {printable(text)}", err=err)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    show_labelled("warning:", text, colour="yellow", err=True)


def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print (label, text) rows, the texts in one column; a text may have several lines."""
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        first, *more = map(printable, text.split("\n"))
        show_styled(f"{click.style(printable(label).ljust(width), bold=True)}  {first}")
        for line in more:
            show_styled(" " * (width + 2) + line)


def show_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    show_styled(json_text(value))


def show_styled(text: str, *, err: bool = False) -> None:
    """Print text that holds nothing but printable characters, line ends and colours of ours."""
    click.echo(text, err=err, color=False if os.environ.get("NO_COLOR") else None)
