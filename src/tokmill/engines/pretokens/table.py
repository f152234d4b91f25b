"""The ids of pieces that were seen, for whole arrays of pieces at once."""

from __future__ import annotations

import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

_ENTRY_BYTES = 200
"""What an entry takes beside its piece and its ids, about: two objects and its place in a dict."""


class PretokenIds(NamedTuple):
    """The ids of one piece.

    `alone`: they hold only where the piece is a whole word. `continues_unknown`: the first is an
    unknown token that goes on from the piece before, if that one `ends_unknown`: both are one.
    """

    ids: Sequence[int]
    alone: bool = False
    continues_unknown: bool = False
    ends_unknown: bool = False


class PretokenTable:
    """Maps pieces to slots, and slots to ids; safe to call from several threads.

    It is only ever appended to, and a slot is given out after everything of it is in its place: who
    reads needs no lock, even while arrays are replaced by longer ones.
    """

    def __init__(self, encode: Callable[[Sequence[bytes]], Sequence[PretokenIds]]) -> None:
        self._encode = encode
        self._lock = threading.Lock()
        self._slots: dict[bytes, int] = {}
        self._ids = np.zeros(1 << 12, np.uint32)
        self._starts = np.zeros(1 << 10, np.int64)
        self._lengths = np.zeros(1 << 10, np.int64)
        self._alone = np.zeros(1 << 10, np.bool_)
        self._continues = np.zeros(1 << 10, np.bool_)
        self._ends = np.zeros(1 << 10, np.bool_)
        self._n_ids = 0
        self.n_bytes = 0

    def slots(self, pieces: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Give the slots of pieces, each of which comes once: (n,)."""
        known = self._slots
        if any(piece not in known for piece in pieces):
            with self._lock:
                self._learn([piece for piece in pieces if piece not in known])
        return np.fromiter(map(known.__getitem__, pieces), np.int64, len(pieces))

    def alone(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say which pieces have their ids only as whole words: (n,)."""
        return self._alone[slots]

    def gather(
        self, slots: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Give the ids of pieces end to end, and where those of each end: (n_ids,) and (n,)."""
        starts, lengths = self._starts[slots], self._lengths[slots]
        continued = self._continues[slots[1:]]
        continued &= self._ends[slots[:-1]]
        if continued.any():
            starts[1:] += continued
            lengths[1:] -= continued
        ends = np.cumsum(lengths)
        n_ids = int(ends[-1]) if len(ends) else 0
        places = np.repeat(starts - (ends - lengths), lengths)
        places += np.arange(n_ids)
        return self._ids[places], ends

    def _learn(self, pieces: Sequence[bytes]) -> None:
        learnt = self._encode(pieces)
        lengths = np.fromiter((len(piece.ids) for piece in learnt), np.int64, len(learnt))
        starts = self._n_ids + np.cumsum(lengths) - lengths
        n_slots, n_ids = len(self._slots), int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(piece.ids for piece in learnt), np.uint32, n_ids)
        self._ids = _appended(self._ids, self._n_ids, ids)
        self._starts = _appended(self._starts, n_slots, starts)
        self._lengths = _appended(self._lengths, n_slots, lengths)
        self._alone = _appended(self._alone, n_slots, [p.alone for p in learnt])
        self._continues = _appended(self._continues, n_slots, [p.continues_unknown for p in learnt])
        self._ends = _appended(self._ends, n_slots, [p.ends_unknown for p in learnt])
        self._n_ids += n_ids
        self.n_bytes += sum(map(len, pieces)) + 4 * n_ids + _ENTRY_BYTES * len(learnt)
        self._slots.update(zip(pieces, range(n_slots, n_slots + len(learnt)), strict=True))


def _appended(array: npt.NDArray[Any], n: int, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Write values behind the first n, into a copy at least twice as long where they do not fit."""
    values = np.asarray(values, array.dtype)
    stop = n + len(values)
    if stop > len(array):
        longer = np.zeros(max(stop, 2 * len(array)), array.dtype)
        longer[:n] = array[:n]
        array = longer
    array[n:stop] = values
    return array
