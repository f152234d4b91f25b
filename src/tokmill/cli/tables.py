"""Print tables: as wide as the terminal, or plain text of fixed width without one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from tokmill.cli.screen import show_styled
from tokmill.words.printable import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

_PLAIN_WIDTH = 110
_LEAST_WIDTH = 40
"""Narrower tables would lose figures; with COLUMNS=0, as some programs set it, all text."""


def print_tables(tables: Iterable[RenderableType]) -> None:
    """Print what rich can render on standard output."""
    from rich.console import Console
    from rich.segment import Segments

    console = Console(no_color=click.get_current_context().color is False, highlight=False)
    is_told = console.is_terminal or "COLUMNS" in os.environ
    console.width = max(console.width, _LEAST_WIDTH) if is_told else _PLAIN_WIDTH
    # Captured, since rich would exit with code 1 (a mismatch) when it prints to a closed pipe.
    with console.capture() as captured:
        for table in tables:
            # Text cannot control the terminal; colours are stored beside it.
            segments = (s._replace(text=printable_lines(s.text)) for s in console.render(table))
            console.print(Segments(segments), soft_wrap=True, end="")
    for line in captured.get().split("\n")[:-1]:
        show_styled(line.rstrip())
