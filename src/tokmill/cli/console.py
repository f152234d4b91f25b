"""What a run shows while it goes on: notes, warnings and a progress bar on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tokmill.cli.bar import Bar
from tokmill.cli.screen import show, show_labelled
from tokmill.report.units import count, plural, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.measure.process_tree import PeakMemory
    from tokmill.pipeline.plan import Plan
    from tokmill.pipeline.spec import Progress as Increments


def _rendering(plan: Plan) -> str:
    """Say how records become text."""
    config = plan.spec.config
    if config.sft is None:
        return f"renderer: {config.render.renderer}"
    template = plan.spec.template
    name = template if len(template.splitlines()) == 1 and "{" not in template else "Jinja"
    return f"schema: {config.sft.schema}; template: {name}; preset: {config.sft.preset}"


class RunDisplay:
    """The screen's view of a run: notes, a progress bar on a terminal, the peak of memory."""

    def __init__(self, memory: PeakMemory, *, notes: bool, warnings: bool) -> None:
        self._memory = memory
        self._notes, self._warnings = notes, warnings
        self._bar = Bar() if notes and sys.stderr.isatty() else None
        self._start = time.perf_counter()
        self._input_bytes = self._tokens = self._drops = self._rejects = 0
        self._fresh_bytes = self._fresh_tokens = 0

    def note(self, text: str) -> None:
        """Print a line for the person who watches the run."""
        if self._notes:
            show(text, err=True)

    def warned(self, text: str) -> None:
        """See `Observer`."""
        if self._warnings:
            show_labelled("warning:", text, colour="yellow", err=True)

    def started(self, plan: Plan, n_done: int, ignored: Sequence[str]) -> None:
        """See `Observer`."""
        config, engine = plan.spec.config, plan.spec.engine
        n_bytes = sum(s.n_bytes for part in plan.parts for s in part.slices)
        files = plural(len({s.file.path for part in plan.parts for s in part.slices}), "file")
        self.note(
            f"input: {files}, {size(n_bytes) if n_bytes else 'size unknown'}, "
            f"in {plural(len(plan.parts), 'part')}"
            + (f"; already there: {plural(n_done, 'part')}" if n_done else "")
        )
        for line in ignored:
            self.note(line)
        if plan.spec.tokenizer.eos_note:
            self.note(plan.spec.tokenizer.eos_note)
        eos = plan.spec.tokenizer.eos
        self.note(
            f"{_rendering(plan)}; tokenizer: {plan.spec.tokenizer.name}, "
            f"eos {eos.content} = {eos.id}, {config.output.dtype}; "
            f"engine: {engine.name} ({engine.reason})"
        )
        if self._bar is not None:
            self._bar.start(n_bytes)
        self._start = time.perf_counter()

    def progressed(self, progress: Increments) -> None:
        """See `Observer`."""
        self._input_bytes += progress.input_bytes
        self._tokens += progress.tokens
        self._drops += sum(progress.drops.values())
        self._rejects += sum(progress.rejects.values())
        if not progress.resumed:
            self._fresh_bytes += progress.text_bytes
            self._fresh_tokens += progress.tokens
        if self._bar is not None:
            self._bar.update(self._input_bytes, self._line())

    def _line(self) -> str:
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        return (
            f"{size(self._input_bytes)}  {self._fresh_bytes / elapsed / 1e6:.1f} MB/s of text  "
            f"{count(self._tokens)} tokens  {self._fresh_tokens / elapsed / 1e6:.2f} Mtok/s  "
            f"{self._drops:,} drops  {self._rejects:,} rejects"
        )

    def peak_memory_bytes(self) -> int:
        """See `Observer`."""
        return self._memory.sample()

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
