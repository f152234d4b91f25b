"""The spot check: while a run goes on, some documents are encoded again by the reference.

Candidates are picked by a hash of their length and ends, so that the choice does not depend on
batches or workers; at most 0.05 % of the bytes are encoded twice. One difference stops the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.encode.offsets import byte_offsets
from tokmill.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.batch import TokenBatch
    from tokmill.encode.engine import Engine

BYTE_FRACTION = 0.0005
LONGEST_BYTES = 64 << 10
"""Longer documents are not checked; they would eat the budget of hundreds of others."""

_FIRST_BUDGET_BYTES = float(LONGEST_BYTES)
_EDGE_BYTES = 8
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_ONE_IN = 512


@dataclass(frozen=True, slots=True)
class Candidate:
    """A picked document: its index in the batch, its text as an array of one, the engine's ids.

    `continues`: it continues a text, and was encoded as such.
    """

    index: int
    text: pa.LargeStringArray
    ids: npt.NDArray[np.uint32]
    continues: bool = False


def candidates(text: pa.LargeStringArray, tokens: TokenBatch) -> list[Candidate]:
    """Give the picked documents of a batch, copied out of it so that the batch can go."""
    offsets = tokens.offsets
    return [
        Candidate(int(i), text.take([i]), tokens.ids[offsets[i] : offsets[i + 1]].copy())
        for i in pick(text)
    ]


class SpotCheck:
    """Re-encodes candidates of one part, in order, within the byte budget.

    `reference` gives the reference engine, `continuation` the one for texts that continue others;
    each is called when the first candidate comes.
    """

    def __init__(
        self, reference: Callable[[], Engine], continuation: Callable[[], Engine] | None = None
    ) -> None:
        self._reference = reference
        self._continuation = continuation or reference
        self._budget_bytes = _FIRST_BUDGET_BYTES
        self.n_checked = 0
        self.n_too_long = 0

    def earn(self, text_bytes: int) -> None:
        """Add to the budget for a batch of `text_bytes`."""
        self._budget_bytes += BYTE_FRACTION * text_bytes

    def check(self, candidate: Candidate, where: str) -> None:
        """Compare one candidate if the budget allows; `where` names its record in the message.

        Raises:
            ParityError: the reference gives other ids.
        """
        n_bytes = candidate.text.nbytes
        if n_bytes > LONGEST_BYTES:
            self.n_too_long += 1
            return
        if n_bytes > self._budget_bytes:
            return
        self._budget_bytes -= n_bytes
        self.n_checked += 1
        reference = self._continuation if candidate.continues else self._reference
        expected = reference().encode(candidate.text).ids
        if not np.array_equal(expected, candidate.ids):
            text = candidate.text[0].as_py()
            raise ParityError(describe_difference(text, candidate.ids, expected, where))


def describe_difference(
    text: str, ids: npt.NDArray[np.uint32], expected: npt.NDArray[np.uint32], where: str
) -> str:
    """Say where two encodings of a text part, in one line."""
    n = min(len(ids), len(expected))
    differs = np.flatnonzero(ids[:n] != expected[:n])
    at = int(differs[0]) if len(differs) else n
    return (
        f"{where}: the engine's ids differ from the reference's at token {at} "
        f"({ids[at : at + 4].tolist()} against {expected[at : at + 4].tolist()}) of the document "
        f"that begins {text[:60]!r}: run again with --engine tokenizers --overwrite, and report it"
    )


def pick(text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """Give the indices of the candidates: one document in `_ONE_IN`, by a hash of the text.

    An empty document has no bytes to hash, and is never picked.
    """
    if not len(text):
        return np.zeros(0, np.int64)
    offsets = byte_offsets(text)
    lengths = offsets[1:] - offsets[:-1]
    if not lengths.any():
        return np.zeros(0, np.int64)
    data = np.frombuffer(text.buffers()[2], np.uint8)
    edge = np.arange(_EDGE_BYTES)
    first = np.minimum(offsets[:-1, None] + edge, np.maximum(offsets[1:, None] - 1, 0))
    last = np.maximum(offsets[1:, None] - 1 - edge, offsets[:-1, None])
    mixed = lengths.astype(np.uint64) * _MULTIPLIERS[0]
    for index, multiplier in zip((first, last), _MULTIPLIERS[1:], strict=True):
        word = np.ascontiguousarray(data[np.minimum(index, len(data) - 1)]).view(np.uint64)[:, 0]
        mixed = (mixed ^ word) * multiplier
        mixed ^= mixed >> np.uint64(29)
    chosen = (mixed % np.uint64(_ONE_IN) == 0) & (lengths > 0)
    picked: npt.NDArray[np.int64] = np.flatnonzero(chosen)
    return picked
