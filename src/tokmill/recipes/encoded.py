"""Blocks as a recipe returns them, and many small ones worked on together.

Every step of the recipe has a price of its own, some milliseconds in all. Blocks of a few KB, which
small files give, share it: their records become one batch, whose result is split again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.values import Place, Records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.values import RecordLookup, Reject, UnreadInput, UnreadKeys


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """One block, encoded: its kept documents in order, and what became of its other records.

    `tokens`: (n_tokens,) of the shard's dtype, ends included. `offsets`: (n + 1,) int64. `rows`,
    `text_bytes`, `is_val`: (n,): the record's row, the document's bytes, whether it is validation.
    `rows` does not decrease; a record that gives several samples has its row as many times. `drops`
    holds rows by reason, not decreasing. `rejects` is in order of place; a record that is rejected
    gives nothing else. `stage_s`: seconds by stage.

    `mask`: (n_tokens,), 1 for a token that is a target; None for pretraining. `loss_weights`:
    (n_tokens,), 0 where `mask` is 0; None unless weights are kept. `counters`: (n,) int64 by name,
    what was noticed about each document. A sum for the block would not do: which block a document
    is in, and whether an earlier attempt has counted it, must not show in what is written.

    `checks`: (n,) int64 by the names of `Counts.checks`, how each document was held against the
    reference.

    `fields`: sampled rows in order, each with the bytes of its fields; see `Counts.fields`.

    `differences`: row and line of each text whose ids are not the reference's, in order; the run
    stops at the first.

    `unread`: the break behind all records of the block's slice, if there is one. `unread_keys`: of
    the records in the block, by row; None where all keys are read.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    text_bytes: npt.NDArray[np.int64]
    is_val: npt.NDArray[np.bool_]
    drops: dict[str, npt.NDArray[np.int64]]
    rejects: Sequence[Reject]
    lookup: RecordLookup
    input_bytes: int
    stage_s: Mapping[str, float] = field(default_factory=dict)
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
        """Give the number of kept documents."""
        return len(self.rows)

    @property
    def sidecars(self) -> dict[str, npt.NDArray[Any]]:
        """Give what stands beside the tokens, (n_tokens,) each, by the ending of its file."""
        bodies = {"mask": self.mask, "weight": self.loss_weights}
        return {ending: body for ending, body in bodies.items() if body is not None}


@dataclass(frozen=True, slots=True)
class _JoinedLookup:
    """Answers for the rows of several blocks; block i has rows `starts[i]:starts[i + 1]`."""

    lookups: Sequence[RecordLookup]
    starts: npt.NDArray[np.int64]

    def place(self, row: int) -> Place:
        """Give the place of row `row`, counted from the start of its own slice."""
        lookup, own = self._own(row)
        return lookup.place(own)

    def raw(self, row: int) -> bytes:
        """Give the first bytes of row `row`."""
        lookup, own = self._own(row)
        return lookup.raw(own)

    def keys(self, row: int) -> list[str]:
        """Give the top-level keys of row `row`."""
        lookup, own = self._own(row)
        return lookup.keys(own)

    def _own(self, row: int) -> tuple[RecordLookup, int]:
        index = int(np.searchsorted(self.starts, row, "right")) - 1
        return self.lookups[index], row - int(self.starts[index])


def join_records(blocks: Sequence[Records]) -> Records:
    """Give the records of several blocks, at least one, as those of one; without what was refused.

    Their columns are copied, unless there is one block only.
    """
    if len(blocks) == 1:
        return blocks[0]
    lookup = _JoinedLookup([records.lookup for records in blocks], _row_starts(blocks))
    batches = [records.batch for records in blocks]
    return Records(pa.concat_batches(batches), lookup, ())


def split_encoded(
    whole: EncodedBlock,
    refused: Sequence[tuple[int, Reject]],
    blocks: Sequence[Records],
    input_bytes: Sequence[int],
) -> list[EncodedBlock]:
    """Give what each block became; the first gets the seconds of all.

    Args:
        whole: what `joined` blocks became, with no reject yet.
        refused: rows that became no document, in order.
        blocks: the records of each, with what was refused before.
        input_bytes: of each block.
    """
    starts = _row_starts(blocks)
    cuts = np.searchsorted(whole.rows, starts).tolist()
    field_cuts = np.searchsorted([row for row, _ in whole.fields], starts).tolist()
    reject_cuts = np.searchsorted([row for row, _ in refused], starts).tolist()
    parts = []
    for i, records in enumerate(blocks):
        (start, stop), first, last = cuts[i : i + 2], int(starts[i]), int(starts[i + 1])
        rejects = [*records.rejects, *(r for _, r in refused[slice(*reject_cuts[i : i + 2])])]
        offsets = whole.offsets[start : stop + 1]
        tokens = slice(int(offsets[0]), int(offsets[-1]))
        parts.append(
            EncodedBlock(
                whole.tokens[tokens],
                offsets - offsets[0],
                whole.rows[start:stop] - first,
                whole.text_bytes[start:stop],
                whole.is_val[start:stop],
                _drops(whole.drops, first, last),
                sorted(rejects, key=lambda reject: reject.place),
                records.lookup,
                input_bytes[i],
                {} if i else whole.stage_s,
                None if whole.mask is None else whole.mask[tokens],
                None if whole.loss_weights is None else whole.loss_weights[tokens],
                _noticed(whole.counters, start, stop),
                records.unread,
                {name: counts[start:stop] for name, counts in whole.checks.items()},
                _unread_keys(whole.unread_keys, first, last),
                [
                    (row - first, found)
                    for row, found in whole.fields[slice(*field_cuts[i : i + 2])]
                ],
                [(row - first, line) for row, line in whole.differences if first <= row < last],
            )
        )
    return parts


def _unread_keys(found: UnreadKeys | None, first: int, last: int) -> UnreadKeys | None:
    return None if found is None else found._replace(of_row=found.of_row[first:last])


def _noticed(
    counters: Mapping[str, npt.NDArray[np.int64]], start: int, stop: int
) -> dict[str, npt.NDArray[np.int64]]:
    """Return what was noticed about some documents; only what occurs has an entry."""
    found = {name: counts[start:stop] for name, counts in counters.items()}
    return {name: counts for name, counts in found.items() if counts.any()}


def _row_starts(blocks: Sequence[Records]) -> npt.NDArray[np.int64]:
    """Give the first row of each block in the joined batch, and the end: (n + 1,)."""
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
