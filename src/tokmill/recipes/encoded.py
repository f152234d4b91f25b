"""Encoded blocks: what recipes make of blocks of input, and the steps that they share.

Each stage of a recipe costs some milliseconds per call. Small files give blocks of a few KB, so the
records of several blocks are encoded as one batch, and the result is divided again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from tokmill.errors import TokenizerError
from tokmill.offsets import byte_offsets, starts_run
from tokmill.recipes.memory_bounds import BLOCK_COPIES
from tokmill.rendering.where import DROPPED_BY_WHERE
from tokmill.sources.bad_text import REPLACED_CHARACTERS, REPLACED_RECORDS
from tokmill.sources.json_formats import parse_blocks
from tokmill.timing import StageTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.engines.loaded import EngineMemory
    from tokmill.rendering.where import RecordFilter
    from tokmill.sources.formats import Block
    from tokmill.timing import StageSeconds
    from tokmill.values import Records, Reject, TokenBatch, UnreadInput, UnreadKeys

    Encode = Callable[[Records, StageTimer], tuple["EncodedBlock", Mapping[int, Reject]]]


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """An encoded block: its n documents in order, and its dropped and rejected records.

    `tokens`: (n_tokens,) of the shard's dtype, with bos and eos. `offsets`: (n + 1,) int64.
    `rows`, `text_bytes`, `is_val`: (n,): row of the record, bytes of the document, whether it is
    validation. `rows` does not decrease; a record with several samples has its row as many times.
    `places`: (n, 2) int64, the line and the byte of the record in its slice; (0, 2) if the
    slice has no records, but tokens. `drops`: rows by
    reason, not decreasing. `lost`: by reason (k, 2) int64, row and tokens of what a length rule
    dropped or cut off. `rejects`: in order of place; a rejected record has no documents and no
    drops. `stage_s`: seconds by stage; of blocks processed at once, the first has those of all.

    `sidecars`: by ending, with a value for every token: `mask`, uint8, 1 if it is a target;
    `weight`, float32, 0 where the mask is 0; none for pretraining, and weights only if they are
    kept. `counters`: (n,) int64 by name. They are kept per document, as a sum of the block would
    depend on where blocks are cut.

    `unread`: a break after all records of the block's slice, if there is one. `checks`: (n,) int64
    by the names of `Counts.checks`. `unread_keys`: by row; None where all keys are read. `fields`:
    sampled rows in order, each with the bytes of its fields, see `Counts.fields`. `differences`:
    for each text whose ids are not the reference's, in order, its record's line in its slice, and a
    message; the run stops at the first. `metadata`: n rows of the fields that are kept, see
    `Records`; None if none is. `renderers`: of each file, if each has its own: a name for
    each block that was encoded. `named`: (n_records,) bool by label: which records have what a
    setting names, see `recipes.named`.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    text_bytes: npt.NDArray[np.int64]
    is_val: npt.NDArray[np.bool_]
    drops: dict[str, npt.NDArray[np.int64]]
    lost: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    places: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    rejects: Sequence[Reject] = ()
    input_bytes: int = 0
    stage_s: Mapping[str, StageSeconds] = field(default_factory=dict)
    sidecars: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    counters: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    unread: UnreadInput | None = None
    checks: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    unread_keys: UnreadKeys | None = None
    fields: Sequence[tuple[int, Mapping[str, int]]] = field(default_factory=list)
    differences: Sequence[tuple[int, str]] = ()
    metadata: pa.RecordBatch | None = None
    renderers: Sequence[str] = ()
    named: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def n_documents(self) -> int:
        """Return the number of documents."""
        return len(self.rows)

    @property
    def has_places(self) -> bool:
        """Return whether it is known where the records of the documents stand."""
        return len(self.places) == len(self.rows)

    @property
    def n_records(self) -> int:
        """Return the number of records: those with documents or drops, and the rejected ones."""
        outcomes = np.bincount(np.concatenate([self.rows, *self.drops.values()]))
        return int(np.count_nonzero(outcomes)) + len(self.rejects)


def process_blocks(
    blocks: Sequence[Block], memory: EngineMemory, encode: Encode
) -> list[EncodedBlock]:
    """Return the result of each block, at least one; blocks do not influence each other.

    `encode` returns the documents of records, and the rejects of other records by row; `places` are
    not set, and `differences` have rows. The bytes of the blocks do not count as `memory` of the
    engines.
    """
    with memory.holding(BLOCK_COPIES * sum(block.n_bytes for block in blocks)):
        timer = StageTimer()
        records = parse_blocks(blocks)
        timer.end("parse")
        encoded, refused = encode(records, timer)
        encoded = replace(encoded, counters={**encoded.counters, **_replaced(records, encoded)})
        first = first_reject = 0
        results = []
        for number, (block, end) in enumerate(zip(blocks, records.ends, strict=True)):
            rows = range(first, end.n_rows)
            rejects = [refused[row] for row in rows if row in refused] if refused else []
            of_block = encoded if len(blocks) == 1 else _part_of(encoded, rows)
            places = records.places[first : end.n_rows]
            read = records.rejects[first_reject : end.n_rejects]
            metadata = records.metadata and records.metadata.take(of_block.rows + first)
            results.append(
                replace(
                    of_block,
                    places=places[of_block.rows],
                    differences=[(int(places[row, 0]), told) for row, told in of_block.differences],
                    rejects=sorted((*read, *rejects), key=lambda reject: reject.place),
                    unread=end.unread,
                    input_bytes=block.input_bytes,
                    metadata=metadata,
                    renderers=encoded.renderers[number : number + 1],
                )
            )
            first, first_reject, _ = end
        timer.end("narrow")
        results[0] = replace(results[0], stage_s=timer.seconds)
        return results


def encode_kept(
    records: Records, keep: RecordFilter | None, encode: Encode, timer: StageTimer
) -> tuple[EncodedBlock, Mapping[int, Reject]]:
    """Return what `encode` makes of the records that a filter keeps, with rows of all records."""
    if keep is None:
        return encode(records, timer)
    kept = keep(records)
    timer.end("where")
    encoded, refused = encode(kept.records, timer)
    rows, n_records = kept.rows, records.batch.num_rows
    drops = {reason: rows[dropped] for reason, dropped in encoded.drops.items()}
    if len(kept.dropped):
        drops[DROPPED_BY_WHERE] = kept.dropped
    lost = {}
    for reason, losses in encoded.lost.items():
        lost[reason] = np.stack([rows[losses[:, 0]], losses[:, 1]], axis=1)
    named = {}
    for label, is_there in encoded.named.items():
        named[label] = np.zeros(n_records, bool)
        named[label][rows] = is_there
    unread_keys = encoded.unread_keys
    if unread_keys is not None:
        of_row = np.full(n_records, -1, np.int32)
        of_row[rows] = unread_keys.of_row
        unread_keys = unread_keys._replace(of_row=of_row)
    encoded = replace(
        encoded,
        rows=rows[encoded.rows],
        drops=drops,
        lost=lost,
        fields=[(int(rows[row]), counts) for row, counts in encoded.fields],
        named=named,
        unread_keys=unread_keys,
        differences=[(int(rows[row]), told) for row, told in encoded.differences],
    )
    refused_by_row = {int(rows[row]): reject for row, reject in refused.items()}
    return encoded, {**refused_by_row, **kept.refused}


def _replaced(records: Records, encoded: EncodedBlock) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return the counters of what was no text, (n,) by name; the first document of a record has it.

    Nothing if all was text.
    """
    if not any(records.replaced.values()):
        return {}
    n_replaced = np.zeros(records.batch.num_rows, np.int64)
    n_replaced[list(records.replaced)] = list(records.replaced.values())
    of_document = n_replaced[encoded.rows] * starts_run(encoded.rows)
    return {
        REPLACED_CHARACTERS: of_document,
        REPLACED_RECORDS: (of_document > 0).astype(np.int64),
    }


def _part_of(joined: EncodedBlock, rows: range) -> EncodedBlock:
    """Return the result of one block, whose records have these rows, of that of joined blocks.

    Its rejects, and what is known of the whole block only, are not set.
    """
    start, stop = np.searchsorted(joined.rows, (rows.start, rows.stop)).tolist()
    offsets = joined.offsets[start : stop + 1]
    tokens = slice(int(offsets[0]), int(offsets[-1]))
    drops, lost = {}, {}
    for reason, dropped in joined.drops.items():
        own = dropped[slice(*np.searchsorted(dropped, (rows.start, rows.stop)))]
        if len(own):
            drops[reason] = own - rows.start
    for reason, losses in joined.lost.items():
        own = losses[(losses[:, 0] >= rows.start) & (losses[:, 0] < rows.stop)]
        if len(own):
            lost[reason] = own - (rows.start, 0)
    unread_keys = joined.unread_keys
    if unread_keys is not None:
        unread_keys = unread_keys._replace(of_row=unread_keys.of_row[rows.start : rows.stop])
    return replace(
        joined,
        tokens=joined.tokens[tokens],
        offsets=offsets - offsets[0],
        rows=joined.rows[start:stop] - rows.start,
        text_bytes=joined.text_bytes[start:stop],
        is_val=joined.is_val[start:stop],
        drops=drops,
        lost=lost,
        sidecars={ending: body[tokens] for ending, body in joined.sidecars.items()},
        counters={k: n[start:stop] for k, n in joined.counters.items() if n[start:stop].any()},
        checks={name: n[start:stop] for name, n in joined.checks.items()},
        unread_keys=unread_keys,
        fields=[(row - rows.start, counts) for row, counts in joined.fields if row in rows],
        named={label: is_there[rows.start : rows.stop] for label, is_there in joined.named.items()},
        differences=[(row - rows.start, line) for row, line in joined.differences if row in rows],
    )


def add_bos_eos(
    batch: TokenBatch, eos_id: int, bos_id: int | None, dtype: np.dtype[np.unsignedinteger]
) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
    """Return tokens of `dtype` with eos after every document, and bos before it if there is one.

    Documents `7 8` and `9` with eos 2 become tokens `7 8 2 9 2`, offsets `0 3 5`.

    Raises:
        TokenizerError: an id does not fit the dtype.
    """
    _check_fits(max(eos_id, bos_id or 0, int(batch.ids.max(initial=0))), dtype)
    n_added = 1 if bos_id is None else 2
    offsets = batch.offsets + n_added * np.arange(len(batch.offsets), dtype=np.int64)
    tokens = np.empty(int(offsets[-1]), dtype)
    is_text = np.ones(len(tokens), bool)
    is_text[offsets[1:] - 1] = False
    if bos_id is not None:
        is_text[offsets[:-1]] = False
    tokens[is_text] = batch.ids
    tokens[offsets[1:] - 1] = eos_id
    if bos_id is not None:
        tokens[offsets[:-1]] = bos_id
    return tokens, offsets


def narrow_ids(
    ids: npt.NDArray[np.uint32], dtype: np.dtype[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """Return ids in the dtype of a shard.

    Raises:
        TokenizerError: an id does not fit the dtype.
    """
    _check_fits(int(ids.max(initial=0)), dtype)
    return ids.astype(dtype)


def _check_fits(largest: int, dtype: np.dtype[np.unsignedinteger]) -> None:
    """Raise `TokenizerError` for ids that NumPy would wrap without a word."""
    if largest > np.iinfo(dtype).max:
        raise TokenizerError(f"token id {largest} does not fit {dtype.name}")


def validation_documents(
    text: pa.LargeStringArray, fraction: float, offsets: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which documents are validation: (n,) bool.

    A document is validation if the xxh3-64 hash (seed 0) of its UTF-8 bytes, divided by 2^64, is
    below `fraction`. `offsets`: (n + 1,), its bytes in the column; None: a document for each text.
    """
    if offsets is None:
        offsets = byte_offsets(text)
    n_texts = len(offsets) - 1
    if fraction <= 0:
        return np.zeros(n_texts, bool)
    data = memoryview(text.buffers()[2] or b"")
    threshold = int(fraction * (1 << 64))
    hashes = (xxhash.xxh3_64_intdigest(data[i:j]) for i, j in pairwise(offsets.tolist()))
    return np.fromiter((hash_ < threshold for hash_ in hashes), bool, n_texts)
