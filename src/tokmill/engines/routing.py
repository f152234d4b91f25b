"""Routes documents to the reference: with some characters or strings, or if an engine raises.

The search for characters is much cheaper than encoding: 0.1 to 0.4 ns for a byte of text. It looks
for the bytes that begin the set's characters in UTF-8; only there are characters decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.offsets import byte_offsets, merge_tokens
from tokmill.tokenizer.control_tokens import contains_any
from tokmill.tokenizer.tokenizer_json import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.values import TokenBatch

LAST = 0x10FFFF

_CHUNK_BYTES = 256 << 10
"""Searched for every first byte in turn, while it is in the cache of a core."""

_CALL_TEXTS = 512
"""Of those that engines are compared on about 200 kB, of nearly as many tokens: the reference takes
over 100 bytes for each."""

_FIRST_BITS = np.array([0x7F, 0x1F, 0x0F, 0x07], np.uint32)


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """Ranges (first, last) of code points, both included, increasing."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, codes: Iterable[int]) -> CharacterSet:
        """Return the set of some code points."""
        return cls._joined((code, code) for code in set(codes))

    @classmethod
    def _joined(cls, ranges: Iterable[tuple[int, int]]) -> CharacterSet:
        """Return the set of some ranges, which may touch or overlap."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return cls(tuple(joined))

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
        return self._joined([*self.ranges, *other.ranges])

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __contains__(self, code: int) -> bool:
        return any(first <= code <= last for first, last in self.ranges)


COMMON = CharacterSet(((0, 0xD7FF), (0xE000, 0xFFFF), (0x1F000, 0x1FFFF)))
"""The first plane and the blocks of emoji: hardly any document has others."""

RARE = CharacterSet(((0x10000, 0x1EFFF), (0x20000, LAST)))

EVERY = COMMON | RARE
"""All code points that UTF-8 can encode: all but the surrogates."""


@dataclass(frozen=True, slots=True)
class Routes:
    """What sends a document to the reference: a character of a set, or one of some strings."""

    characters: CharacterSet = field(default_factory=CharacterSet)
    strings: tuple[str, ...] = ()

    def __or__(self, other: Routes) -> Routes:
        """Return the routes of both."""
        strings = dict.fromkeys(self.strings + other.strings)
        return Routes(self.characters | other.characters, tuple(strings))

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"characters": self.characters.as_json(), "strings": list(self.strings)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Routes:
        """Read the result of `as_json`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        strings = data["strings"]
        if not all(isinstance(string, str) and string for string in strings):
            raise TypeError(f"{strings!r} are no strings")
        return cls(CharacterSet.from_json(data["characters"]), tuple(strings))


class RoutedEngine:
    """Encodes documents by an engine, and by the reference where that differs or raises.

    `reference` loads the reference; it is called with the first such document. `routes`: what the
    documents have on which the two differ or were not compared; may be empty.
    """

    def __init__(self, engine: Engine, reference: Callable[[], Engine], routes: Routes) -> None:
        self.name = engine.name
        self.renewable = engine.renewable
        self.concurrent = engine.concurrent
        self._engine = engine
        self._reference = reference
        self._finder = CharacterFinder(routes.characters) if routes.characters else None
        self._strings = routes.strings

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        is_routed = self.is_routed(text)
        if not is_routed.any():
            return self._encode_or_route(text)
        rest = self._route(text.filter(pa.array(is_routed)))
        first = self._encode_or_route(text.filter(pa.array(~is_routed)))
        return merge_tokens(first, rest, is_routed)

    def is_routed(self, text: pa.LargeStringArray) -> npt.NDArray[np.bool_]:
        """Return which of n documents go to the reference whatever the engine does: (n,)."""
        has_character = np.zeros(len(text), np.bool_)
        if self._finder:
            has_character = self._finder.documents_with_one(text)
        return has_character | contains_any(text, self._strings)

    def _encode_or_route(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents by the engine, and those on which it raises by the reference.

        A batch raises as a whole: it is halved until the engine takes a half, or one document is
        left. So the documents that go to the reference do not depend on the size of blocks.
        """
        try:
            return self._engine.encode(text)
        except MemoryError:
            raise
        except BaseException as error:
            refusal(error)  # raises what is no error of the engine, such as Ctrl-C
            if len(text) < 2:
                return self._route(text)
        middle = len(text) // 2
        first, rest = (self._encode_or_route(half) for half in (text[:middle], text[middle:]))
        return merge_tokens(first, rest, np.arange(len(text)) >= middle)

    def _route(self, text: pa.LargeStringArray) -> TokenBatch:
        return replace(self._reference().encode(text), routed=np.arange(len(text)))


def ids_of_each(engine: Engine, texts: Sequence[str]) -> Iterator[npt.NDArray[np.uint32]]:
    """Yield the ids of each text; encodes `_CALL_TEXTS` at a time."""
    for start in range(0, len(texts), _CALL_TEXTS):
        batch = engine.encode(pa.array(texts[start : start + _CALL_TEXTS], pa.large_string()))
        for first, last in pairwise(batch.offsets.tolist()):
            yield batch.ids[first:last]


class CharacterFinder:
    """Finds documents that contain a character of a set, which is not empty."""

    def __init__(self, characters: CharacterSet) -> None:
        self._is_wanted = np.zeros(LAST + 1, np.bool_)
        first_bytes: set[int] = set()
        for first, last in characters.ranges:
            self._is_wanted[first : last + 1] = True
            first_bytes.update(range(_first_byte(first), _first_byte(last) + 1))
        # A range that begins in ASCII passes the bytes that only continue characters.
        of_characters = (byte for byte in first_bytes if not 0x80 <= byte < 0xC0)
        self._first_bytes = CharacterSet.of(of_characters).ranges

    def documents_with_one(self, text: pa.LargeStringArray) -> npt.NDArray[np.bool_]:
        """Return which of n documents contain one: (n,)."""
        has_one = np.zeros(len(text), np.bool_)
        offsets = byte_offsets(text)
        start, stop = int(offsets[0]), int(offsets[-1])
        if start < stop:
            data = np.frombuffer(text.buffers()[2], np.uint8)[start:stop]
            for places in self._places(data):
                has_one[np.searchsorted(offsets, start + places, "right") - 1] = True
        return has_one

    def _places(self, data: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.int64]]:
        """Yield where characters of the set begin in UTF-8, unordered."""
        for start in range(0, len(data), _CHUNK_BYTES):
            chunk = data[start : start + _CHUNK_BYTES]
            largest = int(chunk.max())
            for low, high in self._first_bytes:
                if low <= largest:  # most text has none of the largest ones
                    is_first = chunk == low if low == high else chunk - np.uint8(low) <= high - low
                    places = start + np.flatnonzero(is_first)
                    yield places[self._is_wanted[_codes(data, places)]]


def _first_byte(code: int) -> int:
    return chr(code).encode("utf-8", "surrogatepass")[0]


def _codes(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the code points that begin at places of valid UTF-8: (n,)."""
    first = data[places].astype(np.uint32)
    n_more = (first >= 0xC0).astype(np.int64) + (first >= 0xE0) + (first >= 0xF0)
    codes = first & _FIRST_BITS[n_more]
    for i in (1, 2, 3):
        following = data[np.minimum(places + i, len(data) - 1)] & np.uint8(0x3F)
        codes = np.where(n_more >= i, codes << np.uint32(6) | following, codes)
    return codes
