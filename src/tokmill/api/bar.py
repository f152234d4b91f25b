"""The progress bar, in a terminal or a notebook; rich is imported only when it draws."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_BAR_FROM_WIDTH = 80
_SHORT_BAR, _LONG_BAR = 10, 20
_NOTEBOOK_WIDTH, _NOTEBOOK_EVERY_S = 100, 0.2


def can_draw() -> bool:
    """Return whether stderr is a terminal that a line can be drawn over."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # a program without stderr, or that closed or replaced it
        return False
    return is_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def make_bar() -> Bar | NotebookBar | None:
    """Return a bar for where this process runs; None where nothing can be drawn over."""
    if can_draw():
        return Bar()
    return NotebookBar() if _in_notebook() else None


def _in_notebook() -> bool:
    """Return whether cells of a notebook run in this process."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """The line of figures below a cell, which needs no package but IPython itself."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._line, self._last_s = "", 0.0

    def start(self, total_bytes: int) -> None:
        """Show an empty line."""
        from IPython.display import display

        self._handle = display(_text(""), raw=True, display_id=True)

    def update(self, done_bytes: int, line: Callable[[int], str]) -> None:
        """Replace the line; `line` returns the figures for a width."""
        self._line, now = line(_NOTEBOOK_WIDTH), time.monotonic()
        if now - self._last_s >= _NOTEBOOK_EVERY_S:
            self._last_s = now
            self._handle.update(_text(self._line), raw=True)

    def stop(self) -> None:
        """Leave the last line below the cell."""
        if self._line:
            self._handle.update(_text(self._line), raw=True)


def _text(line: str) -> dict[str, str]:
    return {"text/plain": line}


class Bar:
    """A bar over input bytes with a line of figures behind it, on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
        width = self._console.width
        self._bar_width = _LONG_BAR if width > _BAR_FROM_WIDTH else _SHORT_BAR
        figures = TextColumn(
            "{task.fields[line]}", markup=False, table_column=Column(no_wrap=True, overflow="crop")
        )
        shown = [BarColumn(self._bar_width)] if width >= _BAR_FROM_WIDTH else []
        self._bar_width = self._bar_width + 1 if shown else 0
        self._progress = Progress(*shown, figures, console=self._console, transient=True)
        self._task = self._progress.add_task("", total=None, line="")

    def start(self, total_bytes: int) -> None:
        """Show the bar; without a total it only pulses."""
        self._progress.update(self._task, total=total_bytes or None)
        self._progress.start()

    def update(self, done_bytes: int, line: Callable[[int], str]) -> None:
        """Move the bar; `line` returns the figures for the width that is left for them."""
        room = self._console.width - self._bar_width
        self._progress.update(self._task, completed=done_bytes, line=line(room))

    def stop(self) -> None:
        """Take the bar off the screen."""
        self._progress.stop()
