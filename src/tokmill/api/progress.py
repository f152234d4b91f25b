"""The progress of a run: sums, a line of figures, and calls of the bar, the log and the caller."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.words.plural import plural
from tokmill.words.units import ROUNDED_FROM, count, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.api.bar import Bar, NotebookBar
    from tokmill.bill.measuring.process_tree import Sampler
    from tokmill.recipes.spec import Increments
    from tokmill.run.plan import Plan

_GAP = "  "

LINE_EVERY_S = 30.0
"""Seconds between lines of progress where no bar can be drawn, as in a log of Slurm or nohup."""

CALL_EVERY_S = 0.1
"""Least seconds between calls with the progress of a run; one more comes at the end."""


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
    """

    total_bytes: int
    input_bytes: int
    text_bytes: int
    tokens: int
    documents: int
    drops: int
    rejects: int
    elapsed_s: float


@dataclass(slots=True)
class Figures:
    """Sums over all attempts of a run. Speeds count this attempt only.

    `total_bytes`: size of the input; 0 if unknown.
    """

    total_bytes: int = 0
    input_bytes: int = 0
    tokens: int = 0
    documents: int = 0
    drops: int = 0
    rejects: int = 0
    fresh_input_bytes: int = 0
    fresh_text_bytes: int = 0
    fresh_tokens: int = 0

    def add(self, progress: Increments) -> None:
        """Add increments."""
        self.input_bytes += progress.input_bytes
        self.tokens += progress.tokens
        self.documents += progress.documents
        self.drops += sum(progress.drops.values())
        self.rejects += sum(progress.rejects.values())
        if not progress.resumed:
            self.fresh_input_bytes += progress.input_bytes
            self.fresh_text_bytes += progress.text_bytes
            self.fresh_tokens += progress.tokens

    def progress(self, elapsed_s: float) -> Progress:
        """Return the sums as they are now."""
        return Progress(
            self.total_bytes,
            self.input_bytes,
            self.fresh_text_bytes,
            self.tokens,
            self.documents,
            self.drops,
            self.rejects,
            elapsed_s,
        )

    def line(self, elapsed_s: float, width: int = 1 << 30) -> str:
        """Return the figures in at most `width` characters; the least important are left out.

        Percentage, speed, time left and rejects fit into 60 characters, whatever the numbers are.
        """
        fields = self._fields(max(elapsed_s, 1e-9))
        while len(fields) > 1 and _length(fields) > width:
            fields.remove(max(fields))
        return _GAP.join(text for _, _, text in sorted(fields, key=lambda field: field[1]))[:width]

    def _fields(self, elapsed_s: float) -> list[tuple[int, int, str]]:
        """Return (rank, column, text) of every figure; rank 0 stays longest."""
        texts = [
            (0, f"{self.percentage:3d}%" if self.total_bytes else ""),
            (5, size(self.input_bytes)),
            (1, f"{self.fresh_text_bytes / elapsed_s / 1e6:.1f} MB/s"),
            (2, f"eta {self._time_left(elapsed_s)}" if self.total_bytes else ""),
            (3, plural(self.rejects, "reject")),
            (6, plural(self.drops, "drop")),
            (4, _counted(self.tokens, "token")),
            (7, f"{self.fresh_tokens / elapsed_s / 1e6:.2f} Mtok/s"),
        ]
        return [(rank, column, text) for column, (rank, text) in enumerate(texts) if text]

    @property
    def percentage(self) -> int:
        """Return how much of the input is done, rounded down: 100 is all of it."""
        return min(100, 100 * self.input_bytes // max(1, self.total_bytes))

    def _time_left(self, elapsed_s: float) -> str:
        if not self.fresh_input_bytes:
            return "-:--"
        left = max(0, self.total_bytes - self.input_bytes)
        return clock(left / self.fresh_input_bytes * elapsed_s)


def _counted(n: int, thing: str) -> str:
    return plural(n, thing) if n < ROUNDED_FROM else f"{count(n)} {thing}s"


def clock(seconds: float) -> str:
    """Return a duration such as `0:42` or `1:02:03`."""
    minutes, s = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"


def _length(fields: list[tuple[int, int, str]]) -> int:
    return sum(len(text) for _, _, text in fields) + len(_GAP) * (len(fields) - 1)


class RunObserver:
    """Receives events of a run and forwards them to the bar, the log and the callback.

    Args:
        memory: samples the memory of the process tree.
        note: gets lines for whoever watches the run; None: no lines and no bar.
        warn: gets lines about what may go wrong; None: nowhere.
        bar: is drawn over; None: a line of progress goes to `note` every `line_every_s` seconds.
        call: gets the progress, see `CALL_EVERY_S`.
        clock: returns seconds.
        line_every_s: seconds between lines of progress; `inf`: none.
    """

    def __init__(
        self,
        memory: Sampler,
        *,
        note: Callable[[str], None] | None = None,
        warn: Callable[[str], None] | None = None,
        bar: Bar | NotebookBar | None = None,
        call: Callable[[Progress], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        line_every_s: float = LINE_EVERY_S,
    ) -> None:
        self._memory, self._clock, self._line_every_s = memory, clock, line_every_s
        self._note, self._warn, self._bar, self._call = note, warn, bar, call
        self._start = self._last_line = clock()
        self._last_call = -math.inf
        self._figures = Figures()
        self._has_noted = False

    def warned(self, text: str) -> None:
        """See `Observer`."""
        if self._warn is not None:
            self._warn(text)

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
        if self._bar is not None:
            self._bar.start(total_bytes)
        self._figures.total_bytes = total_bytes
        self._start = self._last_line = self._clock()

    def progressed(self, progress: Increments) -> None:
        """See `Observer`."""
        figures = self._figures
        figures.add(progress)
        now = self._clock()
        elapsed_s = now - self._start
        if self._bar is not None:
            self._bar.update(figures.input_bytes, lambda width: figures.line(elapsed_s, width))
        elif self._note is not None and now - self._last_line >= self._line_every_s:
            self._last_line = now
            self._note(f"progress: {figures.line(elapsed_s).strip()}")
        if self._call is not None and now - self._last_call >= CALL_EVERY_S:
            self._last_call = now
            self._call(figures.progress(elapsed_s))

    def peak_memory_bytes(self) -> int:
        """See `Observer`."""
        self._memory.sample()
        return self._memory.peak.committed

    def ended(self) -> None:
        """Call back once more, after a run that reached its end."""
        if self._call is not None:
            self._call(self._figures.progress(self._clock() - self._start))

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()


def opening_notes(plan: Plan, n_done: int) -> Iterator[str]:
    """Yield lines about a run that begins: what is there, how it is rendered, tokenizer, engine."""
    config, engine = plan.spec.config, plan.spec.engine
    if n_done:
        yield f"already there: {plural(n_done, 'part')}"
    eos = plan.spec.tokenizer.eos
    yield (
        f"{_rendering(plan)}; tokenizer: {plan.spec.tokenizer.name}, "
        f"eos {eos.content} = {eos.id}, {config.output.dtype}; "
        f"engine: {engine.name} ({engine.reason})"
    )
    if engine.fallback:
        yield engine.fallback


def _rendering(plan: Plan) -> str:
    """Return how records become text."""
    config = plan.spec.config
    if config.sft is None:
        renders = [one.render for one in plan.spec.readings] or [config.render]
        return f"renderer: {', '.join(dict.fromkeys(render.renderer for render in renders))}"
    template = plan.spec.template
    name = template if len(template.splitlines()) == 1 and "{" not in template else "Jinja"
    fields = f" ({', '.join(config.sft.fields)})" if config.sft.fields else ""
    return f"schema: {config.sft.schema}{fields}; template: {name}; preset: {config.sft.preset}"
