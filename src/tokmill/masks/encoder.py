"""From samples in segments to token ids, each with its weight in the loss.

A control segment becomes its id; all texts of a batch are encoded at once. With boundary `split` a
text ends where the weight changes, so every token has one weight. With `joint` a text goes from
control token to control token, and a token may straddle a boundary: it has bytes on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.errors import TokenizerError
from tokmill.masks.layout import SampleRules, assemble, find_boundaries, lay_out
from tokmill.masks.truncation import select_samples
from tokmill.offsets import byte_offsets, merge_tokens
from tokmill.tokenizer.byte_lengths import composed
from tokmill.tokenizer.control_tokens import contains_any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.engines.loaded import RenewableEngine
    from tokmill.masks.layout import BoundaryTokens, Layout
    from tokmill.timing import StageTimer
    from tokmill.tokenizer.byte_lengths import ByteLengths
    from tokmill.values import SampleBatch, SampleTokens, TokenBatch

STRADDLING_TOKENS = "straddling tokens"
JOINT_DIFFERS = "samples whose joint ids differ"
STRIPPED_SAMPLES = "samples that lose white space of a reply to the control token beside it"

_STRADDLES = ("straddling token", "a token holds bytes that are trained and bytes that are not")
_UNCOVERED = (
    "tokens do not cover the text",
    "the bytes of its tokens do not add up to its text: choose boundary split",
)
_RESTARTS = (
    "control token in text",
    "a token that is parsed stands in a text that continues another, and this tokenizer begins "
    "text anew behind it: leave control_tokens_in_text at text",
)
_NO_CONTINUATION = (
    "no continuation",
    "a boundary cuts text, whose rest this tokenizer cannot encode: choose boundary joint, or a "
    "template that puts control tokens around replies",
)


@dataclass(frozen=True, slots=True)
class EncodedSamples:
    """The tokens of a batch.

    `tokens`: of the n samples that were not refused. `samples`: their indices in the batch, (n,)
    int64, increasing. `counters`: (n,) int64 by name. `refused`: a short reason and a message by
    the indices of samples that became no tokens.

    For the spot check, refused samples included: `texts` that engines encoded, their
    `text_tokens`, their samples `text_samples`, and `by_continuation_engine`, whether the engine
    for continuations encoded a text, if that is another engine.
    """

    tokens: SampleTokens
    samples: npt.NDArray[np.int64]
    counters: dict[str, npt.NDArray[np.int64]]
    refused: dict[int, tuple[str, str]]
    texts: pa.LargeStringArray
    text_tokens: TokenBatch
    text_samples: npt.NDArray[np.int64]
    by_continuation_engine: npt.NDArray[np.bool_]

    def selected(self, keep: npt.NDArray[np.bool_]) -> EncodedSamples:
        """Return the samples whose `keep` (n,) is true."""
        if keep.all():
            return self
        return replace(
            self,
            tokens=select_samples(self.tokens, np.flatnonzero(keep)),
            samples=self.samples[keep],
            counters={name: counts[keep] for name, counts in self.counters.items()},
        )


class SampleEncoder:
    """Encodes batches of samples; safe to call from several threads if its engines are.

    Args:
        engine: for texts; it parses no control token in them.
        continuation: for text that continues text: the same object if the tokenizer puts no prefix
            before a text, None if the tokenizer cannot encode continuations.
        rules: how samples are encoded.
        lengths: byte lengths of tokens, see `byte_lengths`; None if not known. Where they do not
            add up to the text, joint samples are refused.

    Raises:
        TokenizerError: boundary is joint, but `lengths` is None.
    """

    def __init__(
        self,
        engine: RenewableEngine,
        continuation: RenewableEngine | None,
        rules: SampleRules,
        *,
        lengths: ByteLengths | None = None,
    ) -> None:
        if rules.boundary == "joint" and lengths is None:
            raise TokenizerError(
                "boundary joint needs the byte lengths of tokens, and this tokenizer does not "
                "define them; choose boundary split"
            )
        self._engine = engine
        self._continuation = continuation
        self._rules = rules
        self._lengths = lengths
        self._split_joint = SplitJointCheck()

    def encode(self, batch: SampleBatch, timer: StageTimer) -> EncodedSamples:
        """Return the tokens of samples; `timer` counts all but the engine's time as `mask`."""
        rules, lengths = self._rules, self._lengths
        if lengths is not None and lengths.composes:
            # The engine composes anyway; only so do its tokens add up to the text.
            batch = replace(batch, text=composed(batch.text))
        layout = lay_out(batch, rules)
        refused: dict[int, tuple[str, str]] = {}
        is_continuation = self._is_continuation(layout, refused)
        timer.end("mask")
        tokens = self._encode_texts(layout.texts, is_continuation, timer)
        every = np.arange(len(batch.offsets) - 1)
        counters = self._counters(layout, len(every), timer)
        boundaries = find_boundaries(layout, tokens, is_continuation, lengths)
        _refuse(refused, _uncovered(layout, boundaries), _UNCOVERED)
        samples, mixed = assemble(
            layout, tokens, boundaries, len(every), straddling=rules.straddling
        )
        if rules.boundary == "joint":
            counters[STRADDLING_TOKENS] = np.bincount(mixed, minlength=len(every))
            if rules.straddling == "reject":
                _refuse(refused, mixed, _STRADDLES)
        encoded = EncodedSamples(
            samples,
            every,
            counters,
            refused,
            texts=layout.texts,
            text_tokens=tokens,
            text_samples=layout.text_sample,
            by_continuation_engine=is_continuation & (self._continuation is not self._engine),
        )
        encoded = encoded.selected(~np.isin(every, list(refused)))
        timer.end("mask")
        return encoded

    def encode_text(
        self, text: pa.LargeStringArray, timer: StageTimer, *, is_continuation: bool
    ) -> TokenBatch:
        """Return the tokens of texts, as a sample's texts or as continuations of text."""
        engine = self._continuation if is_continuation and self._continuation else self._engine
        return engine.encode(text, timer)

    def _is_continuation(
        self, layout: Layout, refused: dict[int, tuple[str, str]]
    ) -> npt.NDArray[np.bool_]:
        """Return which texts the engine for continuations gets: (n_texts,) bool."""
        is_continuation = layout.follows_text
        if self._rules.after_control == "continuation":
            is_continuation = is_continuation | layout.follows_control
        if self._rules.restarts:
            holds = contains_any(layout.texts, self._rules.restarts) & is_continuation
            _refuse(refused, layout.text_sample[holds], _RESTARTS)
        if self._continuation is None:
            _refuse(refused, layout.text_sample[is_continuation], _NO_CONTINUATION)
            return np.zeros(len(is_continuation), bool)
        return is_continuation

    def _encode_texts(
        self, texts: pa.LargeStringArray, is_continuation: npt.NDArray[np.bool_], timer: StageTimer
    ) -> TokenBatch:
        """Return the tokens of texts, each by its engine, in the order of the texts."""
        first, rest = self._engine, self._continuation
        if rest is first or rest is None or not is_continuation.any():
            return first.encode(texts, timer)
        if is_continuation.all():
            return rest.encode(texts, timer)
        first_tokens = first.encode(texts.filter(pa.array(~is_continuation)), timer)
        rest_tokens = rest.encode(texts.filter(pa.array(is_continuation)), timer)
        return merge_tokens(first_tokens, rest_tokens, is_continuation)

    def _counters(
        self, layout: Layout, n_samples: int, timer: StageTimer
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Return the counters that need no tokens of the samples."""
        counters = {}
        if len(layout.stripped):
            counters[STRIPPED_SAMPLES] = np.bincount(layout.stripped, minlength=n_samples)
        engine = self._continuation
        if self._rules.boundary == "split" and engine is not None:
            split_at = np.flatnonzero(layout.follows_text)
            differs = self._split_joint.find(
                layout.texts, split_at, lambda text: engine.encode(text, timer)
            )
            counts = np.bincount(layout.text_sample[split_at[differs]], minlength=n_samples)
            counters[JOINT_DIFFERS] = np.minimum(counts, 1)
        return counters


def _uncovered(layout: Layout, boundaries: BoundaryTokens) -> npt.NDArray[np.int64]:
    """Return the samples with an unknown boundary at which the weight changes."""
    after = np.flatnonzero(layout.is_inner)
    changes: npt.NDArray[np.bool_] = layout.weights[after] != layout.weights[after - 1]
    return layout.text_sample[layout.boundary_text[changes & ~boundaries.is_known]]


def _refuse(
    refused: dict[int, tuple[str, str]], samples: npt.NDArray[np.int64], why: tuple[str, str]
) -> None:
    for sample in np.unique(samples).tolist():
        refused.setdefault(sample, why)


_WINDOW_BYTES = 8
"""The bytes compared on each side of a boundary: at most these, and at most one word."""

_SPACE = 0x20
"""This byte and those below count as white space."""

_MOST_KNOWN = 1 << 15
"""The results that are remembered, about 200 bytes each."""

_Pair = tuple[bytes, bytes]
"""The text on both sides of a boundary."""


class SplitJointCheck:
    """Finds the boundaries where text split there has other tokens than the joined text.

    Compares one word on each side, with the white space before it, and remembers the result. Safe
    to share between threads.
    """

    def __init__(self) -> None:
        self._known: dict[_Pair, bool] = {}

    def find(
        self,
        texts: pa.LargeStringArray,
        split_at: npt.NDArray[np.int64],
        encode: Callable[[pa.LargeStringArray], TokenBatch],
    ) -> npt.NDArray[np.bool_]:
        """Return for n split texts whether the joint tokens differ at the split: (n,) bool.

        `split_at`: (n,) indices of texts, none 0, that continue the text before them. `encode`: an
        engine that puts no prefix before a text; the same one in every call.
        """
        if not len(split_at):
            return np.zeros(0, bool)
        offsets = byte_offsets(texts)
        data = np.frombuffer(texts.buffers()[2], np.uint8)
        middle = offsets[split_at]
        starts = _word_ends(data, middle, middle - offsets[split_at - 1], -1)
        stops = _word_ends(data, middle, offsets[split_at + 1] - middle, 1)
        held = data.tobytes()
        edges = zip(starts.tolist(), middle.tolist(), stops.tolist(), strict=True)
        pairs = [(held[start:at], held[at:stop]) for start, at, stop in edges]
        known = self._known
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in known]
        if unknown:
            known.update(zip(unknown, _differ(unknown, encode), strict=True))
        if len(known) > _MOST_KNOWN:
            self._known = {}
        return np.array([known[pair] for pair in pairs])


def _word_ends(
    data: npt.NDArray[np.uint8],
    middle: npt.NDArray[np.int64],
    n_bytes: npt.NDArray[np.int64],
    step: int,
) -> npt.NDArray[np.int64]:
    """Return where the white space and word before (-1) or after (1) n positions end.

    At most `n_bytes` away, and no character is cut.
    """
    steps = np.arange(_WINDOW_BYTES)
    window = data.take((middle + min(step, 0))[:, None] + step * steps, mode="clip")
    is_space = window <= _SPACE
    is_space &= steps > np.argmin(is_space, axis=1)[:, None]
    n_word = np.argmax(is_space, axis=1)
    n_word[n_word == 0] = _WINDOW_BYTES  # no space after the word: it fills the window
    ends: npt.NDArray[np.int64] = middle + step * np.minimum(n_word, n_bytes)
    for _ in range(3):  # a character has at most three more bytes
        is_inside = (data.take(ends, mode="clip") & 0xC0 == 0x80) & (ends < len(data))
        ends = ends - step * is_inside
    return ends


def _differ(
    pairs: Sequence[_Pair], encode: Callable[[pa.LargeStringArray], TokenBatch]
) -> list[bool]:
    """Return for each pair whether joining both texts changes the tokens."""
    n = len(pairs)
    texts = [left for left, _ in pairs] + [right for _, right in pairs]
    texts += [left + right for left, right in pairs]
    tokens = encode(pa.array(texts, pa.large_string()))
    ids = [tokens.ids[i:j].tolist() for i, j in pairwise(tokens.offsets.tolist())]
    return [ids[i] + ids[n + i] != ids[2 * n + i] for i in range(n)]
