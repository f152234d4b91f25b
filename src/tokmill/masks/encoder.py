"""From samples in segments to token ids, each with its weight in the loss.

A control segment becomes its id; all texts of a batch are encoded at once. With boundary `split` a
text ends where the weight changes, so every token has one weight. With `joint` a text goes from
control token to control token, and a token may straddle a boundary: it has bytes on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.errors import TokenizerError
from tokmill.masks.assemble import assemble
from tokmill.masks.boundaries import ReferenceOffsets, find_boundaries
from tokmill.masks.layout import SampleRules, lay_out
from tokmill.masks.split_joint import SplitJointCheck
from tokmill.masks.truncation import select_samples
from tokmill.offsets import merge_tokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.engines.loaded import RenewableEngine
    from tokmill.masks.boundaries import BoundaryTokens
    from tokmill.masks.layout import Layout
    from tokmill.timing import StageTimer
    from tokmill.tokenizer.byte_lengths import ByteLengths
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import SampleBatch, SampleTokens, TokenBatch

STRADDLING_TOKENS = "straddling tokens"
JOINT_DIFFERS = "samples whose joint ids differ"
STRIPPED_SAMPLES = "samples that lose white space of a reply to the control token beside it"

_STRADDLES = ("straddling token", "a token holds bytes that are trained and bytes that are not")
_UNCOVERED = ("tokens do not cover the text", "the bytes of its tokens do not add up to its text")
_NO_CONTINUATION = (
    "no continuation",
    "a boundary cuts text, whose rest this tokenizer cannot encode: choose boundary joint",
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
        lengths: byte lengths of tokens, see `byte_lengths`; None if not known.
        offsets: used where token lengths do not add up to the text; None: those are refused.

    Raises:
        TokenizerError: boundary is joint, but both `lengths` and `offsets` are None.
    """

    def __init__(
        self,
        engine: RenewableEngine,
        continuation: RenewableEngine | None,
        rules: SampleRules,
        *,
        lengths: ByteLengths | None = None,
        offsets: tuple[ReferenceOffsets, ReferenceOffsets | None] | None = None,
    ) -> None:
        if rules.boundary == "joint" and lengths is None and offsets is None:
            raise TokenizerError(
                "boundary joint needs the byte lengths of tokens, and this tokenizer does not "
                "define them; choose boundary split"
            )
        self._engine = engine
        self._continuation = continuation
        self._rules = rules
        self._lengths = lengths
        self._offsets = offsets
        self._split_joint = SplitJointCheck()

    def encode(self, batch: SampleBatch, timer: StageTimer) -> EncodedSamples:
        """Return the tokens of samples; `timer` counts all but the engine's time as `mask`.

        Raises:
            ParityError: the engine has other tokens for a text than the reference.
        """
        rules = self._rules
        layout = lay_out(batch, rules)
        refused: dict[int, tuple[str, str]] = {}
        is_continuation = self._is_continuation(layout, refused)
        timer.end("mask")
        tokens = self._encode_texts(layout.texts, is_continuation, timer)
        every = np.arange(len(batch.offsets) - 1)
        counters = self._counters(layout, len(every), timer)
        boundaries = find_boundaries(layout, tokens, is_continuation, self._lengths, self._offsets)
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
        found = layout.follows_text
        if self._rules.after_control == "continuation":
            found = found | layout.follows_control
        if self._continuation is None:
            _refuse(refused, layout.text_sample[found], _NO_CONTINUATION)
            return np.zeros(len(found), bool)
        return found

    def _encode_texts(
        self, texts: pa.LargeStringArray, is_continuation: npt.NDArray[np.bool_], timer: StageTimer
    ) -> TokenBatch:
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
            found = self._split_joint.find(
                layout.texts, split_at, lambda text: engine.encode(text, timer)
            )
            counts = np.bincount(layout.text_sample[split_at[found]], minlength=n_samples)
            counters[JOINT_DIFFERS] = np.minimum(counts, 1)
        return counters


def reference_offsets(
    tokenizer: Tokenizer, continuation: Tokenizer | None, *, parse: bool
) -> tuple[ReferenceOffsets, ReferenceOffsets | None] | None:
    """Return the offsets of the reference for texts and for their continuations.

    None for a SentencePiece model without an equal tokenizer.json.
    """
    if not tokenizer.json:
        return None
    first = ReferenceOffsets(tokenizer, parse=parse)
    if continuation is tokenizer:
        return first, first
    return first, None if continuation is None else ReferenceOffsets(continuation, parse=parse)


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
