"""Segments: the parts of a sample. Each is one control token, or text of one kind and turn."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.offsets import byte_offsets
from tokmill.values import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


SAID = (Kind.HEADER_INSIDE, Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL)
"""Kinds of what a reply says."""

ENDS = (Kind.EOT, Kind.EOT_OUTSIDE, Kind.END)
"""Kinds of which one ends a turn."""

_SUFFIXES = (Kind.SUFFIX, Kind.SUFFIX_OUTSIDE)

ROLES = ("system", "developer", "user", "assistant", "tool")


class SegmentTable(NamedTuple):
    """The kinds of segments, and the turns that they belong to.

    `kinds`, `turns`: (n_segments,) int64, a `Kind` and the number of a turn. `roles`, `samples`:
    (n_turns,) int64, index in `ROLES` and number of the sample. `turn_weights`: (n_turns,) float32,
    the weight that the record gives, NaN where it gives none. `factors`: (n_segments,) float32,
    the weight that a part of a message has within its turn, NaN where it has that of its turn.
    `scales`: (n_segments,) float64, what the weight is multiplied with.
    """

    kinds: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    factors: npt.NDArray[np.float32]
    scales: npt.NDArray[np.float64]
    roles: npt.NDArray[np.int64]
    turn_weights: npt.NDArray[np.float32]
    samples: npt.NDArray[np.int64]


class Columns(NamedTuple):
    """Segments as columns: n of them, none empty.

    `text`: large_string. `ids`: (n,) int32, control token or `TEXT`. `table`: kinds and turns.
    `offsets`: (n_samples + 1,) int64, where samples begin. `counted_as`: (n_turns,) int64.
    """

    text: pa.LargeStringArray
    ids: npt.NDArray[np.int32]
    table: SegmentTable
    offsets: npt.NDArray[np.int64]
    counted_as: npt.NDArray[np.int64]


_KIND_BITS = 8
KIND_MASK = (1 << _KIND_BITS) - 1
"""The bits of a `segment_code` that hold the kind."""

_ROLE_NUMBERS = {role: number for number, role in enumerate(ROLES)}


def segment_code(control: int, kind: int) -> int:
    """Return kind and control token as one number: filling one list takes half the time of two.

    `control`: an id, `TEXT`, or `UNMERGED_TEXT` for text to be encoded apart from text before it.
    """
    return control * (1 << _KIND_BITS) + kind


SAID_KINDS = frozenset(map(int, SAID))
"""As plain numbers, which are compared faster."""


def is_control(code: int) -> bool:
    """Return whether a `segment_code` is that of a control token."""
    return code >> _KIND_BITS >= 0


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


@dataclass(slots=True)
class Turn:
    """The segments of a turn, perhaps empty ones.

    `weight`: as the record gives it, None where the mask rule decides. `parts`: strings, `codes`:
    a `segment_code` of each. `factors`: the weight that each has within the turn, NaN where it has
    that of the turn; [] if all have. `scales`: what each weight is multiplied with; [] if with 1.
    `counted_as`: the number of the counter of such a reply, see `chat.inserted`; 0 for none.
    """

    role: str
    weight: float | None
    parts: list[str]
    codes: list[int]
    factors: list[float]
    scales: list[float]
    counted_as: int = 0


class Sample:
    """Collects the turns of one sample; templates call it.

    `text`, `control` and `pieces` add to the turn opened last. `noted`: what a user should know.
    `taken`, `taken_of_record`: the keys of `Extras` that the template has read.
    """

    def __init__(
        self, control: Mapping[str, int], noted: defaultdict[str, int] | None = None
    ) -> None:
        self._control = control
        self.turns: list[Turn] = []
        self.noted: defaultdict[str, int] = defaultdict(int) if noted is None else noted
        self.taken: set[str] = set()
        self.taken_of_record: set[str] = set()

    def begin_turn(self, role: str, weight: float | None = None) -> Turn:
        """Open a turn; `weight`: as the record gives it."""
        turn = Turn(role, weight, [], [], [], [])
        self.turns.append(turn)
        return turn

    def text(self, text: str, kind: Kind) -> None:
        """Add text to the open turn."""
        self.turns[-1].parts.append(text)
        self.turns[-1].codes.append(_TEXT_CODES[kind])

    def control(self, string: str, kind: Kind) -> None:
        """Add a control token by its string."""
        self.turns[-1].parts.append(string)
        self.turns[-1].codes.append(segment_code(self._control[string], kind))

    def pieces(self, pieces: Sequence[str], kind: Kind) -> None:
        """Add text, control token, text, …, text: control tokens have odd indices."""
        self.turns[-1].parts += pieces
        codes = [_TEXT_CODES[kind]] * len(pieces)
        if len(codes) > 1:
            codes[1::2] = [segment_code(self._control[piece], kind) for piece in pieces[1::2]]
        self.turns[-1].codes += codes

    def replace_placeholders(self, placeholders: Mapping[str, Placeholder]) -> int:
        """Write tags in place of their placeholders; return how many edges of parts there were."""
        split = re.compile(f"([{''.join(placeholders)}])").split
        n_edges, factor = 0, np.nan
        for turn in self.turns:
            segments = list(zip(turn.parts, turn.codes, strict=True))
            turn.parts, turn.codes = [], []
            for part, code in segments:
                kind = within = Kind(code & KIND_MASK)
                for piece in split(part):
                    placeholder = placeholders.get(piece)
                    if placeholder is None:
                        turn.parts.append(piece)
                        turn.codes.append(segment_code(code >> _KIND_BITS, within))
                    elif placeholder.string:
                        id_ = self._control.get(placeholder.string, TEXT)
                        turn.parts.append(placeholder.string)
                        turn.codes.append(segment_code(id_, placeholder.kind))
                        within = kind if placeholder.closes else placeholder.kind
                    else:
                        n_edges, factor = n_edges + 1, placeholder.factor
                    turn.factors += [factor] * (len(turn.parts) - len(turn.factors))
        return n_edges

    def append_eos(self, eos: str) -> None:
        """Put eos behind replies that have no end, and behind the sample.

        A sample that ends with eos, or with white space behind it, gets no other one.
        """
        for turn in self.turns:
            kinds = {i: code & KIND_MASK for i, code in enumerate(turn.codes) if turn.parts[i]}
            if turn.role == "assistant" and set(kinds.values()).isdisjoint(ENDS):
                said = [i for i, kind in kinds.items() if kind not in _SUFFIXES]
                at = max(said, default=-1) + 1
                turn.parts.insert(at, eos)
                turn.codes.insert(at, segment_code(self._control[eos], Kind.END))
                if turn.factors:
                    turn.factors.insert(at, np.nan)
        last = next((code for part, code in reversed(self._segments()) if part.strip()), None)
        if last is None or last >> _KIND_BITS != self._control[eos]:
            self.control(eos, Kind.END)
            if self.turns[-1].factors:
                self.turns[-1].factors.append(np.nan)

    def weigh(self, pattern: re.Pattern[str], factor: float) -> int:
        """Multiply the weight of what a pattern matches in replies, without header and end of turn.

        A control token of which it matches a part is weighed whole. Returns the number of replies
        in which it matches something.
        """
        replies = [turn for turn in self.turns if turn.role == "assistant"]
        return sum([_weigh_turn(turn, pattern, factor) for turn in replies])

    def _segments(self) -> list[tuple[str, int]]:
        """Return the strings of all segments, with their codes."""
        return [pair for turn in self.turns for pair in zip(turn.parts, turn.codes, strict=True)]

    def n_characters(self) -> int:
        """Return the length of the text, with the strings of control tokens."""
        return sum([len("".join(turn.parts)) for turn in self.turns])  # faster than to add lengths

    def whole_text(self) -> str:
        """Return the text of the sample, with the strings of control tokens."""
        return "".join(part for turn in self.turns for part in turn.parts)

    def written(self) -> list[tuple[str, int]]:
        """Return the texts of the sample with their codes, those of one code joined."""
        filled = (pair for pair in self._segments() if pair[0])
        return [
            ("".join(part for part, _ in group), code)
            for code, group in groupby(filled, itemgetter(1))
        ]


def _weigh_turn(turn: Turn, pattern: re.Pattern[str], factor: float) -> bool:
    """Cut segments of a turn where matches of a pattern begin and end, and weigh those within.

    Returns whether there is a match.
    """
    is_said = [code & KIND_MASK in SAID for code in turn.codes]
    text = "".join(part for part, said in zip(turn.parts, is_said, strict=True) if said)
    matches = (match.span() for match in pattern.finditer(text) if match.group())
    edges = list(chain.from_iterable(matches))  # of n matches 2n, in order
    if not edges:
        return False
    n = len(turn.parts)
    old = zip(
        turn.parts, turn.codes, turn.factors or [np.nan] * n, turn.scales or [1.0] * n, is_said,
        strict=True,
    )  # fmt: skip
    cut: list[tuple[str, int, float, float]] = []
    start = 0
    for part, code, of_part, scale, said in old:
        if not said or not part:
            cut.append((part, code, of_part, scale))
            continue
        stop = start + len(part)
        first, last = bisect_right(edges, start), bisect_left(edges, stop)
        is_text = code >> _KIND_BITS < 0
        cuts = sorted({start, stop, *(edges[first:last] if is_text else ())})
        for left, right in pairwise(cuts):
            # A control token may have edges within.
            is_within = bisect_right(edges, left) % 2 == 1 or (last > first and not is_text)
            piece = part[left - start : right - start]
            cut.append((piece, code, of_part, scale * factor if is_within else scale))
            code = _TEXT_CODES[code & KIND_MASK] if is_text else code
        start = stop
    turn.parts, turn.codes, turn.factors, turn.scales = map(list, zip(*cut, strict=True))
    return True


def columns_of(samples: Iterable[Sample]) -> Columns:
    """Return the segments of samples as columns, without empty texts.

    Takes each as it comes: objects for all turns of a block would occupy the garbage collector.
    """
    parts: list[str] = []
    codes: list[int] = []
    roles: list[int] = []
    weights, lengths, n_turns = [], [], []
    counted: list[tuple[int, int]] = []
    factors: list[tuple[int, list[float]]] = []
    scales: list[tuple[int, list[float]]] = []
    for sample in samples:
        n_turns.append(len(sample.turns))
        for turn in sample.turns:
            if turn.factors:
                factors.append((len(codes), turn.factors))
            if turn.scales:
                scales.append((len(codes), turn.scales))
            if turn.counted_as:
                counted.append((len(roles), turn.counted_as))
            parts += turn.parts
            codes += turn.codes
            roles.append(_ROLE_NUMBERS[turn.role])
            weights.append(np.nan if turn.weight is None else turn.weight)
            lengths.append(len(turn.codes))
    text, coded = pa.array(parts, pa.large_string()), np.array(codes, np.int64)
    of_turn = np.repeat(np.arange(len(roles)), np.array(lengths, np.int64))
    of_sample = np.repeat(np.arange(len(n_turns)), np.array(n_turns, np.int64))
    of_part = _placed(factors, len(codes), np.nan).astype(np.float32)
    scale = _placed(scales, len(codes), 1)
    filled = np.diff(byte_offsets(text)) > 0
    if not filled.all():
        text, coded = text.filter(pa.array(filled)), coded[filled]
        of_turn, of_part, scale = of_turn[filled], of_part[filled], scale[filled]
    table = SegmentTable(
        coded & KIND_MASK,
        of_turn,
        of_part,
        scale,
        np.array(roles, np.int64),
        np.array(weights, np.float32),
        of_sample,
    )
    offsets = np.searchsorted(of_sample[of_turn], np.arange(len(n_turns) + 1))
    counted_as = np.zeros(len(roles), np.int64)
    for i, number in counted:
        counted_as[i] = number
    return Columns(text, (coded >> _KIND_BITS).astype(np.int32), table, offsets, counted_as)


def _placed(
    runs: Iterable[tuple[int, list[float]]], n: int, default: float
) -> npt.NDArray[np.float64]:
    """Return n numbers: those of each run from its start on, else the default."""
    column = np.full(n, default, np.float64)
    for start, numbers in runs:
        column[start : start + len(numbers)] = numbers
    return column
