"""A set of characters as ranges of code points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """Ranges (first, last) of code points, increasing, with both ends in them."""

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
        """Read what `as_json` gave.

        Raises:
            ValueError: these are no increasing ranges.
        """
        found = tuple((int(first), int(last)) for first, last in ranges)
        end = -1
        for first, last in found:
            if not end < first <= last <= LAST:
                raise ValueError(f"{[first, last]} is no range of characters in order")
            end = last
        return cls(found)

    def as_json(self) -> list[list[int]]:
        """Return the ranges as plain values."""
        return [list(range_) for range_ in self.ranges]

    def codes(self) -> Iterator[int]:
        """Return every code point."""
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __contains__(self, code: int) -> bool:
        return any(first <= code <= last for first, last in self.ranges)

    def __or__(self, other: CharacterSet) -> CharacterSet:
        return CharacterSet.of([*self.codes(), *other.codes()])


def every_character() -> Iterator[int]:
    """Return all code points that UTF-8 can write: all but the surrogates."""
    yield from range(_SURROGATES.start)
    yield from range(_SURROGATES.stop, LAST + 1)
