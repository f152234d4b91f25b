"""Segments: stretches of a sequence with the same shares, row length and global batch.

A sequence of samples is a list of segments. A Loader without phases has one, without end; each
phase is one. What follows is the arithmetic of several.

A source has n *spans*: its rows as it was opened, of L tokens each. Pass e of the source puts all
spans into the order `shuffled(…, epoch=e)` (see `order`). Its passes, end to end, are the *line* of
the source: place x of it, in tokens, is in pass x // (n L), and there in the span at position
x % (n L) // L. Each segment goes on along the line, so no token is given twice before the pass is
at its end, and what is read early is spread over the whole source.

A segment whose rows have l tokens cuts each span into r = L / l rows; l must divide L. Row v of the
line has the tokens v l … (v + 1) l - 1 of it, so no row crosses a span or a pass. Let x be the
tokens of the line before the segment, and c the samples that the blend of the segment takes from
this source, which is exact (see `Blend`). The segment has the rows v … v + c - 1 with

    v = ceil(x / l), and the next segment has (v + c) l in place of x.

So where rows stay as long, or become shorter and divide the length before, the segment goes on in
the middle of a span, and nothing is lost. Where they become longer, v l - x < l tokens are *left
out* of this pass: the end of a span that is too short for a row, and the rows of it that begin at
no multiple of l. `Member.left_out` counts them.

Rows of one span are neighbours in the text. So where r > 1, the rows that a segment takes of a pass
are shuffled once more: of the rows [a, b) of the pass, the k-th is a + shuffled(k, b - a). Where
r = 1, rows are spans and in their order already: one segment is what a Loader without phases is.

With `shuffle="blocks"`, spans are in the order of `block_order`, and the rows that a segment takes
of a pass are shuffled among those of each group of blocks alone: reading stays among few shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.loader.order import shuffled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokmill.loader.block_order import BlockOrder
    from tokmill.loader.order import Blend


@dataclass(frozen=True, slots=True)
class Member:
    """A source in a segment.

    Attributes:
        rows: place of its rows, which have the length of the segment, among those of the sequence.
        stream: number of the source: it keeps the orders of equal sources apart.
        n_spans: spans of the source.
        rows_in_span: rows of a span.
        first: the row of the line with which the segment begins.
        n_rows: rows in the segment; None: without end.
        left_out: tokens of the line before the first row that no segment has.
        blocks: the order of spans with `shuffle="blocks"`; else None.
    """

    rows: int
    stream: int
    n_spans: int
    rows_in_span: int = 1
    first: int = 0
    n_rows: int | None = None
    left_out: int = 0
    blocks: BlockOrder | None = None

    @property
    def rows_in_pass(self) -> int:
        """Return the rows of all spans."""
        return self.n_spans * self.rows_in_span

    def spans(
        self, places: NDArray[np.int64], passes: NDArray[np.int64], seed: int
    ) -> NDArray[np.int64]:
        """Return the spans at places of passes: (n,) int64."""
        if self.blocks is not None:
            return self.blocks.rows(places, passes, seed, self.stream)
        epoch = passes[0] if (passes == passes[0]).all() else passes
        return shuffled(places, self.n_spans, seed=seed, epoch=epoch, stream=self.stream)

    def stretches(
        self, places: NDArray[np.int64], passes: NDArray[np.int64], seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the rows begin and end among which each row is shuffled: (n,) int64 each.

        They are all rows of the pass; in blocks, those of a group.
        """
        if self.blocks is None:
            return np.zeros(len(places), np.int64), np.full(len(places), self.rows_in_pass)
        r = self.rows_in_span
        begins, ends = self.blocks.groups(places // r, passes, seed, self.stream)
        return begins * r, ends * r


@dataclass(frozen=True, slots=True)
class Segment:
    """Samples of a sequence that follow each other.

    Attributes:
        number: of the segment, from 0.
        first: key of its first sample.
        n_samples: how many it has; None: without end.
        n_global: samples in a batch of all ranks.
        blend: which of its members each sample is from.
        members: its sources.
    """

    number: int
    first: int
    n_samples: int | None
    n_global: int
    blend: Blend
    members: tuple[Member, ...]

    @property
    def stop(self) -> int | None:
        """Return the key after its last sample; None: it has no end."""
        return None if self.n_samples is None else self.first + self.n_samples

    def locate(
        self, keys: NDArray[np.int64], seed: int, shuffle: bool | str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the member's `rows` and the number among them of each sample: (n,) int64 each.

        Args:
            keys: of samples of this segment: (n,) int64.
            seed: of the sequence.
            shuffle: whether rows are in a seeded order.
        """
        members, numbers = self.blend.place(keys - self.first)
        rows = np.array([member.rows for member in self.members], np.int64)[members]
        for place, member in enumerate(self.members):
            own = np.flatnonzero(members == place)
            if len(own):
                numbers[own] = self._in_order(member, member.first + numbers[own], seed, shuffle)
        return rows, numbers

    def _in_order(
        self, member: Member, line: NDArray[np.int64], seed: int, shuffle: bool | str
    ) -> NDArray[np.int64]:
        """Return the number in its source of each row of the line: (n,) int64."""
        passes, places = np.divmod(line, member.rows_in_pass)
        if not shuffle:
            return places
        r = member.rows_in_span
        if r == 1:
            return member.spans(places, passes, seed)
        spans, parts = np.divmod(self._spread(member, passes, places, seed), r)
        return member.spans(spans, passes, seed) * r + parts

    def _spread(
        self, member: Member, passes: NDArray[np.int64], places: NDArray[np.int64], seed: int
    ) -> NDArray[np.int64]:
        """Return rows of passes, shuffled among those of this segment and pass: (n,) int64."""
        n_rows = member.rows_in_pass
        begins, ends = member.stretches(places, passes, seed)
        begins = np.maximum(begins, member.first - passes * n_rows)
        if member.n_rows is not None:
            ends = np.minimum(ends, member.first + member.n_rows - passes * n_rows)
        lengths = ends - begins  # few different ones: first pass, whole passes, last; groups
        stream = member.stream + (self.number + 1 << 32)  # another order than that of the spans
        found = np.empty_like(places)
        for n in np.unique(lengths).tolist():
            own = lengths == n
            order = shuffled(
                places[own] - begins[own], n, seed=seed, epoch=passes[own], stream=stream
            )
            found[own] = begins[own] + order
        return found
