"""Whether text that is split at a boundary has other tokens than the same text joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.values import TokenBatch

WINDOW_BYTES = 8
"""At most this much on either side of a boundary is looked at, and no more than a word."""

_SPACE = 0x20
"""This byte and those below count as white space here."""

_MOST_KNOWN = 1 << 16
"""Surroundings of cuts that are remembered, in 9 bytes each."""

_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


class SplitJointCheck:
    """Finds the cuts that change tokens, and remembers what it has seen; safe between threads.

    A word on either side is looked at, with the white space before it and the cut.
    """

    def __init__(self) -> None:
        self._known = _Known(np.zeros(0, np.uint64), np.zeros(0, bool))

    def find(
        self,
        pieces: pa.LargeStringArray,
        cuts: npt.NDArray[np.int64],
        encode: Callable[[pa.LargeStringArray], TokenBatch],
    ) -> npt.NDArray[np.bool_]:
        """Say for n cuts whether the text around has other tokens when whole: (n,) bool.

        Args:
            pieces: texts.
            cuts: indices of pieces, none 0, that continue the piece before.
            encode: an engine that puts no prefix before a text; the same one every time.
        """
        if not len(cuts):
            return np.zeros(0, bool)
        offsets = byte_offsets(pieces)
        data = np.frombuffer(pieces.buffers()[2], np.uint8)
        middle = offsets[cuts]
        start, left = _word(data, middle, middle - offsets[cuts - 1], -1)
        stop, right = _word(data, middle, offsets[cuts + 1] - middle, 1)
        keys, at, which = _different(left, right)
        differs, is_new = self._known.look_up(keys)
        if is_new.any():
            start, middle, stop = (edge[at[is_new]] for edge in (start, middle, stop))
            sides = (*_distinct(data, start, middle), *_distinct(data, middle, stop))
            differs[is_new] = _differ(*sides, encode)
            self._known = self._known.with_more(keys[is_new], differs[is_new])
        return differs[which]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was seen: (n,) uint64 keys, sorted, and for each whether the tokens differ."""

    keys: npt.NDArray[np.uint64]
    differs: npt.NDArray[np.bool_]

    def look_up(
        self, keys: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Give what is known of n keys, and which of them are new: (n,) each."""
        if not len(self.keys):
            return np.zeros(len(keys), bool), np.ones(len(keys), bool)
        at = np.searchsorted(self.keys, keys)
        is_new = self.keys.take(at, mode="clip") != keys
        return self.differs.take(at, mode="clip"), is_new

    def with_more(self, keys: npt.NDArray[np.uint64], differs: npt.NDArray[np.bool_]) -> _Known:
        """Give the same and more; more alone when it would become too much."""
        order = np.argsort(keys)
        keys, differs = keys[order], differs[order]
        if len(self.keys) + len(keys) > _MOST_KNOWN:
            return _Known(keys, differs)
        at = np.searchsorted(self.keys, keys)
        return _Known(np.insert(self.keys, at, keys), np.insert(self.differs, at, differs))


def _word(
    data: npt.NDArray[np.uint8],
    middle: npt.NDArray[np.int64],
    n_bytes: npt.NDArray[np.int64],
    step: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Give where white space and one word before (-1) or behind (1) n cuts end, and their bytes.

    Of `n_bytes` that are there, and whole characters; their bytes as one number, 0 beyond the end.
    """
    steps = np.arange(WINDOW_BYTES)
    window = data.take((middle + min(step, 0))[:, None] + step * steps, mode="clip")
    is_space = window <= _SPACE
    is_space &= steps > np.argmin(is_space, axis=1)[:, None]
    n_word = np.argmax(is_space, axis=1)  # 0 where the word goes on
    n_word[n_word == 0] = WINDOW_BYTES
    ends = _on_character(data, middle + step * np.minimum(n_word, n_bytes), -step)
    window *= steps < np.abs(ends - middle)[:, None]
    return ends, window.view(np.uint64)[:, 0]


def _different(
    left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Give a key of each different pair of n, an index of one such, and which each pair is: (n,).

    The keys are hashes: that two of 2**16 are the same is less likely than one in 2**31.
    """
    mixed = (left * _MULTIPLIERS[0] ^ right) * _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(29)
    found = pa.array(mixed).dictionary_encode()
    which = found.indices.to_numpy()
    one_of_each = np.empty(len(found.dictionary), np.int64)
    one_of_each[which] = np.arange(len(which))
    return found.dictionary.to_numpy(), one_of_each, which


def _on_character(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], step: int
) -> npt.NDArray[np.int64]:
    """Move positions to where a character begins, or the text ends: at most three bytes on."""
    for _ in range(3):
        inside = data.take(positions, mode="clip") & 0xC0 == 0x80
        positions = positions + step * (inside & (positions < len(data)))
    return positions


def _distinct(
    data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]
) -> tuple[pa.LargeStringArray, npt.NDArray[np.int64]]:
    """Give every different text of n ranges once, and for each range which one it is: (n,)."""
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(stop - start, out=offsets[1:])
    chosen = data[_ranges(start, stop - start)]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(chosen)]
    texts = pa.Array.from_buffers(pa.large_string(), len(start), buffers)
    encoded = texts.dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def _differ(
    left: pa.LargeStringArray,
    of_left: npt.NDArray[np.int64],
    right: pa.LargeStringArray,
    of_right: npt.NDArray[np.int64],
    encode: Callable[[pa.LargeStringArray], TokenBatch],
) -> npt.NDArray[np.bool_]:
    """Say for n pairs, given by indices, whether their tokens are not those of both together."""
    import pyarrow.compute as pc

    empty = pa.scalar("", pa.large_string())
    whole = pc.binary_join_element_wise(left.take(of_left), right.take(of_right), empty)
    tokens = encode(pa.concat_arrays([left, right, whole]))
    lengths, n_parts = tokens.lengths, len(left) + len(right)
    parts = np.stack([of_left, of_right + len(left)], axis=1).ravel()
    apart = lengths[parts].reshape(-1, 2).sum(1)
    differs: npt.NDArray[np.bool_] = apart != lengths[n_parts:]
    same = np.flatnonzero(~differs)
    parts = parts.reshape(-1, 2)[same].ravel()
    got = tokens.ids[_ranges(tokens.offsets[parts], lengths[parts])]
    expected = tokens.ids[_ranges(tokens.offsets[same + n_parts], lengths[same + n_parts])]
    wrong = np.flatnonzero(got != expected)
    differs[same[np.searchsorted(np.cumsum(apart[same]), wrong, "right")]] = True
    return differs


def _ranges(start: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give the indices of n ranges, end to end."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    index: npt.NDArray[np.int64] = np.arange(total) + np.repeat(start - ends + lengths, lengths)
    return index
