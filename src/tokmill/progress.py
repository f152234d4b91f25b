"""How far a run is, as a line of figures that is as long as the screen is wide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.words.plural import plural
from tokmill.words.units import ROUNDED_FROM, count, size

if TYPE_CHECKING:
    from tokmill.recipes.spec import Progress

_GAP = "  "


@dataclass(slots=True)
class Figures:
    """Sums over a run so far; what earlier attempts had done is in no speed.

    `total_bytes`: of the whole input, 0 where nobody knows.
    """

    total_bytes: int = 0
    input_bytes: int = 0
    tokens: int = 0
    drops: int = 0
    rejects: int = 0
    fresh_input_bytes: int = 0
    fresh_text_bytes: int = 0
    fresh_tokens: int = 0

    def add(self, progress: Progress) -> None:
        """Add increments."""
        self.input_bytes += progress.input_bytes
        self.tokens += progress.tokens
        self.drops += sum(progress.drops.values())
        self.rejects += sum(progress.rejects.values())
        if not progress.resumed:
            self.fresh_input_bytes += progress.input_bytes
            self.fresh_text_bytes += progress.text_bytes
            self.fresh_tokens += progress.tokens

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
