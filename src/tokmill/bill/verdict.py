"""Verdict: whether an amount of memory fits."""

from __future__ import annotations

from dataclasses import dataclass

FITS = "fits"
BARELY = "fits by the estimate, not by the upper bound"
DOES_NOT_FIT = "does not fit"
AT_LEAST = "at least"
"""A part of the need is not known, and the rest fits."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are needed: expected, upper bound, and the part in /dev/shm."""

    n_bytes: int
    high_bytes: int
    shm_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are available; `shm_bytes` is the size of /dev/shm, 0 if it is not limited."""

    n_bytes: int
    shm_bytes: int = 0


def verdict(need: Need, room: Room) -> str:
    """Return FITS, BARELY or DOES_NOT_FIT."""
    if need.n_bytes > room.n_bytes or 0 < room.shm_bytes < need.shm_bytes:
        return DOES_NOT_FIT
    return BARELY if need.high_bytes > room.n_bytes else FITS
