"""Marks within pieces of text, found among their tokens.

By running sums of token byte lengths where these add up to the text; else by the offsets of the
reference, which follow what a normalizer does, piece by piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.spot import difference
from tokmill.errors import ParityError
from tokmill.offsets import byte_offsets
from tokmill.tokenizer.byte_lengths import is_composed

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.masks.layout import Layout
    from tokmill.tokenizer.byte_lengths import ByteLengths
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch


_STEP_TOKENS = 1 << 17
"""Tokens whose lengths are summed at a time, so that the sums stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class BoundaryTokens:
    """The tokens at n marks, counted over all pieces: (n,) int64 each, and (n,) bool.

    `first`: the first token that has a byte behind the mark. `first_behind`: the first that has
    none before it; the tokens from `first` to there straddle the mark. `is_known`: whether the
    tokens of the piece cover its text; else both are the end of the piece.
    """

    first: npt.NDArray[np.int64]
    first_behind: npt.NDArray[np.int64]
    is_known: npt.NDArray[np.bool_]


class ReferenceOffsets:
    """The byte offsets of tokens by the `tokenizers` library, which knows its normalizers.

    A prefix belongs to the first character of the text, and so does a token that is nothing else.
    """

    def __init__(self, tokenizer: Tokenizer, *, parse: bool) -> None:
        self._tokenizer = tokenizer
        self._parse = parse
        self._library: Any = None

    def find(
        self, text: str, ids: npt.NDArray[np.uint32], marks: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Give `first` and `first_behind`, counted in the text, for marks in bytes.

        Raises:
            ParityError: `ids`, by an engine, are not those of the library.
        """
        encoding = self._loaded().encode(text, add_special_tokens=False)
        expected = np.array(encoding.ids, np.uint32)
        if not np.array_equal(expected, ids):
            raise ParityError(f"{self._tokenizer.name}: {difference(text, ids, expected)}")
        ranges = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        sizes = [len(character.encode()) for character in text]
        bytes_before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        starts = np.minimum.accumulate(bytes_before[ranges[::-1, 0]])[::-1]
        stops = np.maximum.accumulate(bytes_before[ranges[:, 1]])
        first = np.searchsorted(stops, marks, "right")
        return first, np.maximum(first, np.searchsorted(starts, marks, "left"))

    def _loaded(self) -> Any:
        """Return the library, loaded when it is first needed."""
        library = self._library
        if library is None:
            library = self._tokenizer.library()
            library.encode_special_tokens = not self._parse
            self._library = library  # last: other threads may use it from here on
        return library


def find_boundaries(
    layout: Layout,
    tokens: TokenBatch,
    is_continuation: npt.NDArray[np.bool_],
    lengths: ByteLengths | None,
    offsets: tuple[ReferenceOffsets, ReferenceOffsets | None] | None,
) -> BoundaryTokens:
    """Find the marks of a layout among the tokens of its pieces.

    Args:
        layout: of n_pieces.
        tokens: of the pieces.
        is_continuation: (n_pieces,), which of them were encoded as continuations.
        lengths: of the tokens, or None where they are not known.
        offsets: the slow way, for texts and for continuations; None where there is none.

    Raises:
        ParityError: the reference has other tokens for a piece.
    """
    ends = tokens.offsets[layout.mark_piece + 1]
    found = BoundaryTokens(ends, ends.copy(), np.zeros(len(ends), bool))
    if not len(ends):
        return found
    if lengths is not None:
        _set_by_lengths(found, layout, tokens, is_continuation, lengths)
    if offsets is not None:
        for piece in np.unique(layout.mark_piece[~found.is_known]).tolist():
            chosen = offsets[1] if is_continuation[piece] else offsets[0]
            if chosen is not None:
                _set_by_offsets(found, layout, tokens, piece, chosen)
    return found


@dataclass(frozen=True, slots=True)
class _Marked:
    """The n pieces that have marks: their tokens, and the sum that their lengths have to have.

    `begin`, `end`: in the ids of all pieces. `n_bytes`: of the text. `prefix`: 0 or 1. `is_fit`:
    whether the lengths are those of this text. `marks`: (n + 1,), where the marks of each begin.
    """

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    n_bytes: npt.NDArray[np.int64]
    prefix: npt.NDArray[np.int64]
    is_fit: npt.NDArray[np.bool_]
    marks: npt.NDArray[np.int64]


def _set_by_lengths(
    found: BoundaryTokens,
    layout: Layout,
    tokens: TokenBatch,
    is_continuation: npt.NDArray[np.bool_],
    lengths: ByteLengths,
) -> None:
    """Set the marks of the pieces whose token lengths add up, some pieces at a time."""
    marked = _marked(layout, tokens, is_continuation, lengths)
    start = 0
    while start < len(marked.begin):
        limit = marked.begin[start] + _STEP_TOKENS
        stop = max(start + 1, int(np.searchsorted(marked.end, limit, "right")))
        ids = tokens.ids[marked.begin[start] : marked.end[stop - 1]]
        ends = np.zeros(len(ids) + 1, np.int64)
        # `clip` spares a check of every id, none of which is beyond the vocabulary.
        np.cumsum(lengths.lengths.take(ids, mode="clip"), out=ends[1:])
        _set_by_sums(found, layout, marked, ends, start, stop)
        start = stop


def _set_by_sums(
    found: BoundaryTokens,
    layout: Layout,
    marked: _Marked,
    ends: npt.NDArray[np.int64],
    start: int,
    stop: int,
) -> None:
    """Set the marks of the marked pieces `start:stop`, whose tokens end at the sums `ends`."""
    base = marked.begin[start]
    chosen = slice(start, stop)
    before = ends[marked.begin[chosen] - base]
    prefix = marked.prefix[chosen]
    sums = ends[marked.end[chosen] - base] - before
    is_known = marked.is_fit[chosen] & (sums == marked.n_bytes[chosen] + prefix)
    marks = slice(int(marked.marks[start]), int(marked.marks[stop]))
    n_marks = np.diff(marked.marks[start : stop + 1])
    wanted = np.repeat(before + prefix, n_marks) + layout.mark_bytes[marks]
    first = np.searchsorted(ends[1:], wanted, "right")
    first_behind = first + (ends.take(first, mode="clip") < wanted)
    found.is_known[marks] = is_known = np.repeat(is_known, n_marks)
    np.copyto(found.first[marks], first + base, where=is_known)
    np.copyto(found.first_behind[marks], first_behind + base, where=is_known)


def _marked(
    layout: Layout,
    tokens: TokenBatch,
    is_continuation: npt.NDArray[np.bool_],
    lengths: ByteLengths,
) -> _Marked:
    is_first = np.ones(len(layout.mark_piece), bool)
    is_first[1:] = layout.mark_piece[1:] != layout.mark_piece[:-1]
    marks = np.flatnonzero(is_first)
    pieces = layout.mark_piece[marks]
    offsets = byte_offsets(layout.pieces)
    prefix, is_fit = np.zeros(len(pieces), np.int64), np.ones(len(pieces), bool)
    if lengths.prefix != "never" or lengths.composes:
        text = layout.pieces.take(pieces)
        prefix = np.where(is_continuation[pieces], 0, lengths.n_prefix_bytes(text))
        is_fit = is_composed(text) if lengths.composes else is_fit
    return _Marked(
        tokens.offsets[pieces],
        tokens.offsets[pieces + 1],
        offsets[pieces + 1] - offsets[pieces],
        prefix,
        is_fit,
        np.append(marks, len(layout.mark_piece)),
    )


def _set_by_offsets(
    found: BoundaryTokens, layout: Layout, tokens: TokenBatch, piece: int, offsets: ReferenceOffsets
) -> None:
    marks = slice(*np.searchsorted(layout.mark_piece, [piece, piece + 1]).tolist())
    start, stop = tokens.offsets[piece], tokens.offsets[piece + 1]
    first, first_behind = offsets.find(
        layout.pieces[piece].as_py(), tokens.ids[start:stop], layout.mark_bytes[marks]
    )
    found.first[marks] = start + first
    found.first_behind[marks] = start + first_behind
    found.is_known[marks] = True
