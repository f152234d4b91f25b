"""Segments: the parts of a sample. Each is one control token, or text of one kind and turn."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from enum import IntEnum
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.values import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt


class Kind(IntEnum):
    """The kind of a segment within its turn; the mask rule trains or masks whole kinds."""

    OTHER = 0
    """Never trained: bos, a preamble, text between turns."""
    HEADER = 1
    CONTENT = 2
    REASONING = 3
    TOOL_CALL = 4
    EOT = 5
    SUFFIX = 6
    """Text behind the end of turn, such as a newline."""
    END = 7
    """The eos that tokmill appends to a sample, or to a reply without an end of turn."""
    EOT_OUTSIDE = 8
    SUFFIX_OUTSIDE = 9
    """The same, but behind the generation tag of a template."""
    HEADER_INSIDE = 10
    """A header that a template has inside its generation tag; trained unless a user masks it."""


ENDS = (Kind.EOT, Kind.EOT_OUTSIDE, Kind.END)
"""Kinds of which one ends a turn."""

_SUFFIXES = (Kind.SUFFIX, Kind.SUFFIX_OUTSIDE)

ROLES = ("system", "developer", "user", "assistant", "tool")


class SegmentTable(NamedTuple):
    """The kinds of segments, and the turns that they belong to.

    `kinds`, `turns`: (n_segments,) int64, a `Kind` and the number of a turn. `roles`, `samples`:
    (n_turns,) int64, index in `ROLES` and number of the sample. `given`: (n_turns,) float32,
    the weight that the record gives, NaN where it gives none. `factors`: (n_segments,) float32,
    the weight that a part of a message has within its turn, NaN where it has that of its turn.
    """

    kinds: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    factors: npt.NDArray[np.float32]
    roles: npt.NDArray[np.int64]
    given: npt.NDArray[np.float32]
    samples: npt.NDArray[np.int64]


class Columns(NamedTuple):
    """Segments as columns: n of them, none empty.

    `text`: large_string. `ids`: (n,) int32, control token or `TEXT`. `table`: kinds and turns.
    `offsets`: (n_samples + 1,) int64, where samples begin.
    """

    text: pa.LargeStringArray
    ids: npt.NDArray[np.int32]
    table: SegmentTable
    offsets: npt.NDArray[np.int64]


class Segments:
    """Collects the segments of many samples in flat lists; templates call it.

    `begin_sample` comes before the first turn of a sample. `text` and `control` add to the turn
    opened last. `parts`: the strings of all segments; `codes`: a `segment_code` of each;
    `first_segments`: the first of each sample.
    `roles`, `weights` (None: the mask rule decides) and `samples` have one entry for each turn.
    `noted`: what a user should know of the open record. `columns` leaves out empty texts.
    """

    def __init__(self, control: Mapping[str, int]) -> None:
        self._control = control
        self.codes: list[int] = []
        self._first_of_turn: list[int] = []
        self._factors: list[tuple[int, int, float]] = []
        """Start and stop of segments that are a part with a weight of its own."""
        self.parts: list[str] = []
        self.first_segments: list[int] = []
        self.roles: list[int] = []
        self.weights: list[float | None] = []
        self.samples: list[int] = []
        self.noted = Counter[str]()

    def begin_sample(self) -> None:
        """Open a sample."""
        self.first_segments.append(len(self.parts))

    def begin_turn(self, role: str, weight: float | None = None) -> None:
        """Open a turn of the open sample; `weight`: as the record gives it."""
        self.roles.append(_ROLE_NUMBERS[role])
        self.weights.append(weight)
        self.samples.append(len(self.first_segments) - 1)
        self._first_of_turn.append(len(self.parts))

    def text(self, text: str, kind: Kind) -> None:
        """Add text to the open turn."""
        self.parts.append(text)
        self.codes.append(_TEXT_CODES[kind])

    def control(self, string: str, kind: Kind) -> None:
        """Add a control token by its string."""
        self.parts.append(string)
        self.codes.append(segment_code(self._control[string], kind))

    def pieces(self, pieces: Sequence[str], kind: Kind) -> None:
        """Add text, control token, text, …, text: control tokens have odd indices."""
        self.parts += pieces
        codes = [_TEXT_CODES[kind]] * len(pieces)
        if len(codes) > 1:
            codes[1::2] = [(self._control[piece] << _KIND_BITS) + kind for piece in pieces[1::2]]
        self.codes += codes

    def replace_placeholders(self, placeholders: Mapping[str, Placeholder]) -> int:
        """Write tags in place of their placeholders in the open sample; return how many edges."""
        first = self.first_segments[-1]
        old = self.parts[first:], self.codes[first:]
        starts: list[int] = []
        edges: list[tuple[int, float]] = []
        del self.parts[first:], self.codes[first:]
        for part, code in zip(*old, strict=True):
            starts.append(len(self.parts))
            edges += self._place(part, code, placeholders)
        starts.append(len(self.parts))
        first_turn = bisect_left(self._first_of_turn, first)
        self._first_of_turn[first_turn:] = [
            starts[n - first] for n in self._first_of_turn[first_turn:]
        ]
        for (start, factor), (stop, _) in pairwise([*edges, (len(self.parts), np.nan)]):
            if not np.isnan(factor):
                self._factors.append((start, stop, factor))
        return len(edges)

    def _place(
        self, part: str, code: int, placeholders: Mapping[str, Placeholder]
    ) -> Iterator[tuple[int, float]]:
        """Add a segment without placeholders; yield where the weight of a part begins or ends."""
        kind = within = Kind(code & _KIND_MASK)
        for i, piece in enumerate(re.split(f"([{''.join(placeholders)}])", part)):
            if i % 2:
                placeholder = placeholders[piece]
                if not placeholder.string:
                    yield len(self.parts), placeholder.factor
                    continue
                id_ = self._control.get(placeholder.string, TEXT)
                self.parts.append(placeholder.string)
                self.codes.append(segment_code(id_, placeholder.kind))
                within = kind if placeholder.closes else placeholder.kind
            else:
                self.parts.append(piece)
                self.codes.append(segment_code(code >> _KIND_BITS, within))

    def append_eos(self, eos: str) -> None:
        """Put eos behind replies of the open sample that have no end, and behind the sample.

        A sample that ends with eos, or with white space behind it, gets no other one.
        """
        first_turn = bisect_left(self.samples, len(self.first_segments) - 1)
        for turn in reversed(range(first_turn, len(self.samples))):
            start, *behind = [*self._first_of_turn[turn:], len(self.parts)]
            segments = [i for i in range(start, behind[0]) if self.parts[i]]
            kinds = {self.codes[i] & _KIND_MASK for i in segments}
            if self.roles[turn] == _ROLE_NUMBERS["assistant"] and kinds.isdisjoint(ENDS):
                said = [i for i in segments if self.codes[i] & _KIND_MASK not in _SUFFIXES]
                self._insert_eos(eos, max(said, default=start - 1) + 1, turn)
        own = range(self.first_segments[-1], len(self.parts))
        last = next((i for i in reversed(own) if self.parts[i].strip()), -1)
        if last < 0 or self.codes[last] >> _KIND_BITS != self._control[eos]:
            self.control(eos, Kind.END)

    def _insert_eos(self, eos: str, at: int, turn: int) -> None:
        self.parts.insert(at, eos)
        self.codes.insert(at, segment_code(self._control[eos], Kind.END))
        self._first_of_turn[turn + 1 :] = [n + 1 for n in self._first_of_turn[turn + 1 :]]
        first = bisect_left(self._factors, (self.first_segments[-1],))
        self._factors[first:] = [
            (start + (start >= at), stop + (stop > at), factor)
            for start, stop, factor in self._factors[first:]
        ]

    def is_empty(self) -> bool:
        """Return whether the open sample has no text and no control token."""
        return not any(self.parts[self.first_segments[-1] :])

    def written(self) -> list[tuple[str, int]]:
        """Return the texts of the open sample with their codes, those of one code joined."""
        first = self.first_segments[-1]
        coded = zip(self.parts[first:], self.codes[first:], strict=True)
        return [
            ("".join(part for part, _ in group), code)
            for code, group in groupby((pair for pair in coded if pair[0]), itemgetter(1))
        ]

    def columns(self) -> Columns:
        """Return all segments as columns."""
        text = pa.array(self.parts, pa.large_string())
        codes = np.array(self.codes, np.int64)
        n_turns = len(self.roles)
        lengths = np.diff([*self._first_of_turn, len(codes)])
        turns = np.repeat(np.arange(n_turns), lengths)
        offsets = np.array([*self.first_segments, len(codes)], np.int64)
        factors = np.full(len(codes), np.nan, np.float32)
        for start, stop, factor in self._factors:
            factors[start:stop] = factor
        filled = pc.binary_length(text).to_numpy() > 0
        if not filled.all():
            text, codes, turns = text.filter(pa.array(filled)), codes[filled], turns[filled]
            factors = factors[filled]
            offsets = np.concatenate([[0], np.cumsum(filled)])[offsets]
        table = SegmentTable(
            codes & _KIND_MASK,
            turns,
            factors,
            np.array(self.roles, np.int64),
            np.array([np.nan if w is None else w for w in self.weights], np.float32),
            np.array(self.samples, np.int64),
        )
        return Columns(text, (codes >> _KIND_BITS).astype(np.int32), table, offsets)

    def discard_sample(self) -> None:
        """Remove the open sample: its record could not be rendered."""
        first = self.first_segments.pop()
        del self.parts[first:]
        del self.codes[first:]
        self._factors = [factor for factor in self._factors if factor[0] < first]
        while self.samples and self.samples[-1] >= len(self.first_segments):
            for turn_column in (self.roles, self.weights, self.samples, self._first_of_turn):
                turn_column.pop()


_KIND_BITS = 8
_KIND_MASK = (1 << _KIND_BITS) - 1
_ROLE_NUMBERS = {role: number for number, role in enumerate(ROLES)}


def segment_code(control: int, kind: int) -> int:
    """Return kind and control token as one number: filling one list takes half the time of two.

    `control`: an id, `TEXT`, or `UNMERGED_TEXT` for text to be encoded apart from text before it.
    """
    return control * (1 << _KIND_BITS) + kind


_TEXT_CODES = [segment_code(TEXT, kind) for kind in Kind]
"""By kind; looked up, since most segments are text."""


class Placeholder(NamedTuple):
    """The tag that a character stands for, the kind of the block, and whether the tag closes it.

    Without a string, the edge of a part: what follows has the weight `factor`, or if it is NaN the
    weight of its turn.
    """

    string: str
    kind: Kind = Kind.OTHER
    closes: bool = False
    factor: float = np.nan
