"""Sizes, counts and durations as readable text.

Files are measured in B, kB, MB, GB, TB (powers of 1,000), memory in MiB and GiB (of 1,024).
"""

from __future__ import annotations

_ROUNDS_TO_1000 = 999.5
"""From this value on, three figures would print as `1e+03`."""

_MOST_HOURS = 48
"""From so many on, a duration is written in days."""

ROUNDED_FROM = 1e7
"""From this value on, a count is written as `10 million`."""


def size(n_bytes: float) -> str:
    """Return a size such as `1.39 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < _ROUNDS_TO_1000:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{_three_figures(n_bytes)} TB"


def memory(n_bytes: float) -> str:
    """Return an amount of memory such as `23.6 GiB`."""
    divisor, unit, digits = scale(n_bytes, binary=True)
    return f"{n_bytes / divisor:,.{digits}f} {unit}"


_SCALES = {
    True: (1024.0, 1024.0**2, (("MiB", 1), ("GiB", 2))),
    False: (1000.0, 1.0, (("B", 0), ("kB", 1), ("MB", 1), ("GB", 2), ("TB", 2))),
}


def scale(n_bytes: float, *, binary: bool) -> tuple[float, str, int]:
    """Return divisor, unit and decimals for a column of amounts whose largest is `n_bytes`."""
    step, divisor, units = _SCALES[binary]
    for unit, digits in units[:-1]:
        if n_bytes / divisor < step:
            return divisor, unit, digits
        divisor *= step
    return divisor, *units[-1]


def count(n: float) -> str:
    """Return a count such as `12,345` or `1.39 billion`."""
    if n < ROUNDED_FROM:
        return f"{n:,.0f}"
    for scale, name in ((1e6, "million"), (1e9, "billion")):
        if n / scale < _ROUNDS_TO_1000:
            return f"{n / scale:.3g} {name}"
    return f"{_three_figures(n / 1e12)} trillion"


def _three_figures(n: float) -> str:
    return f"{n:.3g}" if n < _ROUNDS_TO_1000 else f"{n:,.0f}"


def seconds(s: float) -> str:
    """Return a duration such as `1.3 s`, `2 h 05 min` or `3 days 22 h`."""
    if s < 60:
        return f"{s:.1f} s"
    minutes = round(s / 60)
    if minutes < 60:
        return f"{int(s // 60)} min {int(s % 60):02d} s"
    if minutes < _MOST_HOURS * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(s / 3600)
    return f"{hours // 24} days {hours % 24:02d} h"
