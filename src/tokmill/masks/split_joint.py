"""Split against joint: whether text split at a boundary has other tokens than the joined text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.offsets import byte_offsets, indices_of, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.values import TokenBatch

WINDOW_BYTES = 8
"""The bytes compared on each side of a boundary: at most these, and at most one word."""

_SPACE = 0x20
"""This byte and those below count as white space."""

_MOST_KNOWN = 1 << 16
"""The results that are remembered, about 100 bytes each."""

_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


class SplitJointCheck:
    """Finds the boundaries where split and joint tokens differ, and remembers what it compared.

    Compares one word on each side, with the white space before it. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def find(
        self,
        texts: pa.LargeStringArray,
        split_at: npt.NDArray[np.int64],
        encode: Callable[[pa.LargeStringArray], TokenBatch],
    ) -> npt.NDArray[np.bool_]:
        """Return for n split texts whether the joint tokens differ at the split: (n,) bool.

        `split_at`: (n,) indices of texts, none 0, that continue the text before them. `encode`: an
        engine that puts no prefix before a text; the same one in every call.
        """
        if not len(split_at):
            return np.zeros(0, bool)
        offsets = byte_offsets(texts)
        data = np.frombuffer(texts.buffers()[2], np.uint8)
        middle = offsets[split_at]
        start, left = _word(data, middle, middle - offsets[split_at - 1], -1)
        stop, right = _word(data, middle, offsets[split_at + 1] - middle, 1)
        keys, at, which = _distinct_pairs(left, right)
        known = self._known
        is_new = np.fromiter((key not in known for key in keys.tolist()), bool, len(keys))
        differs = np.fromiter((known.get(key, False) for key in keys.tolist()), bool, len(keys))
        if is_new.any():
            start, middle, stop = (edge[at[is_new]] for edge in (start, middle, stop))
            sides = (*_distinct_texts(data, start, middle), *_distinct_texts(data, middle, stop))
            differs[is_new] = _differ(*sides, encode)
            new = dict(zip(keys[is_new].tolist(), differs[is_new].tolist(), strict=True))
            if len(known) + len(new) > _MOST_KNOWN:
                self._known = new
            else:
                known.update(new)
        return differs[which]


def _word(
    data: npt.NDArray[np.uint8],
    middle: npt.NDArray[np.int64],
    n_bytes: npt.NDArray[np.int64],
    step: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return where the white space and word before (-1) or after (1) n positions end.

    At most `n_bytes` and whole characters. Also returns their bytes as one number each, padded
    with 0.
    """
    steps = np.arange(WINDOW_BYTES)
    window = data.take((middle + min(step, 0))[:, None] + step * steps, mode="clip")
    is_space = window <= _SPACE
    is_space &= steps > np.argmin(is_space, axis=1)[:, None]
    n_word = np.argmax(is_space, axis=1)
    n_word[n_word == 0] = WINDOW_BYTES  # no space after the word: it fills the window
    ends = _on_character(data, middle + step * np.minimum(n_word, n_bytes), -step)
    window *= steps < np.abs(ends - middle)[:, None]
    return ends, window.view(np.uint64)[:, 0]


def _distinct_pairs(
    left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return keys of the distinct pairs, an index of each among n, and the pair of each n: (n,).

    Keys are hashes: two of 2**16 are equal by chance less often than once in 2**31.
    """
    mixed = (left * _MULTIPLIERS[0] ^ right) * _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(29)
    found = pa.array(mixed).dictionary_encode()
    which = found.indices.to_numpy()
    index = np.empty(len(found.dictionary), np.int64)
    index[which] = np.arange(len(which))
    return found.dictionary.to_numpy(), index, which


def _on_character(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], step: int
) -> npt.NDArray[np.int64]:
    """Return positions moved to the next start of a character: at most three bytes."""
    for _ in range(3):
        inside = data.take(positions, mode="clip") & 0xC0 == 0x80
        positions = positions + step * (inside & (positions < len(data)))
    return positions


def _distinct_texts(
    data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]
) -> tuple[pa.LargeStringArray, npt.NDArray[np.int64]]:
    """Return the distinct texts of n ranges, and the index of the text of each range: (n,)."""
    lengths = stop - start
    buffers = [
        None,
        pa.py_buffer(offsets_of(lengths)),
        pa.py_buffer(data[indices_of(start, lengths)]),
    ]
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
    """Return for n pairs, given by indices, whether joining both texts changes the tokens."""
    import pyarrow.compute as pc

    empty = pa.scalar("", pa.large_string())
    joint = pc.binary_join_element_wise(left.take(of_left), right.take(of_right), empty)
    tokens = encode(pa.concat_arrays([left, right, joint]))
    lengths, n_sides = tokens.lengths, len(left) + len(right)
    sides = np.stack([of_left, of_right + len(left)], axis=1)
    n_split = lengths[sides].sum(1)
    differs: npt.NDArray[np.bool_] = n_split != lengths[n_sides:]
    same = np.flatnonzero(~differs)
    sides, joints = sides[same].ravel(), same + n_sides
    split_ids = tokens.ids[indices_of(tokens.offsets[sides], lengths[sides])]
    joint_ids = tokens.ids[indices_of(tokens.offsets[joints], lengths[joints])]
    wrong = np.flatnonzero(split_ids != joint_ids)
    differs[same[np.searchsorted(np.cumsum(n_split[same]), wrong, "right")]] = True
    return differs
