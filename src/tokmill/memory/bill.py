"""A bill: lines that add up, what they leave out, and GPU memory besides tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokmill.memory.formula import Formula, Line


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


MIB = 1 << 20

FRAGMENTATION = Formula(
    "fragmentation",
    "0.04 * allocated",
    "torch's caching allocator: reserved less allocated; 3 to 5 % is common",
    "0 to 10 % here; ZeRO (section 3.2) reports out-of-memory with over 30 % free in extreme cases",
)
CUDA_CONTEXT = Formula(
    "CUDA context and libraries",
    "500 * 2 ** 20",
    "300 MiB with lazy loading to over 1 GB (pytorch issue 107667), per process, outside torch's "
    "allocator; workspaces of cuBLAS on top",
    "300 to 1,000 MiB",
)


def overhead_lines(allocated_bytes: int, high_bytes: int) -> tuple[Line, Line]:
    """Return fragmentation and context beside tensors of so many bytes, expected and at most."""
    return (
        FRAGMENTATION.line(
            {"allocated": allocated_bytes}, low_bytes=0, high_bytes=high_bytes // 10
        ),
        CUDA_CONTEXT.line({}, low_bytes=300 * MIB, high_bytes=1000 * MIB),
    )
