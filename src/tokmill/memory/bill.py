"""A bill: lines that add up, and what they leave out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokmill.memory.formula import Line


@dataclass(frozen=True, slots=True)
class Bill:
    """The memory of one place at one moment, in bytes; the total is the sum of the lines.

    `title` says place and moment ("GPU memory, training: start of backward"). `leaves_out` names
    what no line covers.
    """

    title: str
    lines: tuple[Line, ...]
    leaves_out: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int:
        """The expected total."""
        return sum(line.n_bytes for line in self.lines)

    @property
    def low_bytes(self) -> int:
        """The total if every line is at its lower bound."""
        return sum(line.low_bytes for line in self.lines)

    @property
    def high_bytes(self) -> int:
        """The total if every line is at its upper bound."""
        return sum(line.high_bytes for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        """Return the bill as plain values."""
        return {
            "title": self.title,
            "bytes": self.n_bytes,
            "low_bytes": self.low_bytes,
            "high_bytes": self.high_bytes,
            "lines": [line.as_json() for line in self.lines],
            "leaves_out": list(self.leaves_out),
        }
