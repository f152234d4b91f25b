"""Drift: whether text cut in two has other tokens than whole, at boundaries of text and text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.encode.offsets import byte_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.batch import TokenBatch

WINDOW_BYTES = 16
"""At most this much on either side of a boundary is looked at, and no more than a word."""

_SPACE = 0x20
"""This byte and those below count as white space here."""


def drifts(
    pieces: pa.LargeStringArray,
    cuts: npt.NDArray[np.int64],
    encode: Callable[[pa.LargeStringArray], TokenBatch],
) -> npt.NDArray[np.bool_]:
    """Say for n cuts whether the text around has other tokens when it is not cut there: (n,) bool.

    On either side the nearest word counts, with the white space before it and the cut. What stands
    around many cuts alike is encoded once.

    Args:
        pieces: texts.
        cuts: indices of pieces, none 0, that continue the piece before.
        encode: an engine that puts no prefix before a text.
    """
    if not len(cuts):
        return np.zeros(0, bool)
    offsets = byte_offsets(pieces)
    data = np.frombuffer(pieces.buffers()[2], np.uint8)
    middle = offsets[cuts]
    n_before = _word_bytes(data, middle - 1, -1, middle - offsets[cuts - 1])
    n_behind = _word_bytes(data, middle, 1, offsets[cuts + 1] - middle)
    start = _on_character(data, middle - n_before, 1)
    stop = _on_character(data, middle + n_behind, -1)
    left, of_left = _distinct(data, start, middle)
    right, of_right = _distinct(data, middle, stop)
    pairs = pa.array(of_left * len(right) + of_right).dictionary_encode()
    index_left, index_right = np.divmod(pairs.dictionary.to_numpy(), len(right))
    differs = _differ(left, right, index_left, index_right, encode)
    result: npt.NDArray[np.bool_] = differs[pairs.indices.to_numpy()]
    return result


def _word_bytes(
    data: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    step: int,
    n_bytes: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Count white space and one word from `at` on, of at most `n_bytes` that are there: (n,)."""
    steps = np.arange(WINDOW_BYTES)
    window = data.take(at[:, None] + step * steps, mode="clip")
    is_space = window <= _SPACE
    is_space &= steps > np.argmin(is_space, axis=1)[:, None]
    ends = np.argmax(is_space, axis=1)  # 0 where the word goes on
    ends[ends == 0] = WINDOW_BYTES
    counts: npt.NDArray[np.int64] = np.minimum(ends, n_bytes)
    return counts


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
    right: pa.LargeStringArray,
    of_left: npt.NDArray[np.int64],
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
