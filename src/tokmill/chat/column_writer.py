"""Segments of regular blocks: the fast path, on which contents stay in columns.

The literals that a built-in template writes around contents are learned from the template: it
renders marks in place of the contents, and the text between the marks is repeated for each record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.segments import ROLES, Columns, Segments, SegmentTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Message
    from tokmill.chat.reading.columns import Regular
    from tokmill.chat.templates import ChatTemplate

_LONGEST_UNIT = 16
"""Messages of the longest sample that is learned as one unit."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """The segments that a template writes for one message or sample, and their turns.

    `columns`: the number of the content in the unit that a segment holds, -1 for a literal.
    """

    parts: Sequence[str]
    columns: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    roles: Sequence[int]


class _Shape(NamedTuple):
    """The kind of a unit: the roles of its messages, and how it is learned.

    `behind`: another message precedes. `with_input`: the first is an instruction with an input.
    """

    roles: tuple[int, ...]
    behind: bool = False
    with_input: bool = False


class _Pattern(NamedTuple):
    """The units of a block.

    `kinds`: every kind of unit. `of_unit`: (n,) the kind of each unit. `first_message`: (n,) the
    number of its first message. `samples`: (n_samples + 1,) the first unit of every sample, and n.
    """

    kinds: Sequence[_Shape]
    of_unit: npt.NDArray[np.int64]
    first_message: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]


class ColumnarWriter:
    """Writes regular blocks as a built-in template does, all records at once."""

    def __init__(self, template: ChatTemplate, control: Mapping[str, int]) -> None:
        self._template = template
        self._control = control
        self._default_system = bool(getattr(template, "default_system", ""))
        self._units: dict[_Shape, _Unit | None] = {}

    def write(self, regular: Regular) -> Columns | None:
        """Return the segments of a block; None if the template cannot be repeated in this way."""
        pattern = self._pattern(regular) if getattr(self._template, "verbatim", False) else None
        if pattern is None:
            return None
        units = []
        for shape in pattern.kinds:
            unit = self._unit(shape)
            if unit is None:
                return None
            units.append(unit)
        contents = regular.contents
        if strips := getattr(self._template, "strips", None):
            contents = pc.utf8_trim(contents, characters=strips)
        columns = _assembled(units, pattern, contents)
        return columns if np.diff(columns.offsets).all() else None  # an empty sample is a reject

    def _pattern(self, regular: Regular) -> _Pattern | None:
        offsets = regular.offsets
        kinds, of_unit = np.unique(regular.roles, return_inverse=True)
        independent = getattr(self._template, "independent", ())
        if {ROLES[k] for k in kinds} <= set(independent) and self._needs_no_system(regular):
            number = np.arange(len(of_unit))
            shapes = [_Shape((int(k),), behind=self._default_system) for k in kinds]
            return _Pattern(shapes, of_unit, number, offsets)
        n_samples, width = len(offsets) - 1, int(offsets[1])
        if width > _LONGEST_UNIT or (np.diff(offsets) != width).any():
            return None
        shape = regular.roles.reshape(-1, width)
        if not (shape == shape[0]).all():
            return None
        whole = tuple(int(role) for role in shape[0])
        number = np.arange(n_samples + 1)
        if regular.with_input is None:
            return _Pattern([_Shape(whole)], np.zeros(n_samples, np.int64), offsets[:-1], number)
        shapes = [_Shape(whole, with_input=found) for found in (False, True)]
        return _Pattern(shapes, regular.with_input.astype(np.int64), offsets[:-1], number)

    def _needs_no_system(self, regular: Regular) -> bool:
        if not self._default_system:
            return True
        first = regular.roles[regular.offsets[:-1]]
        return bool(np.isin(first, [ROLES.index("system"), ROLES.index("developer")]).all())

    def _unit(self, shape: _Shape) -> _Unit | None:
        if shape not in self._units:
            self._units[shape] = self._learned(shape)
        return self._units[shape]

    def _learned(self, shape: _Shape) -> _Unit | None:
        """Learn a unit; with `behind`, the template writes no default system message before it."""
        marks = [f"\ue000{i}\ue001" for i in range(len(shape.roles))]
        messages: list[Message] = [
            {"role": ROLES[role], "content": mark}
            for role, mark in zip(shape.roles, marks, strict=True)
        ]
        if shape.with_input:
            messages[0]["with_input"] = True
        segments = Segments(self._control)
        segments.begin_sample()
        if shape.behind:
            messages.insert(0, {"role": "system", "content": "-"})
        try:
            self._template.render(Conversation(messages, [None] * len(messages)), segments)
        except ChatError:
            return None
        found = segments.columns()
        first_turn = int(shape.behind)
        here = found.table.turns >= first_turn
        parts = found.text.filter(pa.array(here)).to_pylist()
        columns = [marks.index(part) if part in marks else -1 for part in parts]
        if sorted(c for c in columns if c >= 0) != list(range(len(marks))):
            return None
        return _Unit(
            parts,
            np.array(columns, np.int64),
            found.ids[here],
            found.table.kinds[here],
            found.table.turns[here] - first_turn,
            segments.roles[first_turn:],
        )


def _assembled(units: Sequence[_Unit], pattern: _Pattern, contents: pa.StringArray) -> Columns:
    """Return every unit of a block with the contents of its messages."""
    of_unit, samples = pattern.of_unit, pattern.samples
    literals = [part for unit in units for part in unit.parts]
    n_segments = np.array([len(unit.parts) for unit in units])
    n_turns = np.array([len(unit.roles) for unit in units])
    starts, turn_starts = _starts(n_segments[of_unit]), _starts(n_turns[of_unit])
    pool = np.empty(int(starts[-1]), np.int64)
    ids = np.empty(len(pool), np.int32)
    kinds, turns = np.empty(len(pool), np.int64), np.empty(len(pool), np.int64)
    roles = np.empty(int(turn_starts[-1]), np.int64)
    first_literal = len(contents)
    for number, unit in enumerate(units):
        here = np.flatnonzero(of_unit == number)
        at = starts[here][:, None] + np.arange(len(unit.parts))
        literal = first_literal + np.arange(len(unit.parts))
        column = pattern.first_message[here][:, None] + unit.columns
        pool[at] = np.where(unit.columns >= 0, column, literal)
        ids[at], kinds[at] = unit.ids, unit.kinds
        turns[at] = turn_starts[here][:, None] + unit.turns
        roles[turn_starts[here][:, None] + np.arange(len(unit.roles))] = unit.roles
        first_literal += len(unit.parts)
    parts = pa.concat_arrays([contents, pa.array(literals, pa.string())]).cast(pa.large_string())
    filled = np.flatnonzero(pc.binary_length(parts).to_numpy()[pool])
    sample_of_turn = np.repeat(np.arange(len(samples) - 1), np.diff(turn_starts[samples]))
    table = SegmentTable(
        kinds[filled],
        turns[filled],
        roles,
        np.full(len(roles), np.nan, np.float32),
        sample_of_turn,
    )
    offsets = np.searchsorted(filled, starts[samples])
    return Columns(parts.take(pa.array(pool[filled])), ids[filled], table, offsets)


def _starts(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
