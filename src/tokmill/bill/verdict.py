"""Verdict: whether an amount of memory fits."""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.bill.formula import Bill
from tokmill.bill.gpus import Gpu

FITS = "fits"
BARELY = "fits by the estimate, not by the upper bound"
DOES_NOT_FIT = "does not fit"
AT_LEAST = "at least"
"""A part of the need is not known, and the rest fits."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are needed: expected, upper bound, and the part in /dev/shm.

    `missing` names what is not known: the amounts are then only a part.
    """

    n_bytes: int
    high_bytes: int
    shm_bytes: int = 0
    missing: str = ""

    @classmethod
    def of(cls, bill: Bill) -> Need:
        """Return the need of a bill."""
        return cls(bill.n_bytes, bill.high_bytes, missing=bill.missing)


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are available; `shm_bytes` is the size of /dev/shm, 0 if it is not limited."""

    n_bytes: int
    shm_bytes: int = 0


def verdict(need: Need, room: Room) -> str:
    """Return FITS, BARELY, DOES_NOT_FIT, or AT_LEAST if a part of what fits is not known."""
    if need.n_bytes > room.n_bytes or 0 < room.shm_bytes < need.shm_bytes:
        return DOES_NOT_FIT
    if need.missing:
        return AT_LEAST
    return BARELY if need.high_bytes > room.n_bytes else FITS


def gpu_verdict(bill: Bill, gpu: Gpu) -> str:
    """Return whether a bill fits on a GPU, by its upper bound over all moments."""
    return verdict(Need.of(bill), Room(gpu.memory_bytes))
