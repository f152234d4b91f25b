"""The tokens and weights of samples, from the tokens of texts and the boundaries within them.

To find a boundary among the tokens of its text, the fast way sums the byte lengths of tokens. Where
the sum is not the length of the text, because a normalizer changed it, the offsets of the
`tokenizers` library are used, text by text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.spot_check import difference
from tokmill.errors import ParityError
from tokmill.offsets import byte_offsets, indices_of, offsets_of, starts_run
from tokmill.tokenizer.byte_lengths import is_composed
from tokmill.values import SampleTokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.masks.layout import Layout
    from tokmill.tokenizer.byte_lengths import ByteLengths
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch


@dataclass(frozen=True, slots=True)
class BoundaryTokens:
    """The tokens at n boundaries: (n,) int64 each, positions in the ids of all texts.

    The tokens `start:stop` straddle the boundary: they have bytes on both sides. `start` is the
    first token with a byte after the boundary. `is_known`: (n,) bool; where it is false, `start`
    and `stop` are the end of the text.
    """

    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    is_known: npt.NDArray[np.bool_]


class ReferenceOffsets:
    """Token offsets from the `tokenizers` library: exact for every normalizer, but slow.

    A prefix counts as part of the first character of the text, and so does a token that is nothing
    but the prefix.
    """

    def __init__(self, tokenizer: Tokenizer, *, parse: bool) -> None:
        self._tokenizer = tokenizer
        self._parse = parse
        self._library: Any = None

    def find(
        self, text: str, ids: npt.NDArray[np.uint32], boundaries: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return `start` and `stop` for boundaries in bytes of `text`; positions in `ids`.

        Raises:
            ParityError: `ids`, from an engine, are not the library's.
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
        start = np.searchsorted(stops, boundaries, "right")
        return start, np.maximum(start, np.searchsorted(starts, boundaries, "left"))

    def _loaded(self) -> Any:
        """Return the library's tokenizer; it is loaded at the first call."""
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
    """Return the tokens at the boundaries of a layout, given the tokens of its texts.

    `is_continuation`: (n_texts,), whether a text was encoded as the continuation of another.
    `lengths`: None if not known. `offsets`: for texts and for continuations; None if not known.

    Raises:
        ParityError: the reference encodes a text differently.
    """
    ends = tokens.offsets[layout.boundary_text + 1]
    boundaries = BoundaryTokens(ends, ends.copy(), np.zeros(len(ends), bool))
    if not len(ends):
        return boundaries
    if lengths is not None:
        _set_by_lengths(boundaries, layout, tokens, is_continuation, lengths)
    if offsets is not None:
        for number in np.unique(layout.boundary_text[~boundaries.is_known]).tolist():
            chosen = offsets[1] if is_continuation[number] else offsets[0]
            if chosen is not None:
                _set_by_offsets(boundaries, layout, tokens, number, chosen)
    return boundaries


def _set_by_lengths(
    boundaries: BoundaryTokens,
    layout: Layout,
    tokens: TokenBatch,
    is_continuation: npt.NDArray[np.bool_],
    lengths: ByteLengths,
) -> None:
    """Set the boundaries of the texts whose token lengths add up."""
    first_boundary = np.flatnonzero(starts_run(layout.boundary_text))
    texts = layout.boundary_text[first_boundary]
    n_boundaries = np.diff(np.append(first_boundary, len(layout.boundary_text)))
    prefix, n_bytes = _expected_bytes(layout, texts, is_continuation[texts], lengths)
    # `clip` skips the check of every id: none is beyond the vocabulary.
    sums = offsets_of(lengths.lengths.take(tokens.ids, mode="clip"))
    before, end = sums[tokens.offsets[texts]], sums[tokens.offsets[texts + 1]]
    wanted = np.repeat(before + prefix, n_boundaries) + layout.boundary_bytes
    first = np.searchsorted(sums[1:], wanted, "right")
    after = first + (sums.take(first, mode="clip") < wanted)
    adds_up = np.repeat(end - before == n_bytes, n_boundaries)
    boundaries.is_known[:] = adds_up
    np.copyto(boundaries.start, first, where=adds_up)
    np.copyto(boundaries.stop, after, where=adds_up)


def _expected_bytes(
    layout: Layout,
    texts: npt.NDArray[np.int64],
    is_continuation: npt.NDArray[np.bool_],
    lengths: ByteLengths,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of the prefix of each text, and the sum of its token lengths: (n,) each.

    The sum is -1, which no sum equals, where the normalizer composes characters of the text.
    """
    n_bytes = np.diff(byte_offsets(layout.texts))[texts]
    prefix = np.zeros(len(texts), np.int64)
    if lengths.prefix != "never" or lengths.composes:
        chosen = layout.texts.take(texts)
        prefix = np.where(is_continuation, 0, lengths.n_prefix_bytes(chosen))
        if lengths.composes:
            return prefix, np.where(is_composed(chosen), n_bytes + prefix, -1)
    return prefix, n_bytes + prefix


def _set_by_offsets(
    boundaries: BoundaryTokens,
    layout: Layout,
    tokens: TokenBatch,
    number: int,
    offsets: ReferenceOffsets,
) -> None:
    """Set the boundaries of one text by the offsets of the reference."""
    of_text = slice(*np.searchsorted(layout.boundary_text, [number, number + 1]).tolist())
    begin, end = tokens.offsets[number], tokens.offsets[number + 1]
    start, stop = offsets.find(
        layout.texts[number].as_py(), tokens.ids[begin:end], layout.boundary_bytes[of_text]
    )
    boundaries.start[of_text] = begin + start
    boundaries.stop[of_text] = begin + stop
    boundaries.is_known[of_text] = True


def assemble(
    layout: Layout,
    tokens: TokenBatch,
    boundaries: BoundaryTokens,
    n_samples: int,
    *,
    straddling: str,
) -> tuple[SampleTokens, npt.NDArray[np.int64]]:
    """Return the samples, and for each straddling token the sample that it is in.

    A token straddles if it has both trained and untrained bytes. With `straddling` = `mask` it has
    weight 0, otherwise the largest weight of its bytes. A sample may have no span.
    """
    starts = _span_starts(layout, tokens, boundaries)
    ids = _insert_control(layout, tokens.ids, starts)
    weights = np.repeat(layout.weights, np.diff(starts))
    spans = np.searchsorted(layout.sample, np.arange(n_samples + 1))
    offsets = starts[spans]
    mixed = _weigh_straddling(layout, boundaries, starts, weights, mask=straddling == "mask")
    weights[offsets[:-1][np.diff(offsets) > 0]] = 0
    samples = SampleTokens(ids, offsets, weights, _turn_ends(layout, boundaries, starts))
    return samples, np.searchsorted(offsets, mixed, "right") - 1


def _span_starts(
    layout: Layout, tokens: TokenBatch, boundaries: BoundaryTokens
) -> npt.NDArray[np.int64]:
    """Return where spans start in the ids of all samples: (n_spans + 1,)."""
    text_starts = tokens.offsets
    text_spans = np.flatnonzero(layout.control < 0)
    if len(boundaries.start):
        is_inner = layout.is_inner.take(text_spans)
        text_starts = np.empty(len(text_spans) + 1, np.int64)
        text_starts[np.append(~is_inner, True)] = tokens.offsets
        text_starts[np.flatnonzero(is_inner)] = boundaries.start
    lengths = np.ones(len(layout.control), np.int64)
    lengths[text_spans] = text_starts[1:] - text_starts[:-1]
    return offsets_of(lengths)


def _insert_control(
    layout: Layout, text_ids: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Return the ids of texts with the control tokens between them."""
    control_spans = np.flatnonzero(layout.control >= 0)
    positions = starts.take(control_spans)
    is_text = np.ones(int(starts[-1]), bool)
    is_text[positions] = False
    ids = np.empty(len(is_text), np.uint32)
    ids[is_text] = text_ids
    ids[positions] = layout.control.take(control_spans)
    return ids


def _weigh_straddling(
    layout: Layout,
    boundaries: BoundaryTokens,
    starts: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    *,
    mask: bool,
) -> npt.NDArray[np.int64]:
    """Set the weights of tokens at boundaries; return those with trained and untrained bytes."""
    n_tokens = np.where(boundaries.is_known, boundaries.stop - boundaries.start, 0)
    straddled = np.flatnonzero(n_tokens)
    if not len(straddled):
        return straddled
    spans = np.flatnonzero(layout.is_inner)[straddled]
    n_tokens = n_tokens[straddled]
    positions, which = np.unique(indices_of(starts[spans], n_tokens), return_inverse=True)
    least = np.full(len(positions), np.inf, np.float32)
    most = np.full(len(positions), -np.inf, np.float32)
    for span in (spans - 1, spans):
        of_token = np.repeat(layout.weights[span], n_tokens)
        np.minimum.at(least, which, of_token)
        np.maximum.at(most, which, of_token)
    is_mixed = (least <= 0) & (most > 0)
    weights[positions] = np.where(is_mixed & mask, np.float32(0), most)
    mixed: npt.NDArray[np.int64] = positions[is_mixed]
    return mixed


def _turn_ends(
    layout: Layout, boundaries: BoundaryTokens, starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the known ends of turns, as positions in the ids: a straddling token is included."""
    ends = starts[1:].copy()
    is_known = np.ones(len(ends), bool)
    before_boundary = np.flatnonzero(layout.is_inner) - 1
    ends[before_boundary] += boundaries.stop - boundaries.start
    is_known[before_boundary] = boundaries.is_known
    ends = ends[layout.ends_turn & is_known]
    return ends[starts_run(ends)]
