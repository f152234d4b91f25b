"""From samples in segments to tokens, each with its weight in the loss.

A control segment is its id. Text is encoded in pieces, all of a batch at once. With boundary split
a piece ends where the weight changes, so that every token has one weight; with joint it goes from
control token to control token, and a token that straddles a boundary has weights on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from tokmill.engines.routed import merged
from tokmill.errors import TokenizerError
from tokmill.masks.assemble import assemble
from tokmill.masks.boundaries import ReferenceOffsets, find_boundaries
from tokmill.masks.layout import lay_out
from tokmill.masks.split_joint import SplitJointCheck
from tokmill.masks.truncation import selected

if TYPE_CHECKING:
    import numpy.typing as npt

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
_CONTINUES = (
    "no continuation",
    "a boundary cuts text, whose rest this tokenizer cannot encode: choose boundary joint",
)


class BatchEngine(Protocol):
    """Encodes documents and says what it took; `RenewableEngine` is one."""

    def encode(self, text: pa.LargeStringArray, laps: StageTimer) -> TokenBatch:
        """Encode n documents of valid UTF-8, no nulls."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A sample that became no tokens: its index in the batch, a short reason, a message."""

    sample: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EncodedSamples:
    """The tokens of a batch.

    `tokens`: of the n samples that were not refused. `samples`: their indices in the batch, (n,)
    int64, increasing. `noticed`: (n,) int64 by what is counted of each. `refused`: in order.
    `pieces`, `piece_tokens`, `piece_samples`: the texts that engines got, what they gave for them,
    and the samples that they are of, refused ones too; `piece_continues`: whether it was the engine
    for continuations, where that is another.
    """

    tokens: SampleTokens
    samples: npt.NDArray[np.int64]
    noticed: dict[str, npt.NDArray[np.int64]]
    refused: list[Refusal]
    pieces: pa.LargeStringArray
    piece_tokens: TokenBatch
    piece_samples: npt.NDArray[np.int64]
    piece_continues: npt.NDArray[np.bool_]

    @property
    def counters(self) -> dict[str, int]:
        """Give the sums of what was noticed."""
        return {name: int(counts.sum()) for name, counts in self.noticed.items()}

    def selected(self, keep: npt.NDArray[np.bool_]) -> EncodedSamples:
        """Give the samples whose `keep` (n,) is true."""
        if keep.all():
            return self
        return replace(
            self,
            tokens=selected(self.tokens, np.flatnonzero(keep)),
            samples=self.samples[keep],
            noticed={name: counts[keep] for name, counts in self.noticed.items()},
        )


@dataclass(frozen=True, slots=True)
class SampleRules:
    """How samples are encoded.

    `boundary`: split or joint. `straddling`: what a token on both sides of a joint boundary is:
    train, mask or reject. `after_control`: whether text behind a control token is encoded as the
    `first` of a text or as a `continuation`. `strips_left`, `strips_right`: ids of the control
    tokens that swallow the white space before and behind them. `closed`: what closes a text where
    control tokens are parsed, see `continuation.closed_texts`. `count_drift`: whether samples are
    counted whose joint ids differ from the split ones.
    """

    boundary: str
    straddling: str = "train"
    after_control: str = "first"
    strips_left: frozenset[int] = frozenset()
    strips_right: frozenset[int] = frozenset()
    closed: str = ""
    count_drift: bool = True


class SampleEncoder:
    """Encodes batches of samples; safe to call from several threads, where its engines are.

    Args:
        engine: for texts, with no control token's string parsed that the samples bring.
        continuation: for text that continues text: the very same engine where texts get no prefix,
            None where there is none.
        rules: what to do.
        lengths: the bytes of tokens, see `byte_lengths`; None where they are not known.
        offsets: used where token lengths do not add up to the text; None: those are refused.

    Raises:
        TokenizerError: boundary joint, and neither `lengths` nor `offsets` are there.
    """

    def __init__(
        self,
        engine: BatchEngine,
        continuation: BatchEngine | None,
        rules: SampleRules,
        *,
        lengths: ByteLengths | None = None,
        offsets: tuple[ReferenceOffsets, ReferenceOffsets | None] | None = None,
    ) -> None:
        if rules.boundary == "joint" and lengths is None and offsets is None:
            raise TokenizerError(
                "boundary joint needs to know which bytes a token stands for, and this tokenizer "
                "does not say it; choose boundary split"
            )
        self._engine = engine
        self._continuation = continuation
        self._rules = rules
        self._lengths = lengths
        self._offsets = offsets
        self._drift = SplitJointCheck()

    def encode(self, batch: SampleBatch, laps: StageTimer) -> EncodedSamples:
        """Encode samples; `laps` counts what is not the engine's as `mask`.

        Raises:
            ParityError: the engine has other tokens for a text than the reference.
        """
        rules = self._rules
        layout = lay_out(
            batch,
            split=rules.boundary == "split",
            strips_left=rules.strips_left,
            strips_right=rules.strips_right,
            closed=rules.closed,
        )
        refused: dict[int, tuple[str, str]] = {}
        continues = self._continues(layout, refused)
        laps.end("mask")
        tokens = self._tokens(layout.pieces, continues, laps)
        n_samples = len(batch.offsets) - 1
        noticed = {}
        if len(layout.swallowed):
            noticed[STRIPPED_SAMPLES] = np.bincount(layout.swallowed, minlength=n_samples)
        if rules.boundary == "split" and rules.count_drift and self._continuation is not None:
            drifting = self._drifting(layout, laps)
            noticed[JOINT_DIFFERS] = np.minimum(np.bincount(drifting, minlength=n_samples), 1)
        marks = find_boundaries(layout, tokens, continues, self._lengths, self._offsets)
        _refuse(refused, layout.piece_sample[layout.mark_piece[_lost(layout, marks)]], _UNCOVERED)
        samples, mixed = assemble(layout, tokens, marks, n_samples, straddling=rules.straddling)
        if rules.boundary == "joint":
            noticed[STRADDLING_TOKENS] = np.bincount(mixed, minlength=n_samples)
            if rules.straddling == "reject":
                _refuse(refused, mixed, _STRADDLES)
        every = np.arange(n_samples)
        refusals = [Refusal(sample, *refused[sample]) for sample in sorted(refused)]
        encoding = EncodedSamples(
            samples,
            every,
            noticed,
            refusals,
            layout.pieces,
            tokens,
            layout.piece_sample,
            continues & (self._continuation is not self._engine),
        )
        encoding = encoding.selected(~np.isin(every, list(refused)))
        laps.end("mask")
        return encoding

    def encode_text(
        self, text: pa.LargeStringArray, laps: StageTimer, *, continues: bool
    ) -> TokenBatch:
        """Encode texts as pieces of samples are; `continues`: as text that continues text."""
        engine = self._continuation if continues and self._continuation else self._engine
        return engine.encode(text, laps)

    def _continues(
        self, layout: Layout, refused: dict[int, tuple[str, str]]
    ) -> npt.NDArray[np.bool_]:
        """Say which pieces the engine for continuations gets: (n_pieces,) bool."""
        continues = layout.behind_text
        if self._rules.after_control == "continuation":
            continues = continues | layout.behind_control
        if self._continuation is None:
            _refuse(refused, layout.piece_sample[continues], _CONTINUES)
            return np.zeros(len(continues), bool)
        return continues

    def _tokens(
        self, pieces: pa.LargeStringArray, continues: npt.NDArray[np.bool_], laps: StageTimer
    ) -> TokenBatch:
        if self._continuation is self._engine or self._continuation is None or not continues.any():
            return self._engine.encode(pieces, laps)
        if continues.all():
            return self._continuation.encode(pieces, laps)
        first = self._engine.encode(pieces.filter(pa.array(~continues)), laps)
        rest = self._continuation.encode(pieces.filter(pa.array(continues)), laps)
        return _merged(first, rest, continues)

    def _drifting(self, layout: Layout, laps: StageTimer) -> npt.NDArray[np.int64]:
        """Give the samples that drift, once for each boundary at which they do."""
        engine = self._continuation
        cuts = np.flatnonzero(layout.behind_text)
        if engine is None or not len(cuts):
            return np.zeros(0, np.int64)
        found = self._drift.find(layout.pieces, cuts, lambda text: engine.encode(text, laps))
        return layout.piece_sample[cuts[found]]


def reference_offsets(
    tokenizer: Tokenizer, continuation: Tokenizer | None, *, parse: bool
) -> tuple[ReferenceOffsets, ReferenceOffsets | None] | None:
    """Give the slow, exact way to the bytes of tokens, for texts and for their continuations.

    None for a SentencePiece model that no tokenizer.json says the same as.
    """
    if not tokenizer.json:
        return None
    first = ReferenceOffsets(tokenizer, parse=parse)
    if continuation is tokenizer:
        return first, first
    return first, None if continuation is None else ReferenceOffsets(continuation, parse=parse)


def _merged(first: TokenBatch, rest: TokenBatch, is_rest: npt.NDArray[np.bool_]) -> TokenBatch:
    """Return the tokens of two kinds of pieces in the order of all of them."""
    routed = [
        np.flatnonzero(of_kind)[batch.routed]
        for batch, of_kind in ((first, ~is_rest), (rest, is_rest))
        if batch.routed is not None
    ]
    return merged(first, rest, is_rest, np.sort(np.concatenate(routed)) if routed else None)


def _lost(layout: Layout, marks: BoundaryTokens) -> npt.NDArray[np.bool_]:
    """Say of which marks the weights need to be known and are not: (n_marks,) bool."""
    behind = np.flatnonzero(layout.is_mark)
    lost: npt.NDArray[np.bool_] = layout.weights[behind] != layout.weights[behind - 1]
    return lost & ~marks.is_known


def _refuse(
    refused: dict[int, tuple[str, str]], samples: npt.NDArray[np.int64], why: tuple[str, str]
) -> None:
    for sample in np.unique(samples).tolist():
        refused.setdefault(sample, why)
