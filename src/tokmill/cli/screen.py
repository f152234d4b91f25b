"""The only module that prints; control characters in names, messages and records are escaped."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tokmill.interrupts import NOT_BEGUN, Interrupt
from tokmill.words import json_text, printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from tokmill.api.progress import RunObserver


def show(text: str = "", *, bold: bool = False, err: bool = False) -> None:
    """Print one line on standard output or standard error."""
    show_styled(click.style(printable(text), bold=True) if bold else printable(text), err=err)


def show_labelled(label: str, text: str, *, colour: str, err: bool = False) -> None:
    """Print one line behind a word that stands out, such as `warning:`."""
    show_styled(f"{click.style(label, fg=colour, bold=True)} {printable(text)}", err=err)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    show_labelled("warning:", text, colour="yellow", err=True)


def observer(*, quiet: bool = False, as_json: bool = False, stopped: str = "") -> RunObserver:
    """Return what shows the notes, warnings and progress of a run on standard error.

    With `as_json` there are only warnings, with `quiet` only
    those about settings that match nothing. `stopped`: what an interrupt says
    once the work has begun, '' if it always says the same.
    """
    from tokmill.api.progress import RunObserver, make_bar

    has_notes = not (quiet or as_json)
    if stopped:
        Interrupt.line = NOT_BEGUN
    return RunObserver(
        begun=partial(setattr, Interrupt, "line", stopped) if stopped else None,
        note=partial(show, err=True) if has_notes else None,
        warn=None if quiet else warn,
        insist=warn,
        bar=make_bar() if has_notes else None,
    )


def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print (label, text) rows, the texts in one column; a text may have several lines.

    A terminal wraps texts inside their column; elsewhere each line stays whole.
    """
    lines = [
        (label if not at else "", line, "")
        for label, text in rows
        for at, line in enumerate(text.split("\n"))
    ]
    if _has_width():
        from tokmill.terminal_tables import labelled

        print_tables([labelled(lines)])
        return
    width = max(len(label) for label, _ in rows)
    for label, line, _ in lines:
        shown = click.style(printable(label).ljust(width), bold=True)
        show_styled(f"{shown}  {printable(line)}".rstrip())


def show_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    show_styled(json_text(value))


def show_styled(text: str, *, err: bool = False) -> None:
    """Print text that holds nothing but printable characters, line ends and colours of ours."""
    click.echo(text, err=err, color=False if os.environ.get("NO_COLOR") else None)


_PLAIN_WIDTH = 110
_LEAST_WIDTH = 40
"""Narrower tables would lose figures; with COLUMNS=0, as some programs set it, all text."""


def _has_width() -> bool:
    """Return whether standard output is a terminal, or COLUMNS names the width of one."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: a closed descriptor
    return is_terminal or "COLUMNS" in os.environ


def print_tables(tables: Iterable[RenderableType]) -> None:
    """Print what rich can render on standard output."""
    from rich.console import Console
    from rich.segment import Segments

    console = Console(no_color=click.get_current_context().color is False, highlight=False)
    console.width = max(console.width, _LEAST_WIDTH) if _has_width() else _PLAIN_WIDTH
    # Captured, since rich would exit with code 1 (a mismatch) when it prints to a closed pipe.
    with console.capture() as captured:
        for table in tables:
            # Text cannot control the terminal; colours are stored beside it.
            segments = (s._replace(text=printable_lines(s.text)) for s in console.render(table))
            console.print(Segments(segments), soft_wrap=True, end="")
    for line in captured.get().split("\n")[:-1]:
        show_styled(line.rstrip())
