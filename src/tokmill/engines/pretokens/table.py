"""The ids of known pretokens, looked up for arrays of pretokens at once."""

from __future__ import annotations

import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

_ENTRY_BYTES = 200
"""Of an entry besides its bytes and ids, about: two objects and a place in a dict."""


class PretokenIds(NamedTuple):
    """The ids of one pretoken.

    `alone`: they are valid only if the pretoken is a complete word. `continues_unknown`: begins
    with an unknown token, which merges with that of a pretoken before it that `ends_unknown`.
    """

    ids: Sequence[int]
    alone: bool = False
    continues_unknown: bool = False
    ends_unknown: bool = False


class PretokenTable:
    """Maps pretokens to slots, and slots to ids; safe to call from several threads.

    Entries are only appended, and a slot is published after its data is written. So readers need
    no lock, even while arrays are replaced by longer ones.
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

    def slots(self, pretokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Return the slots of different pretokens: (n,)."""
        known = self._slots
        if any(pretoken not in known for pretoken in pretokens):
            with self._lock:
                self._learn([pretoken for pretoken in pretokens if pretoken not in known])
        return np.fromiter(map(known.__getitem__, pretokens), np.int64, len(pretokens))

    def alone(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which pretokens have ids only as complete words: (n,)."""
        return self._alone[slots]

    def gather(
        self, slots: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the concatenated ids of pretokens, and the end of each: (n_ids,) and (n,)."""
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

    def _learn(self, pretokens: Sequence[bytes]) -> None:
        learned = self._encode(pretokens)
        lengths = np.fromiter((len(pretoken.ids) for pretoken in learned), np.int64, len(learned))
        starts = self._n_ids + np.cumsum(lengths) - lengths
        n_slots, n_ids = len(self._slots), int(lengths.sum())
        ids = np.fromiter(
            chain.from_iterable(pretoken.ids for pretoken in learned), np.uint32, n_ids
        )
        self._ids = _appended(self._ids, self._n_ids, ids)
        self._starts = _appended(self._starts, n_slots, starts)
        self._lengths = _appended(self._lengths, n_slots, lengths)
        self._alone = _appended(self._alone, n_slots, [p.alone for p in learned])
        self._continues = _appended(
            self._continues, n_slots, [p.continues_unknown for p in learned]
        )
        self._ends = _appended(self._ends, n_slots, [p.ends_unknown for p in learned])
        self._n_ids += n_ids
        self.n_bytes += sum(map(len, pretokens)) + 4 * n_ids + _ENTRY_BYTES * len(learned)
        self._slots.update(zip(pretokens, range(n_slots, n_slots + len(learned)), strict=True))


def _appended(array: npt.NDArray[Any], n: int, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Write values after the first n; into a copy of twice the length if they do not fit."""
    values = np.asarray(values, array.dtype)
    stop = n + len(values)
    if stop > len(array):
        longer = np.zeros(max(stop, 2 * len(array)), array.dtype)
        longer[:n] = array[:n]
        array = longer
    array[n:stop] = values
    return array
