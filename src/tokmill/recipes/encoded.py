"""Blocks of input processed by a recipe: many small ones at once, each with its own result.

Each stage of a recipe costs some milliseconds per call. Small files give blocks of a few KB, so the
records of several blocks become one batch, and the result is split again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from tokmill.recipes.memory_bounds import BLOCK_COPIES
from tokmill.sources.parse_blocks import parse_blocks
from tokmill.timing import StageTimer
from tokmill.values import Place, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.loaded import EngineMemory
    from tokmill.sources.blocks import Block
    from tokmill.timing import StageSeconds
    from tokmill.values import RecordLookup, Reject, UnreadInput, UnreadKeys

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """An encoded block: its n documents in order, and its dropped and rejected records.

    `tokens`: (n_tokens,) of the shard's dtype, with bos and eos. `offsets`: (n + 1,) int64.
    `rows`, `text_bytes`, `is_val`: (n,): row of the record, bytes of the document, whether it is
    validation. `rows` does not decrease; a record with several samples has its row as many times.
    `drops`: rows by reason, not decreasing. `rejects`: in order of place; a rejected record has no
    documents and no drops. `stage_s`: seconds by stage; of blocks processed at once, the first has
    the seconds of all.

    `mask`: (n_tokens,), 1 if a token is a target; None for pretraining. `loss_weights`:
    (n_tokens,), 0 where `mask` is 0; None unless weights are kept. `counters`: (n,) int64 by name.
    They are kept per document, as a sum of the block would depend on where blocks are cut.

    `unread`: a break after all records of the block's slice, if there is one. `checks`: (n,) int64
    by the names of `Counts.checks`. `unread_keys`: by row; None where all keys are read. `fields`:
    sampled rows in order, each with the bytes of its fields, see `Counts.fields`. `differences`:
    row and line of each text whose ids are not the reference's, in order; the run stops at the
    first.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    text_bytes: npt.NDArray[np.int64]
    is_val: npt.NDArray[np.bool_]
    drops: dict[str, npt.NDArray[np.int64]]
    lookup: RecordLookup
    rejects: Sequence[Reject] = ()
    input_bytes: int = 0
    stage_s: Mapping[str, StageSeconds] = field(default_factory=dict)
    mask: npt.NDArray[np.uint8] | None = None
    loss_weights: npt.NDArray[np.float32] | None = None
    counters: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    unread: UnreadInput | None = None
    checks: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    unread_keys: UnreadKeys | None = None
    fields: Sequence[tuple[int, Mapping[str, int]]] = ()
    differences: Sequence[tuple[int, str]] = ()

    @property
    def n_documents(self) -> int:
        """Return the number of documents."""
        return len(self.rows)

    @property
    def sidecars(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays beside the tokens, (n_tokens,) each, by the ending of their file."""
        bodies = {"mask": self.mask, "weight": self.loss_weights}
        return {ending: body for ending, body in bodies.items() if body is not None}


def process_blocks(
    blocks: Sequence[Block],
    memory: EngineMemory,
    encode: Callable[[Records, StageTimer], tuple[EncodedBlock, Mapping[int, Reject]]],
) -> list[EncodedBlock]:
    """Return the result of each block, at least one; blocks do not influence each other.

    `encode` returns the documents of records, and the rejects of other records by row. The bytes of
    the blocks do not count as `memory` of the engines.
    """
    with memory.holding(BLOCK_COPIES * sum(block.n_bytes for block in blocks)):
        timer = StageTimer()
        parsed = parse_blocks(blocks)
        records = join_records(parsed)
        timer.end("parse")
        encoded, refused = encode(records, timer)
        results = split_encoded(encoded, refused, parsed, [block.input_bytes for block in blocks])
        timer.end("narrow")
        results[0] = replace(results[0], stage_s=timer.seconds)
        return results


@dataclass(frozen=True, slots=True)
class _JoinedLookup:
    """Looks up the rows of several blocks; block i has the rows `starts[i]:starts[i + 1]`."""

    lookups: Sequence[RecordLookup]
    starts: npt.NDArray[np.int64]

    def place(self, row: int) -> Place:
        """Return the place of row `row`, counted from the start of its own slice."""
        lookup, local = self._find(row)
        return lookup.place(local)

    def places(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the line and the byte offset of the place of each row, in its own slice."""
        places = map(self.place, rows.tolist())
        return np.array([(one.line, one.byte_offset) for one in places], np.int64).reshape(-1, 2)

    def raw(self, row: int) -> bytes:
        """Return the first bytes of row `row`."""
        lookup, local = self._find(row)
        return lookup.raw(local)

    def keys(self, row: int) -> list[str]:
        """Return the top-level keys of row `row`."""
        lookup, local = self._find(row)
        return lookup.keys(local)

    def _find(self, row: int) -> tuple[RecordLookup, int]:
        index = int(np.searchsorted(self.starts, row, "right")) - 1
        return self.lookups[index], row - int(self.starts[index])


def join_records(blocks: Sequence[Records]) -> Records:
    """Return the records of several blocks, at least one, as one batch, without their rejects.

    Columns are copied, unless there is only one block.
    """
    if len(blocks) == 1:
        return blocks[0]
    starts = _row_starts(blocks)
    lookup = _JoinedLookup([records.lookup for records in blocks], starts)
    samples = [
        (start + row, record)
        for start, records in zip(starts.tolist(), blocks, strict=False)
        for row, record in records.samples
    ]
    batch = pa.concat_batches([records.batch for records in blocks])
    return Records(batch, lookup, (), samples=samples)


def split_encoded(
    encoded: EncodedBlock,
    refused: Mapping[int, Reject],
    blocks: Sequence[Records],
    input_bytes: Sequence[int],
) -> list[EncodedBlock]:
    """Return the result of each block, from that of the joined blocks.

    `refused`: the rejects of other records, by row. `blocks`: the records of each block, with the
    rejects of its source.
    """
    edges = _row_starts(blocks).tolist()
    cuts = np.searchsorted(encoded.rows, edges).tolist()
    rejects = _by_block(sorted(refused.items()), edges)
    fields, differences = _by_block(encoded.fields, edges), _by_block(encoded.differences, edges)
    results = []
    for number, (first, last) in enumerate(pairwise(edges)):
        start, stop = cuts[number : number + 2]
        records, offsets = blocks[number], encoded.offsets[start : stop + 1]
        tokens = slice(int(offsets[0]), int(offsets[-1]))
        found = [*records.rejects, *(reject for _, reject in rejects[number])]
        unread_keys = encoded.unread_keys
        if unread_keys is not None:
            unread_keys = unread_keys._replace(of_row=unread_keys.of_row[first:last])
        results.append(
            EncodedBlock(
                tokens=encoded.tokens[tokens],
                offsets=offsets - offsets[0],
                rows=encoded.rows[start:stop] - first,
                text_bytes=encoded.text_bytes[start:stop],
                is_val=encoded.is_val[start:stop],
                drops=_drops(encoded.drops, first, last),
                lookup=records.lookup,
                rejects=sorted(found, key=lambda reject: reject.place),
                input_bytes=input_bytes[number],
                mask=None if encoded.mask is None else encoded.mask[tokens],
                loss_weights=None if (w := encoded.loss_weights) is None else w[tokens],
                counters={k: n for k, n in _cut(encoded.counters, start, stop).items() if n.any()},
                unread=records.unread,
                checks=_cut(encoded.checks, start, stop),
                unread_keys=unread_keys,
                fields=fields[number],
                differences=differences[number],
            )
        )
    return results


def _row_starts(blocks: Sequence[Records]) -> npt.NDArray[np.int64]:
    """Return the first row of each block in the joined batch, and the end: (n + 1,)."""
    n_rows = (records.batch.num_rows for records in blocks)
    return np.fromiter(accumulate(n_rows, initial=0), np.int64, len(blocks) + 1)


def _drops(
    drops: Mapping[str, npt.NDArray[np.int64]], first: int, last: int
) -> dict[str, npt.NDArray[np.int64]]:
    parts = {
        reason: rows[slice(*np.searchsorted(rows, (first, last)))] - first
        for reason, rows in drops.items()
    }
    return {reason: rows for reason, rows in parts.items() if len(rows)}


def _cut(
    counts: Mapping[str, npt.NDArray[np.int64]], start: int, stop: int
) -> dict[str, npt.NDArray[np.int64]]:
    return {name: n[start:stop] for name, n in counts.items()}


def _by_block(
    values: Sequence[tuple[int, _Value]], edges: Sequence[int]
) -> list[list[tuple[int, _Value]]]:
    """Return values, in order of their rows, by block; rows then count from the block's first."""
    cuts = np.searchsorted([row for row, _ in values], edges).tolist()
    return [
        [(row - first, value) for row, value in values[start:stop]]
        for first, (start, stop) in zip(edges, pairwise(cuts), strict=False)
    ]
