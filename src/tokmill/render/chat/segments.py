"""Segments: the pieces of a sample between which the mask, or a control token, may change."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt


class Kind(IntEnum):
    """What a segment is within its turn; the mask rule speaks of these."""

    OTHER = 0
    """Never trained: bos, a preamble, what stands between turns."""
    HEADER = 1
    CONTENT = 2
    REASONING = 3
    TOOL_CALL = 4
    EOT = 5
    SUFFIX = 6
    """What the template puts behind the end of turn, such as a newline."""
    END = 7
    """The eos that tokmill appends."""
    EOT_OUTSIDE = 8
    SUFFIX_OUTSIDE = 9
    """The same, behind the generation tag of a template."""


TEXT, TEXT_ALONE = -1, -2
"""What stands for the control token in a segment of text."""

ROLES = ("system", "developer", "user", "assistant", "tool")


class SegmentTable(NamedTuple):
    """What the mask rule asks of segments and of their turns.

    `kinds`, `turns`: (n_segments,) int64, a `Kind` and the number of a turn. `roles`, `samples`:
    (n_turns,) int64, index in `ROLES` and number of the sample. `said`: (n_turns,) float32, the
    weight that the record gives, NaN where it gives none.
    """

    kinds: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    roles: npt.NDArray[np.int64]
    said: npt.NDArray[np.float32]
    samples: npt.NDArray[np.int64]


class Segments:
    """Collects the segments of many samples in flat lists; a renderer calls it piece by piece.

    Text is given with `text`, a control token by its string with `control`; both belong to the turn
    opened last. An empty text is not kept. `begin_sample` comes before the first turn of each.

    After all: `parts` (strings), `ids` (control token or -1), `kinds`, `turns` (number of the turn
    that a segment belongs to), one entry a segment; `first_segments` of every sample; `roles`,
    `weights` (None: by rule) and `samples` of every turn.
    """

    def __init__(self, control: Mapping[str, int]) -> None:
        self._control = control
        self.parts: list[str] = []
        self.ids: list[int] = []
        self.kinds: list[int] = []
        self.turns: list[int] = []
        self.first_segments: list[int] = []
        self.roles: list[int] = []
        self.weights: list[float | None] = []
        self.samples: list[int] = []

    def begin_sample(self) -> None:
        """Open a sample."""
        self.first_segments.append(len(self.parts))

    def begin_turn(self, role: str, weight: float | None = None) -> None:
        """Open a turn of the open sample; `weight` None lets the mask rule decide."""
        self.roles.append(ROLES.index(role))
        self.weights.append(weight)
        self.samples.append(len(self.first_segments) - 1)

    def text(self, text: str, kind: Kind, *, alone: bool = False) -> None:
        """Add text to the open turn; `alone` lets it begin with a token of its own."""
        if text:
            self.parts.append(text)
            self.ids.append(TEXT_ALONE if alone else TEXT)
            self.kinds.append(kind)
            self.turns.append(len(self.roles) - 1)

    def control(self, string: str, kind: Kind) -> None:
        """Add the control token that a string names; it is one of the mapping's."""
        self.parts.append(string)
        self.ids.append(self._control[string])
        self.kinds.append(kind)
        self.turns.append(len(self.roles) - 1)

    def pieces(self, pieces: Sequence[str], kind: Kind) -> None:
        """Add text, control token, text, …, text: control tokens stand at odd places."""
        first = len(self.parts)
        for i, piece in enumerate(pieces):
            if i % 2:
                self.parts.append(piece)
                self.ids.append(self._control[piece])
            elif piece:
                self.parts.append(piece)
                self.ids.append(TEXT)
        n_added = len(self.parts) - first
        self.kinds += [kind] * n_added
        self.turns += [len(self.roles) - 1] * n_added

    def table(self) -> SegmentTable:
        """Give what the mask rule asks."""
        return SegmentTable(
            np.array(self.kinds, np.int64),
            np.array(self.turns, np.int64),
            np.array(self.roles, np.int64),
            np.array([np.nan if w is None else w for w in self.weights], np.float32),
            np.array(self.samples, np.int64),
        )

    def discard_sample(self) -> None:
        """Take back the open sample: its record could not be rendered to the end."""
        first = self.first_segments.pop()
        for column in (self.parts, self.ids, self.kinds, self.turns):
            del column[first:]
        while self.samples and self.samples[-1] >= len(self.first_segments):
            for turn_column in (self.roles, self.weights, self.samples):
                turn_column.pop()
