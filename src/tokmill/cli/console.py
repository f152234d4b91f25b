"""What a run shows while it goes on, on stderr: notes, warnings, and how far it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tokmill.bar import Bar, can_draw
from tokmill.cli.screen import show, show_labelled
from tokmill.progress import Figures
from tokmill.words.plural import plural
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.measure.process_tree import PeakMemory
    from tokmill.recipes.spec import Progress as Increments
    from tokmill.run.plan import Plan


def _rendering(plan: Plan) -> str:
    """Say how records become text."""
    config = plan.spec.config
    if config.sft is None:
        return f"renderer: {config.render.renderer}"
    template = plan.spec.template
    name = template if len(template.splitlines()) == 1 and "{" not in template else "Jinja"
    fields = f" ({', '.join(config.sft.fields)})" if config.sft.fields else ""
    return f"schema: {config.sft.schema}{fields}; template: {name}; preset: {config.sft.preset}"


LINE_EVERY_S = 30.0
"""Where no bar can be drawn, as in a log of Slurm or nohup, lines are so far apart."""


class RunDisplay:
    """The screen's view of a run: notes, a bar or lines of progress, the peak of memory.

    `clock` returns seconds; lines of progress are `line_every_s` of it apart.
    """

    def __init__(
        self,
        memory: PeakMemory,
        *,
        notes: bool,
        warnings: bool,
        clock: Callable[[], float] = time.perf_counter,
        line_every_s: float = LINE_EVERY_S,
    ) -> None:
        self._memory, self._clock, self._line_every_s = memory, clock, line_every_s
        self._notes, self._warnings = notes, warnings
        self._bar = Bar() if notes and can_draw() else None
        self._start = self._last_line = clock()
        self._figures = Figures()

    def note(self, text: str) -> None:
        """Print a line for the person who watches the run."""
        if self._notes:
            show(text, err=True)

    def warned(self, text: str) -> None:
        """See `Observer`."""
        if self._warnings:
            show_labelled("warning:", text, colour="yellow", err=True)

    def started(self, plan: Plan, n_done: int, notes: Sequence[str]) -> None:
        """See `Observer`."""
        config, engine = plan.spec.config, plan.spec.engine
        slices = [piece for part in plan.parts for piece in part.slices]
        n_bytes = sum(piece.n_bytes for piece in slices)
        is_known = n_bytes or not any(p.file.path == "-" or p.file.format == "hub" for p in slices)
        files = plural(len({piece.file.path for piece in slices}), "file")
        self.note(
            f"input: {files}, {size(n_bytes) if is_known else 'size unknown'}, "
            f"in {plural(len(plan.parts), 'part')}"
            + (f"; already there: {plural(n_done, 'part')}" if n_done else "")
        )
        for line in notes:
            self.note(line)
        eos = plan.spec.tokenizer.eos
        self.note(
            f"{_rendering(plan)}; tokenizer: {plan.spec.tokenizer.name}, "
            f"eos {eos.content} = {eos.id}, {config.output.dtype}; "
            f"engine: {engine.name} ({engine.reason})"
        )
        if engine.fallback:
            self.note(engine.fallback)
        if self._bar is not None:
            self._bar.start(n_bytes)
        self._figures.total_bytes = n_bytes
        self._start = self._last_line = self._clock()

    def progressed(self, progress: Increments) -> None:
        """See `Observer`."""
        self._figures.add(progress)
        now = self._clock()
        elapsed_s = now - self._start
        if self._bar is not None:
            figures = self._figures
            self._bar.update(figures.input_bytes, lambda width: figures.line(elapsed_s, width))
        elif now - self._last_line >= self._line_every_s:
            self._last_line = now
            self.note(f"progress: {self._figures.line(elapsed_s).strip()}")

    def peak_memory_bytes(self) -> int:
        """See `Observer`."""
        return self._memory.sample()

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
