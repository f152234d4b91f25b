"""The progress of a run: sums, a line of figures, and calls of the bar, the log and the caller."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from tokmill.words import ROUNDED_FROM, amount, plural, printable, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.dataset.counts import Increments
    from tokmill.run.plan import Plan

_GAP = "  "

LINE_EVERY_S = 30.0
"""Seconds between lines of progress where no bar can be drawn, as in a log of Slurm or nohup."""

CALL_EVERY_S = 0.1
"""Least seconds between calls with the progress of a run; one more comes at the end."""

_BAR_FROM_WIDTH = 80
_NOTEBOOK_WIDTH, _NOTEBOOK_EVERY_S = 100, 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; counts are sums over all of its attempts.

    Attributes:
        total_bytes: size of the input, as it is stored; 0 if unknown.
        input_bytes: bytes of it that are done.
        text_bytes: rendered text in UTF-8, of this attempt.
        tokens: tokens written, eos included.
        documents: documents or samples written.
        drops: records that a setting left out.
        rejects: broken records.
        elapsed_s: seconds since the first block of this attempt.
        resumed_bytes: the part of `input_bytes` that earlier attempts did.
        resumed_tokens: the part of `tokens` that earlier attempts wrote.
    """

    total_bytes: int = 0
    input_bytes: int = 0
    text_bytes: int = 0
    tokens: int = 0
    documents: int = 0
    drops: int = 0
    rejects: int = 0
    elapsed_s: float = 0.0
    resumed_bytes: int = 0
    resumed_tokens: int = 0

    def plus(self, more: Increments, elapsed_s: float) -> Progress:
        """Return the sums after increments."""
        resumed = int(more.resumed)
        return Progress(
            self.total_bytes,
            self.input_bytes + more.input_bytes,
            self.text_bytes + more.text_bytes * (1 - resumed),
            self.tokens + more.tokens,
            self.documents + more.documents,
            self.drops + sum(more.drops.values()),
            self.rejects + sum(more.rejects.values()),
            elapsed_s,
            self.resumed_bytes + more.input_bytes * resumed,
            self.resumed_tokens + more.tokens * resumed,
        )

    def line(self, width: int = 1 << 30) -> str:
        """Return the figures, the most important first, as many as fit into `width` characters.

        Percentage, speed, time left and rejects fit into 60 characters, whatever the numbers are.
        """
        elapsed_s = max(self.elapsed_s, 1e-9)
        of_attempt_bytes = self.input_bytes - self.resumed_bytes
        left_bytes = max(0, self.total_bytes - self.input_bytes)
        left = clock(left_bytes / of_attempt_bytes * elapsed_s) if of_attempt_bytes else "-:--"
        many_tokens = f"{amount(self.tokens, 'token')}"
        n_tokens_per_s = (self.tokens - self.resumed_tokens) / elapsed_s
        figures = [
            *([f"{self.percentage:3d}%"] if self.total_bytes else []),
            f"{self.text_bytes / elapsed_s / 1e6:.1f} MB/s",
            *([f"eta {left}"] if self.total_bytes else []),
            plural(self.rejects, "reject"),
            plural(self.tokens, "token") if self.tokens < ROUNDED_FROM else many_tokens,
            size(self.input_bytes),
            plural(self.drops, "drop"),
            f"{n_tokens_per_s / 1e6:.2f} Mtok/s",
        ]
        while len(figures) > 1 and len(_GAP.join(figures)) > width:
            figures.pop()
        return _GAP.join(figures)[:width]

    @property
    def percentage(self) -> int:
        """Return how much of the input is done, rounded down: 100 is all of it."""
        return min(100, 100 * self.input_bytes // max(1, self.total_bytes))


def clock(seconds: float) -> str:
    """Return a duration such as `0:42` or `1:02:03`."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def make_bar() -> TerminalBar | NotebookBar | None:
    """Return a bar for where this process runs; None where nothing can be drawn over."""
    if _has_terminal() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", ""):
        return TerminalBar()
    return NotebookBar() if _in_notebook() else None


def make_notes() -> Callable[[str], None] | None:
    """Return what shows a line to whoever watches; None where nobody does, as in a pipe."""
    if _in_notebook():
        return _show_in_notebook
    return _show_in_terminal if _has_terminal() else None


def _has_terminal() -> bool:
    """Return whether standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # a program without stderr, or that closed or replaced it
        return False


def _in_notebook() -> bool:
    """Return whether this is a notebook: IPython with a kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def _show_in_terminal(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")


def _show_in_notebook(text: str) -> None:
    from IPython.display import display

    show: Any = display
    show({"text/plain": printable(text)}, raw=True)


class TerminalBar:
    """A bar over input bytes with a line of figures behind it, on stderr; gone at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        self._console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
        figures = TextColumn(
            "{task.fields[line]}", markup=False, table_column=Column(no_wrap=True, overflow="crop")
        )
        width = self._console.width
        bars = (
            [BarColumn(20 if width > _BAR_FROM_WIDTH else 10)] if width >= _BAR_FROM_WIDTH else []
        )
        self._used_width = sum((column.bar_width or 0) + 1 for column in bars)
        self._bar = Bar(*bars, figures, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=None, line="")

    def start(self, total_bytes: int) -> None:
        """Show the bar; without a total it only pulses."""
        self._bar.update(self._task, total=total_bytes or None)
        self._bar.start()

    def update(self, progress: Progress) -> None:
        """Move the bar, and replace the figures."""
        line = progress.line(self._console.width - self._used_width)
        self._bar.update(self._task, completed=progress.input_bytes, line=line)

    def stop(self) -> None:
        """Take the bar off the screen."""
        self._bar.stop()


class NotebookBar:
    """The line of figures below a cell, which needs no package but IPython itself."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._text, self._last_s = {"text/plain": ""}, 0.0

    def start(self, total_bytes: int) -> None:
        """Show an empty line."""
        from IPython.display import display

        show: Any = display
        self._handle = show(self._text, raw=True, display_id=True)

    def update(self, progress: Progress) -> None:
        """Replace the line, a few times a second."""
        self._text, now = {"text/plain": progress.line(_NOTEBOOK_WIDTH)}, time.monotonic()
        if now - self._last_s >= _NOTEBOOK_EVERY_S:
            self._last_s = now
            self._handle.update(self._text, raw=True)

    def stop(self) -> None:
        """Leave the last line below the cell."""
        if self._handle is not None:
            self._handle.update(self._text, raw=True)


class RunObserver:
    """Receives events of a run and forwards them to the bar, the log and the callback.

    A context manager: at its end the bar leaves the screen and, after a run that reached its end,
    `call` gets the progress once more. Meanwhile it samples the memory of the process tree.

    Args:
        note: gets lines for whoever watches the run; None: no lines.
        warn: gets lines about what may go wrong; None: nowhere.
        insist: gets those of them that are said in any case; None: `warn` gets them.
        bar: is drawn over; None: a line of progress goes to `note` every `LINE_EVERY_S` seconds.
        call: gets the progress, at most once in `call_every_s` seconds, and at the end.
        begun: is called when the work begins: what a stopped run keeps is written from here on.
    """

    def __init__(
        self,
        *,
        note: Callable[[str], None] | None = None,
        warn: Callable[[str], None] | None = None,
        insist: Callable[[str], None] | None = None,
        bar: TerminalBar | NotebookBar | None = None,
        call: Callable[[Progress], object] | None = None,
        call_every_s: float | None = None,
        begun: Callable[[], object] | None = None,
    ) -> None:
        from tokmill.machine.process_tree import Sampler

        self._memory = Sampler()
        self._note, self._warn, self._bar, self._call, self._begun = note, warn, bar, call, begun
        self._insist = insist
        self._call_every_s = CALL_EVERY_S if call_every_s is None else call_every_s
        self._start = self._last_line = time.perf_counter()
        self._last_call = -math.inf
        self._progress = Progress()
        self._has_noted = False

    def __enter__(self) -> Self:
        self._memory.__enter__()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._memory.__exit__()
        if self._call is not None and kind is None:
            self._call(replace(self._progress, elapsed_s=time.perf_counter() - self._start))

    def warned(self, text: str, *, always: bool = False) -> None:
        """See `Observer`."""
        warn = self._insist if always and self._insist is not None else self._warn
        if warn is not None:
            warn(text)

    def noted(self, text: str) -> None:
        """See `Observer`."""
        self._has_noted = True
        if self._note is not None:
            self._note(text)

    def started(self, plan: Plan, n_done: int) -> None:
        """See `Observer`."""
        from tokmill.run.begin import input_line

        if not self._has_noted:  # a task of an array, which finds no input itself
            self.noted(input_line(plan.parts))
        for line in opening_notes(plan, n_done):
            self.noted(line)
        self.begin(sum(piece.n_bytes for part in plan.parts for piece in part.slices))

    def begin(self, total_bytes: int) -> None:
        """Start the bar and the clock; `total_bytes`: of the input, 0 if unknown."""
        if self._begun is not None:
            self._begun()
        if self._bar is not None:
            self._bar.start(total_bytes)
        self._progress = replace(self._progress, total_bytes=total_bytes)
        self._start = self._last_line = time.perf_counter()

    def progressed(self, progress: Increments) -> None:
        """See `Observer`."""
        now = time.perf_counter()
        self._progress = self._progress.plus(progress, now - self._start)
        if self._bar is not None:
            self._bar.update(self._progress)
        elif (
            self._call is None and self._note is not None and now - self._last_line >= LINE_EVERY_S
        ):
            self._last_line = now
            self._note(f"progress: {self._progress.line().strip()}")
        if self._call is not None and now - self._last_call >= self._call_every_s:
            self._last_call = now
            self._call(self._progress)

    def peak_memory_bytes(self) -> int:
        """See `Observer`."""
        self._memory.sample()
        return self._memory.peak.committed


def opening_notes(plan: Plan, n_done: int) -> Iterator[str]:
    """Yield lines about a run that begins: what is there, how it is rendered, tokenizer, engine."""
    config, engine = plan.spec.config, plan.spec.engine
    if n_done:
        yield f"already there: {plural(n_done, 'part')}"
    eos = plan.spec.tokenizer.eos
    rendering = "" if plan.spec.is_import else f"{_rendering(plan)}; "
    yield (
        f"{rendering}tokenizer: {plan.spec.tokenizer.name}, "
        f"eos {eos.content} = {eos.id}, {config.output.dtype}; "
        f"engine: {engine.name} ({engine.reason})"
    )
    if engine.fallback:
        yield engine.fallback


def _rendering(plan: Plan) -> str:
    """Return how records become text."""
    config = plan.spec.config
    if config.sft is None:
        renders = [reading.render for reading in plan.spec.readings]
        names = dict.fromkeys(
            "sections" if render.renderer_name == "sections" else render.renderer
            for render in renders
        )
        return f"renderer: {', '.join(names)}"
    from tokmill.chat.own_templates import own_name

    name = own_name(plan.spec.template) or "Jinja"
    fields = f" ({', '.join(config.sft.fields)})" if config.sft.fields else ""
    return f"schema: {config.sft.schema}{fields}; template: {name}; preset: {config.sft.preset}"
