"""The values that travel from room to room: records, documents, tokens, and what is refused.

Columns, not rows: a batch stays in Arrow buffers from the parser to the encoder, and in flat NumPy
arrays from there to the shard. Nothing here reads, writes or decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

RAW_LIMIT_BYTES = 1024
"""At most this much of a rejected record is kept."""

TEXT, UNMERGED_TEXT = -1, -2
"""In the place of a control token's id: text, and text that must not merge with text before it."""

WHOLE_RECORD = "tokmill:record"
"""A schema of this one column (large_string) asks a source for whole records as JSON text."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a record stands in its source.

    `byte_offset` counts decompressed bytes from the start of the file, or is -1 where a format has
    no bytes to count (Parquet rows). `line` is the 1-based line, or record without lines.
    """

    line: int
    byte_offset: int

    def shifted(self, origin: Place) -> Place:
        """Give this place counted from the start of the file that `origin` was counted from."""
        if self.byte_offset < 0:
            return Place(self.line + origin.line, -1)
        return Place(self.line + origin.line, self.byte_offset + origin.byte_offset)


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not become tokens: place, short reason, message, first bytes."""

    place: Place
    reason: str
    message: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class UnreadInput:
    """Input behind a break, from which no record can be read.

    `place`: of the first record that is not whole. `text_bytes`: from there to the break, or to the
    end if the text itself is broken. `stored_byte`: where unpacking stopped in a compressed file,
    else -1; `stored_bytes`: from there to the end of the slice, never unpacked.
    """

    place: Place
    reason: str
    message: str
    text_bytes: int
    stored_byte: int = -1
    stored_bytes: int = 0


class RecordLookup(Protocol):
    """Answers questions about single records of a batch; for rejects only, so it may be slow."""

    def place(self, row: int) -> Place:
        """Give the place of row `row`, counted from the start of the slice."""

    def raw(self, row: int) -> bytes:
        """Give the first `RAW_LIMIT_BYTES` bytes of row `row` as they stand in the source."""

    def keys(self, row: int) -> list[str]:
        """Give the top-level keys of row `row`, in order."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one block: one row each, with exactly the columns asked for, and what was refused.

    `rejects` are in order of place. A column that the source lacks is all null. Strings are valid
    UTF-8: sources check, engines trust. `unread`: the break behind the last record, if any.
    `samples`: some rows in order, each with its whole record, to see which fields are left out;
    which rows those are depends on their places in the slice alone.
    """

    batch: pa.RecordBatch
    lookup: RecordLookup
    rejects: Sequence[Reject]
    unread: UnreadInput | None = None
    samples: Sequence[tuple[int, Mapping[str, Any]]] = ()

    def reject(self, row: int, reason: str, message: str) -> Reject:
        """Return row `row` as a reject, with its place and first bytes."""
        return Reject(self.lookup.place(row), reason, message, self.lookup.raw(row))


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Documents rendered from one block.

    `text`: large_string array of n documents, no nulls, valid UTF-8.
    `rows`: (n,) int64, increasing: the row of `Records.batch` that each document came from.
    """

    text: pa.LargeStringArray
    rows: npt.NDArray[np.int64]
    rejects: Sequence[Reject]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Token ids of n documents, end to end.

    `ids`: (n_tokens,) uint32. `offsets`: (n + 1,) int64. Document i is
    `ids[offsets[i]:offsets[i + 1]]`. `routed`: the indices of documents that the reference encoded
    in the place of the run's engine; None: there are none.
    """

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    routed: npt.NDArray[np.int64] | None = None

    @property
    def n_documents(self) -> int:
        """Give the number of documents."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Give the number of tokens of each document: (n,) int64."""
        lengths: npt.NDArray[np.int64] = self.offsets[1:] - self.offsets[:-1]
        return lengths


class UnreadKeys(NamedTuple):
    """Keys of the records of a block that are filled and that nothing reads.

    `sets`: distinct sets of them, each sorted. `of_row`: (n_records,) int32, the set of each record
    in `Records.batch`, -1 where everything is read.
    """

    sets: Sequence[tuple[str, ...]]
    of_row: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples rendered from chats of one block: their text, cut into segments.

    `text`: large_string array of n segments, no nulls, valid UTF-8, in order: the segments of a
    sample end to end are its rendering. `offsets`: (n_samples + 1,) int64; sample i has the
    segments `offsets[i]:offsets[i + 1]`, at least one. `control`: (n,) int32, the id of the control
    token that a segment is, -1 for text, which may be empty, and -2 for text that begins with a
    token of its own. `weights`: (n,) float32, the weight of a segment's tokens in the loss, 0 for
    what is not trained. `turn_ends`: (n,) bool, whether a sample may be cut behind the segment: a
    trained turn is complete there. `rows`: (n_samples,) int64, not decreasing: the record's row in
    `Records.batch`. `refused`: rows that became no sample and why, in order. `drops`: rows left out
    by a setting, by reason. `unread_keys`: None where all keys are read. `noticed`: (n_samples,)
    int64 by what is counted of each.
    """

    text: pa.LargeStringArray
    offsets: npt.NDArray[np.int64]
    control: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    turn_ends: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]
    refused: Sequence[tuple[int, Reject]]
    drops: Mapping[str, npt.NDArray[np.int64]]
    unread_keys: UnreadKeys | None = None
    noticed: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    def texts(self) -> list[str]:
        """Give the text of each sample without its control tokens, which no engine sees."""
        parts = [
            text if control < 0 else ""
            for text, control in zip(self.text.to_pylist(), self.control.tolist(), strict=True)
        ]
        return ["".join(parts[start:stop]) for start, stop in pairwise(self.offsets.tolist())]


@dataclass(frozen=True, slots=True)
class SampleTokens:
    """Token ids of n samples, end to end, each with its weight in the loss as a target.

    `ids`: (n_tokens,) uint32. `offsets`: (n + 1,) int64. `weights`: (n_tokens,) float32, 0 for what
    is not trained and for the first token of every sample. `turn_ends`: positions in `ids`,
    increasing, before which a sample may be cut: a trained turn is complete there.
    """

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    turn_ends: npt.NDArray[np.int64]
