"""Choose the windows of a sample: short byte ranges spread over the complete input."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from tokmill.sources.formats import cut, format_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.sources.files import Slice

_GOLDEN = (math.sqrt(5) - 1) / 2
_WINDOW_BYTES = 16 << 10
_MAX_WINDOWS = 4096
_FILES_PER_WINDOW = 4


def windows(slices: Sequence[Slice], limit_bytes: int, *, at_random: bool) -> Iterator[Slice]:
    """Yield the windows of a sample of about `limit_bytes`; all slices if they are not larger."""
    if is_read_completely(slices, limit_bytes):
        yield from slices
    else:
        yield from islice(_spread(slices, at_random=at_random), _MAX_WINDOWS)


def is_read_completely(slices: Sequence[Slice], limit_bytes: int) -> bool:
    """Return whether a sample of `limit_bytes` reads the slices completely."""
    if len(slices) > _MAX_WINDOWS:
        return False
    return sum(piece.n_bytes for piece in slices) <= limit_bytes


def _spread(slices: Sequence[Slice], *, at_random: bool) -> Iterator[Slice]:
    """Yield windows; a window over small files has several of them."""
    mean_bytes = sum(piece.n_bytes for piece in slices) // len(slices)
    if mean_bytes <= _WINDOW_BYTES and not any(map(has_byte_ranges, slices)):
        # Files are read completely: each has the same chance, whatever its size.
        picked = (int(i * _GOLDEN % 1 * len(slices)) for i in range(1, _MAX_WINDOWS + 1))
        yield from (slices[index] for index in dict.fromkeys(picked))
        return
    window_bytes = max(1, min(_WINDOW_BYTES, _FILES_PER_WINDOW * mean_bytes))
    seen: set[int] = set()
    positions = (
        _random(slices, _MAX_WINDOWS, window_bytes)
        if at_random
        else spread_positions(slices, _MAX_WINDOWS)
    )
    for index, start in slice_positions(slices, positions):
        if has_byte_ranges(slices[index]):
            yield from span_over_files(slices, index, start, window_bytes)
        elif index not in seen:
            seen.add(index)
            yield slices[index]
        elif len(seen) == len(slices):
            return


def row_group_slices(slices: list[Slice]) -> list[Slice]:
    """Return slices of single row groups for files of rows, so that all groups are sampled."""
    if len(slices) > _MAX_WINDOWS:
        return slices
    return [
        finer
        for piece in slices
        for finer in (
            cut(piece.file, 1)
            if piece.is_whole and format_named(piece.file.format).unit_bytes
            else [piece]
        )
    ]


def slice_positions(slices: Sequence[Slice], positions: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Yield for each position the number of its slice and the byte in its file."""
    ends = list(accumulate(piece.n_bytes for piece in slices))
    for position in positions:
        index = bisect_right(ends, position)
        piece = slices[index]
        yield index, piece.start + position - (ends[index] - piece.n_bytes)


def spread_positions(slices: Sequence[Slice], n: int) -> Iterator[int]:
    """Return `n` evenly spread positions in the bytes of all slices (golden ratio sequence)."""
    n_bytes = sum(piece.n_bytes for piece in slices)
    return (int(i * _GOLDEN % 1 * n_bytes) for i in range(1, n + 1))


def _random(slices: Sequence[Slice], n: int, window_bytes: int) -> Iterator[int]:
    """Return up to `n` random positions of disjoint windows; the same in every call."""
    n_windows = sum(piece.n_bytes for piece in slices) // window_bytes
    picked = random.Random(0).sample(range(n_windows), min(n, n_windows))  # noqa: S311 no secret
    return (index * window_bytes for index in picked)


def span_over_files(
    slices: Sequence[Slice], index: int, start: int, n_bytes: int
) -> Iterator[Slice]:
    """Yield slices with `n_bytes` of input from a position on, across the ends of files.

    Otherwise small files with one record, which seldom begin where a window begins, would never be
    sampled.
    """
    while n_bytes and index < len(slices) and has_byte_ranges(slices[index]):
        piece = slices[index]
        start = max(start, piece.start)
        stop = min(start + n_bytes, piece.start + piece.n_bytes)
        if stop > start:
            yield replace(piece, start=start, stop=stop, n_bytes=stop - start)
        n_bytes -= stop - start
        index, start = index + 1, 0


def has_byte_ranges(piece: Slice) -> bool:
    """Return whether reading can begin anywhere in a slice."""
    file = piece.file
    is_cut = format_named(file.format).has_byte_ranges
    return is_cut and not file.compression and not file.is_stream
