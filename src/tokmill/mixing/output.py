"""The pieces of a mix, and the parts of its output.

Without a shuffle a part is some pieces, in order. A shuffle is an external sort: each piece is
written as a run, its documents sorted by their places in the order, which the loader's bijection
computes; a part is a range of places, read from every run, where it is a range too, and sorted in
memory. So all files are read and written in long pieces, any worker can make any part, and the
bytes depend on none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.layout import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.mixing.inputs import Chunk
    from tokmill.mixing.selection import Selection

_FILLED = 0.98
"""Part of a full shard that a part of a shuffle has on average: few of them need a second shard."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The documents that are taken of a chunk, once.

    Attributes:
        chunk: number of the chunk.
        split: `train` or `val`.
        repeat: how often its documents stand in pieces before.
        first: documents of the split before its first.
        documents: their number.
        tokens: their tokens.
    """

    chunk: int
    split: str
    repeat: int
    first: int
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of the output: numbers of pieces, or places `start` to `stop - 1` of a shuffle."""

    number: int
    split: str
    pieces: tuple[int, ...] = ()
    start: int = 0
    stop: int = 0


def pieces_of(chunks: Sequence[Chunk], selection: Selection) -> list[Piece]:
    """Return all pieces, in the order of the mix: by split, input, repeat and chunk."""
    rows: list[tuple[str, int, int, int, int, int]] = []
    for i, chunk in enumerate(chunks):
        times = selection.times(chunk)
        amounts = [np.bincount(times), np.bincount(times, selection.lengths(chunk))]
        # [k]: of the documents that are written more than k times
        more = np.stack([amount[:0:-1].cumsum()[::-1] for amount in amounts], axis=1)
        rows += [
            (chunk.split, chunk.input, repeat, i, int(documents), int(tokens))
            for repeat, (documents, tokens) in enumerate(more.tolist())
        ]
    pieces, first = [], dict.fromkeys(SPLITS, 0)
    for split, _, repeat, i, documents, tokens in sorted(rows):
        pieces.append(Piece(i, split, repeat, first[split], documents, tokens))
        first[split] += documents
    return pieces


def _groups(pieces: Sequence[Piece], split: str, n_tokens: int) -> list[tuple[int, ...]]:
    """Return the numbers of the pieces of a split, in groups of `n_tokens` or one piece."""
    groups: list[list[int]] = []
    room = 0
    for i, piece in enumerate(pieces):
        if piece.split == split:
            if not groups or piece.tokens > room:
                groups.append([])
                room = n_tokens
            groups[-1].append(i)
            room -= piece.tokens
    return list(map(tuple, groups))


def runs_of(pieces: Sequence[Piece], n_tokens: int) -> list[tuple[int, ...]]:
    """Return the pieces of each run of a shuffle; small ones share one, as all runs are mapped."""
    return [group for split in SPLITS for group in _groups(pieces, split, n_tokens)]


def parts_of(pieces: Sequence[Piece], shard_tokens: int, *, is_shuffled: bool) -> list[OutputPart]:
    """Return the parts of the output; each has about as many tokens as a shard may have."""
    parts: list[OutputPart] = []
    for split in SPLITS:
        if not is_shuffled:
            for group in _groups(pieces, split, shard_tokens):
                parts.append(OutputPart(len(parts), split, group))
            continue
        documents, tokens = amounts_of(pieces, split)
        n = -(-tokens // max(1, int(shard_tokens * _FILLED)))
        stops = dict.fromkeys(documents * i // n for i in range(n + 1)) if n else ()
        for start, stop in pairwise(stops):
            parts.append(OutputPart(len(parts), split, (), start, stop))
    return parts


def amounts_of(pieces: Sequence[Piece], split: str) -> tuple[int, int]:
    """Return the documents and tokens of a split."""
    own = [piece for piece in pieces if piece.split == split]
    return sum(piece.documents for piece in own), sum(piece.tokens for piece in own)


def ranges_of(part: OutputPart, pieces: Sequence[Piece], n_tokens: int) -> Iterator[range]:
    """Yield the places of a part in ranges that have about `n_tokens`."""
    documents, tokens = amounts_of(pieces, part.split)
    step = max(1, documents * n_tokens // max(1, tokens))
    for start in range(part.start, part.stop, step):
        yield range(start, min(start + step, part.stop))
