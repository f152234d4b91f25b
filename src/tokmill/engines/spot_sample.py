"""Picks the text that the spot check compares: short documents, and windows of long ones.

Only a hash of the text decides, so the result depends neither on batches, workers and threads nor
on earlier documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

LONGEST_BYTES = 32 << 10
"""A longer document is split into windows of at most this size."""

_FIRST_ROUND = 16
"""A quick hash of some bytes picks this many times the wanted share, a hash of all bytes the rest.
The quick hash alone would pick all or none of the texts that differ in a word or two."""

_WORD_BYTES = 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


@dataclass(frozen=True, slots=True)
class Spans:
    """Documents or windows of documents: (n_spans,) int64 each.

    `document`: index of the document. `start`, `stop`: bytes in the column's buffer; a window may
    begin and end inside a character.
    """

    document: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]


def pick_spans(text: pa.LargeStringArray, share: float) -> Spans:
    """Return the spans to compare: on average `share` of the bytes, of long and short documents.

    An empty document is never picked.
    """
    offsets = byte_offsets(text)
    if not len(text) or offsets[0] == offsets[-1]:
        return Spans(*np.zeros((3, 0), np.int64))
    spans = _spans(offsets)
    inside = spans.start - offsets[spans.document]
    data = np.frombuffer(text.buffers()[2], np.uint8)
    first = min(1.0, _FIRST_ROUND * share)
    is_picked = (_hashes(data, spans, inside) < _threshold(first)) & (spans.start < spans.stop)
    second = int(_threshold(share / first))
    rest = np.flatnonzero(is_picked)
    chosen = []
    for i in rest.tolist():
        whole = data[spans.start[i] : spans.stop[i]].data
        if xxhash.xxh3_64_intdigest(whole, int(inside[i])) < second:
            chosen.append(i)
    return Spans(spans.document[chosen], spans.start[chosen], spans.stop[chosen])


def _threshold(share: float) -> np.uint64:
    return np.uint64(min(int(share * (1 << 64)), (1 << 64) - 1))


def _spans(offsets: npt.NDArray[np.int64]) -> Spans:
    """Return short documents, and long ones as windows of equal size."""
    start, stop = offsets[:-1], offsets[1:]
    document = np.arange(len(start))
    if (stop - start).max() <= LONGEST_BYTES:
        return Spans(document, start, stop)
    n_windows = np.maximum(1, -(-(stop - start) // LONGEST_BYTES))
    document = np.repeat(document, n_windows)
    number = np.arange(len(document)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    length, of_windows = (stop - start)[document], n_windows[document]
    first, last = (start[document] + length * (number + i) // of_windows for i in (0, 1))
    return Spans(document, first, last)


def _hashes(
    data: npt.NDArray[np.uint8], spans: Spans, inside: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return a hash of each span: of its length, and of eight bytes at four places in it.

    `inside`: its place in its document, so that windows with the same text differ.
    """
    lengths = spans.stop - spans.start
    mixed = (lengths ^ (inside << 20)).astype(np.uint64) * _MULTIPLIER
    room = np.maximum(lengths - _WORD_BYTES, 0)
    for place in (0, room // 3, 2 * room // 3, room):
        mixed = (mixed ^ _words(data, spans.start + place, lengths)) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    return mixed * _MULTIPLIER


def _words(
    data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return the eight bytes at each start, or fewer for a shorter text."""
    if len(data) < _WORD_BYTES:
        data = np.pad(data, (0, _WORD_BYTES - len(data)))
    # A view of the bytes as overlapping words: indexing every byte takes 20 times as long.
    words: npt.NDArray[np.uint64] = np.ndarray(
        (len(data) - _WORD_BYTES + 1,), "<u8", data, strides=(1,)
    )
    index = np.minimum(start, len(words) - 1)
    too_far = (8 * (start - index)).astype(np.uint64)
    beyond = (8 * np.maximum(_WORD_BYTES - lengths, 0)).astype(np.uint64)
    found: npt.NDArray[np.uint64] = words[index] >> too_far << beyond
    return found
