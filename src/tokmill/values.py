"""The values passed between rooms: records, rejects, documents, samples and tokens.

Columns, not rows: a batch stays in Arrow buffers from the parser to the encoder, and in flat NumPy
arrays from there to the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

RAW_LIMIT_BYTES = 1024
"""The bytes of a rejected record that are kept."""

TEXT, UNMERGED_TEXT = -1, -2
"""In the place of a control token's id: text, and text that must not merge with text before it."""

EMPTY = "empty"
DROPPED_BY_RENDERER = "left out by the renderer"
"""Reasons of drops: a record without text, and one that a renderer of the user leaves out."""

WHOLE_RECORD = "tokmill:record"
"""The name of a column: a schema with this column alone gets each record as JSON text."""


@dataclass(frozen=True, slots=True, order=True)
class RecordPlace:
    """The position of a record in its source.

    `byte_offset` counts decompressed bytes from the start of the file; -1 for formats without a
    byte position (Parquet rows). `line` counts lines from 1, or records in formats without lines.
    """

    line: int
    byte_offset: int

    def shifted(self, origin: RecordPlace) -> RecordPlace:
        """Return this place, counted from `origin`, as counted from the start of the file."""
        if self.byte_offset < 0:
            return RecordPlace(self.line + origin.line, -1)
        return RecordPlace(self.line + origin.line, self.byte_offset + origin.byte_offset)


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not become tokens: place, short reason, message, first bytes."""

    place: RecordPlace
    reason: str
    message: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class UnreadInput:
    """Input after a break, such as the end of a cut .gz file; no record can be read from it.

    `place`: of the first incomplete record. `text_bytes`: from there to the break, or to the end if
    the text itself is broken. `stored_byte`: the position in a compressed file at which
    decompression stopped, otherwise -1; `stored_bytes`: from there to the end of the slice.
    """

    place: RecordPlace
    reason: str
    message: str
    text_bytes: int
    stored_byte: int = -1
    stored_bytes: int = 0


class BlockEnd(NamedTuple):
    """The rows and rejects up to the end of a block of several, and the break there, if any."""

    n_rows: int
    n_rejects: int
    unread: UnreadInput | None


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one or more blocks: one row each, with exactly the columns of the schema.

    `places`: (n_rows, 2) int64, the line and the byte offset of each, counted from the start of its
    slice. `raw` returns the first `RAW_LIMIT_BYTES` bytes of a row in the source, `keys` its
    top-level keys in order: both are for single rows, and may be slow. `whole` yields each row as a
    dict with all fields, None where Python cannot read it; of a table only if its settings have
    `where`, as other columns are not read. A column that the source lacks is all null. Strings are
    valid UTF-8: sources check it, engines rely on it.

    `rejects`: other records, in order of place in each block. `ends`: of each block. `samples`:
    some rows in order, each with its complete record, to weigh the fields that are left out; their
    places in the slice alone decide which rows these are. `metadata`: a column of large_string for
    each field that is kept, a row for each record; None if none is. `replaced`: by row, the
    characters U+FFFD that stand for what is no text in the source; 0 or no entry for most.
    `doubtful`: by row of whole records, why the parser refuses it. Each value that is to blame is
    or has half of a surrogate pair in its JSON: the record counts if nobody reads these values.
    """

    batch: pa.RecordBatch
    places: npt.NDArray[np.int64]
    raw: Callable[[int], bytes]
    keys: Callable[[int], Sequence[str]]
    whole: Callable[[], Iterable[dict[str, Any] | None]] = tuple
    rejects: Sequence[Reject] = ()
    ends: Sequence[BlockEnd] = ()
    samples: Sequence[tuple[int, Mapping[str, Any]]] = ()
    metadata: pa.RecordBatch | None = None
    replaced: Mapping[int, int] = field(default_factory=dict)
    doubtful: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def unread(self) -> UnreadInput | None:
        """Return the break after the last record, if any."""
        return self.ends[-1].unread

    def reject(self, row: int, reason: str, message: str) -> Reject:
        """Return row `row` as a reject, with its place and first bytes."""
        return Reject(RecordPlace(*self.places[row].tolist()), reason, message, self.raw(row))


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A control token that a renderer places between pieces of text, such as `<file_sep>`.

    It becomes its id; the same string in a piece of text stays text.

    Attributes:
        content: the string of an added token of the tokenizer.
    """

    content: str


Pieces = Sequence[str | ControlToken]
"""A document as text and control tokens, in order."""


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Documents rendered from one block.

    `text`: large_string array of n documents, no nulls, valid UTF-8.
    `rows`: (n,) int64, increasing: the row of each document's record in `Records.batch`.
    `refused`: rows that became no document, with the reject, in order. `drops`: by reason the rows
    that have no text, or that the renderer left out, increasing; they are no rejects.
    `pieces`: of each document, if control tokens stand in some; `text` has their strings then.
    `stripped`: rows of whose text the end was left out; None if the settings leave none out.
    """

    text: pa.LargeStringArray
    rows: npt.NDArray[np.int64]
    refused: Mapping[int, Reject]
    drops: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    pieces: Sequence[Pieces] | None = None
    stripped: npt.NDArray[np.int64] | None = None

    def selected(self, keep: npt.NDArray[np.bool_], refused: Mapping[int, Reject]) -> DocumentBatch:
        """Return the documents whose `keep` (n,) is true; `refused`: what became of the others."""
        pieces = self.pieces
        if pieces is not None:
            pieces = [piece for piece, is_kept in zip(pieces, keep, strict=True) if is_kept]
        rows, text = self.rows[keep], self.text.filter(keep)
        outcomes = {**self.refused, **refused}
        return DocumentBatch(text, rows, outcomes, self.drops, pieces, self.stripped)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Token ids of n documents, end to end.

    `ids`: (n_tokens,) uint32. `offsets`: (n + 1,) int64. Document i is
    `ids[offsets[i]:offsets[i + 1]]`. `routed`: the indices of documents that the reference encoded
    instead of the run's engine; None if there are none.
    """

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    routed: npt.NDArray[np.int64] | None = None

    @property
    def n_documents(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each document: (n,) int64."""
        lengths: npt.NDArray[np.int64] = self.offsets[1:] - self.offsets[:-1]
        return lengths


class UnreadKeys(NamedTuple):
    """The keys of a block's records that hold a value but are not read.

    `sets`: the distinct sets of such keys, each sorted. `of_row`: (n_records,) int32, the set of
    each record in `Records.batch`, -1 if all its keys are read.
    """

    sets: Sequence[tuple[str, ...]]
    of_row: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples rendered from the conversations of one block, as segments.

    `text`: large_string array of n segments, no nulls, valid UTF-8; the segments of a sample, end
    to end, are its rendered text. `offsets`: (n_samples + 1,) int64; sample i has the segments
    `offsets[i]:offsets[i + 1]`, at least one. `control`: (n,) int32, the id of a control token, or
    `TEXT` or `UNMERGED_TEXT`; no text is empty. `weights`: (n,) float32, the weight of the
    segment's tokens in the loss; 0 if it is not trained. `turn_ends`: (n,) bool, whether a trained
    turn ends with the segment, so that the sample may be cut after it.

    `rows`: (n_samples,) int64, not decreasing: the record's row in `Records.batch`. `refused`: rows
    that became no sample, with the reject, in order. `drops`: rows left out by a setting, by
    reason. `unread_keys`: None if all keys are read. `counters`: (n_samples,) int64 by name.
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
    counters: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    def texts(self) -> list[str]:
        """Return the text of each sample without control tokens, as engines get it."""
        parts = [
            text if control < 0 else ""
            for text, control in zip(self.text.to_pylist(), self.control.tolist(), strict=True)
        ]
        return ["".join(parts[start:stop]) for start, stop in pairwise(self.offsets.tolist())]


@dataclass(frozen=True, slots=True)
class SampleTokens:
    """Token ids of n samples, end to end, each with its weight in the loss as a target.

    `ids`: (n_tokens,) uint32. `offsets`: (n + 1,) int64. `weights`: (n_tokens,) float32, 0 for
    untrained tokens and for the first token of every sample. `turn_ends`: positions in `ids`,
    increasing: a trained turn ends before each, so that the sample may be cut there.
    """

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    turn_ends: npt.NDArray[np.int64]
