"""Whether an amount of memory fits: the words for it, and the comparison behind them."""

from __future__ import annotations

from dataclasses import dataclass

FITS = "fits"
BARELY = "fits by the estimate, not by the upper bound"
DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are needed, expected and at most; `shm_bytes` of them lie in /dev/shm."""

    n_bytes: int
    high_bytes: int
    shm_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that there are; `shm_bytes` is the size of /dev/shm, 0 if it does not matter."""

    n_bytes: int
    shm_bytes: int = 0


def verdict(need: Need, room: Room) -> str:
    """Return FITS, BARELY or DOES_NOT_FIT."""
    if need.n_bytes > room.n_bytes or 0 < room.shm_bytes < need.shm_bytes:
        return DOES_NOT_FIT
    return BARELY if need.high_bytes > room.n_bytes else FITS
