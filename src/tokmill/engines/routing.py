"""Routes documents to the reference: with certain characters, or on which a fast engine raises.

The search for characters is much cheaper than encoding: the C library looks for the bytes that
begin the set's characters in UTF-8, comparing 32 bytes at once; only there are characters decoded.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.dataset.counts import ROUTED
from tokmill.offsets import byte_offsets, merge_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.values import TokenBatch

LAST = 0x10FFFF

_OF_LENGTH = (range(0x80), range(0x80, 0x800), range(0x800, 0x10000), range(0x10000, LAST + 1))
"""The code points of one to four bytes in UTF-8."""

_LEADS = (0, 0xC0, 0xE0, 0xF0)
"""Bits of the first byte of a character of one to four bytes."""

_CHUNK_BYTES = 256 << 10
"""Searched for every first byte in turn, while it is in the cache of a core."""

_MOST_CALLS = 32
"""For one byte in one chunk; if it is more frequent, all its places are found at once."""

_FIRST_BITS = np.array([0x7F, 0x1F, 0x0F, 0x07], np.uint32)

# PyDLL keeps the GIL: a call takes about 10 us, and to get the GIL back can take 5 ms.
_memchr = ctypes.PyDLL(None).memchr
_memchr.restype = ctypes.c_void_p
_memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """Ranges (first, last) of code points, both included, increasing."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, codes: Iterable[int]) -> CharacterSet:
        """Return the set of some code points."""
        ranges: list[tuple[int, int]] = []
        for code in sorted(set(codes)):
            if ranges and code == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
        return cls(tuple(ranges))

    @classmethod
    def from_json(cls, ranges: Sequence[Sequence[int]]) -> CharacterSet:
        """Read the result of `as_json`.

        Raises:
            ValueError: the ranges are not increasing.
        """
        pairs = tuple((int(first), int(last)) for first, last in ranges)
        end = -1
        for first, last in pairs:
            if not end < first <= last <= LAST:
                raise ValueError(f"{[first, last]} is no range of characters in order")
            end = last
        return cls(pairs)

    def as_json(self) -> list[list[int]]:
        """Return the ranges as plain values."""
        return [list(range_) for range_ in self.ranges]

    def codes(self) -> Iterator[int]:
        """Yield every code point."""
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __or__(self, other: CharacterSet) -> CharacterSet:
        """Return the characters of both sets."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self.ranges, *other.ranges]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        return CharacterSet(tuple(ranges))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __contains__(self, code: int) -> bool:
        return any(first <= code <= last for first, last in self.ranges)


COMMON = CharacterSet(((0, 0xD7FF), (0xE000, 0xFFFF), (0x1F000, 0x1FFFF)))
"""The first plane and the blocks of emoji: hardly any document has others."""

RARE = CharacterSet(((0x10000, 0x1EFFF), (0x20000, LAST)))

EVERY = COMMON | RARE
"""All code points that UTF-8 can encode: all but the surrogates."""


class RoutedEngine:
    """Encodes documents by an engine, and by the reference where that differs or raises.

    `reference` loads the reference; it is called with the first such document. `characters`: those
    on which the two differ or were not compared; may be empty.
    """

    def __init__(
        self, engine: Engine, reference: Callable[[], Engine], characters: CharacterSet
    ) -> None:
        self.name = engine.name
        self.renewable = engine.renewable
        self.concurrent = engine.concurrent
        self._engine = engine
        self._reference = reference
        self._finder = CharacterFinder(characters) if characters else None

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        routed = self._finder.documents(text) if self._finder else ()
        if not len(routed):
            return self._encode_or_route(text)
        is_routed = np.zeros(len(text), np.bool_)
        is_routed[routed] = True
        rest = self._route(text.filter(pa.array(is_routed)))
        first = self._encode_or_route(text.filter(pa.array(~is_routed)))
        return merge_tokens(first, rest, is_routed)

    def _encode_or_route(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents by the engine, and those on which it raises by the reference.

        A batch raises as a whole: it is halved until the engine takes a half, or one document is
        left. So the documents that go to the reference do not depend on the size of blocks.
        """
        try:
            return self._engine.encode(text)
        except MemoryError:
            raise
        except Exception:
            if len(text) < 2:
                return self._route(text)
        middle = len(text) // 2
        first, rest = (self._encode_or_route(half) for half in (text[:middle], text[middle:]))
        return merge_tokens(first, rest, np.arange(len(text)) >= middle)

    def _route(self, text: pa.LargeStringArray) -> TokenBatch:
        return replace(self._reference().encode(text), routed=np.arange(len(text)))


def routed_counts(
    tokens: TokenBatch, owner: npt.NDArray[np.int64], n_documents: int
) -> dict[str, npt.NDArray[np.int64]]:
    """Return 1 for each document with a routed text, as `Counts.checks`; empty if there is none.

    `owner`: (n_texts,), the document of each text.
    """
    if tokens.routed is None:
        return {}
    counts = np.zeros(n_documents, np.int64)
    counts[owner[tokens.routed]] = 1
    return {ROUTED: counts}


class CharacterFinder:
    """Finds documents that contain a character of a set, which is not empty."""

    def __init__(self, characters: CharacterSet) -> None:
        ranges = np.array(characters.ranges, np.uint32)
        self._starts, self._lasts = ranges[:, 0], ranges[:, 1]
        self._seconds = _second_bytes(characters)
        """By first byte of a character: the ranges of its second bytes."""

    def documents(self, text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
        """Return the indices of the documents that contain one, increasing: (k,) of n."""
        offsets = byte_offsets(text)
        start, stop = int(offsets[0]), int(offsets[-1])
        if start == stop:
            return np.zeros(0, np.int64)
        data = np.frombuffer(text.buffers()[2], np.uint8)[start:stop]
        places = self._places(data)
        if not len(places):
            return places
        indices: npt.NDArray[np.int64] = np.unique(
            np.searchsorted(offsets, places + start, "right") - 1
        )
        return indices

    def _places(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return where characters of the set begin in UTF-8, unordered."""
        of_chunks = [
            start + places
            for start in range(0, len(data), _CHUNK_BYTES)
            for first in self._first_bytes(data[start : start + _CHUNK_BYTES])
            if len(places := _places_of(data, start, first, self._seconds[first]))
        ]
        if not of_chunks:
            return np.zeros(0, np.int64)
        places = np.concatenate(of_chunks)
        codes = _codes(data, places)
        range_ = np.searchsorted(self._starts, codes, "right") - 1
        return places[(range_ >= 0) & (codes <= self._lasts[range_])]

    def _first_bytes(self, chunk: npt.NDArray[np.uint8]) -> list[int]:
        """Return the first bytes to look for: most text has none of the largest ones."""
        largest = int(chunk.max())
        return [first for first in self._seconds if first <= largest]


def _second_bytes(characters: CharacterSet) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the first bytes of characters in UTF-8, each with the ranges of its second bytes."""
    seconds_of: dict[int, list[int]] = {}
    for first, last in characters.ranges:
        for n_more, (codes, lead) in enumerate(zip(_OF_LENGTH, _LEADS, strict=True)):
            low, high = max(first, codes.start), min(last, codes.stop - 1)
            bits = 6 * max(0, n_more - 1)  # of the bytes after the second
            for start in range(low >> bits, (high >> bits) + 1 if low <= high else 0):
                if n_more:
                    seconds_of.setdefault(lead | start >> 6, []).append(0x80 | start & 0x3F)
                else:
                    seconds_of[start] = []
    return {byte: CharacterSet.of(seconds).ranges for byte, seconds in seconds_of.items()}


def _places_of(
    data: npt.NDArray[np.uint8], start: int, first: int, seconds: Sequence[tuple[int, int]]
) -> npt.NDArray[np.int64]:
    """Return the places of a byte in the chunk at `start`, relative to it.

    If there are many, only those before a byte of the ranges `seconds`, if any.
    """
    chunk = data[start : start + _CHUNK_BYTES]
    places = list(islice(_search(chunk, first), _MOST_CALLS))
    if len(places) < _MOST_CALLS:
        return np.array(places, np.int64)
    is_first = chunk == first
    if not seconds:
        return np.flatnonzero(is_first)
    following = data[start + 1 : start + 1 + _CHUNK_BYTES]
    is_first = is_first[: len(following)]
    is_place = np.zeros(len(following), np.bool_)
    for low, high in seconds:
        is_place |= (following - np.uint8(low) <= high - low) & is_first
    return np.flatnonzero(is_place)


def _search(data: npt.NDArray[np.uint8], byte: int) -> Iterator[int]:
    """Yield the places of a byte, each found by a call of `memchr`."""
    address = data.ctypes.data
    end = address + len(data)
    at = address
    while at < end and (address_found := _memchr(at, byte, end - at)) is not None:
        yield address_found - address
        at = address_found + 1


def _codes(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the code points that begin at places of valid UTF-8: (n,)."""
    first = data[places].astype(np.uint32)
    n_more = (first >= 0xC0).astype(np.int64) + (first >= 0xE0) + (first >= 0xF0)
    codes = first & _FIRST_BITS[n_more]
    for i in (1, 2, 3):
        following = data[np.minimum(places + i, len(data) - 1)] & np.uint8(0x3F)
        codes = np.where(n_more >= i, codes << np.uint32(6) | following, codes)
    return codes
