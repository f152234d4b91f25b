"""The progress bar, for terminals; rich is imported only when one is shown."""

from __future__ import annotations

import os


class Bar:
    """A bar over input bytes with a line of figures behind it, on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            BarColumn(20),
            TaskProgressColumn(),
            TextColumn("{task.fields[line]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR"))),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, line="")

    def start(self, total_bytes: int) -> None:
        """Show the bar; without a total it only pulses."""
        self._progress.update(self._task, total=total_bytes or None)
        self._progress.start()

    def update(self, done_bytes: int, line: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done_bytes, line=line)

    def stop(self) -> None:
        """Take the bar off the screen."""
        self._progress.stop()
