"""The recipe of an import of rows: records that hold ids; no text is rendered or encoded.

Rows without labels and masks are documents, and end with eos. Rows with them are chats: a sample
without a trained token is dropped. A row that contradicts itself is a reject.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.counts import TOO_LONG, UNTRAINED
from tokmill.engines.loaded import EngineMemory
from tokmill.offsets import offsets_of
from tokmill.recipes.encoded import EncodedBlock, process_blocks
from tokmill.recipes.row_samples import samples_of
from tokmill.recipes.tokens import ADDED_EOS, EMPTY, UNTRAINED_FIRST
from tokmill.sources.token_files import checked_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokmill.recipes.row_samples import RowSamples
    from tokmill.recipes.spec import RunSpec
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import Slice
    from tokmill.timing import StageTimer
    from tokmill.values import Records, Reject

    Flags = npt.NDArray[np.bool_]

CUT_PADDING = "tokens of padding left out"
"""A counter of a part."""


@dataclass(frozen=True, slots=True)
class SplitBlock:
    """A block of rows, and whether its file is of the val split."""

    block: Block
    is_val: bool

    @property
    def n_bytes(self) -> int:
        """Return the memory that the block takes."""
        return self.block.n_bytes


class RowRecipe:
    """Makes samples of the columns of rows, and checks their ids."""

    def __init__(self, spec: RunSpec) -> None:
        if spec.rows is None:
            raise ValueError("no import of rows")
        self._rules = spec.rows
        self.schema = spec.rows.schema()
        self._val = frozenset(spec.rows.val)
        self._n_ids, self._eos_id = spec.tokenizer.vocab_size, spec.tokenizer.eos.id
        self._has_weights = bool(spec.rows.weights)
        sft = spec.config.sft
        self._packing = 0 if sft is None else sft.packing
        self.dtype = np.dtype(spec.config.output.dtype).newbyteorder("<")
        self._memory = EngineMemory(0)  # there is no engine

    def read_by(self, spec: RunSpec) -> None:
        """Change nothing: all files of an import are read in one way."""

    def blocks_of(self, piece: Slice, blocks: Iterator[Block]) -> Iterator[SplitBlock]:
        """Yield the blocks of a slice with its split.

        Raises:
            VerifyError: its file stands in the list of an export, and has another sum.
        """
        path = Path(piece.file.path)
        if piece.start == 0 and path.is_file():  # once for each file
            checked_files([path]).check([path])
        is_val = piece.file.path in self._val
        for block in blocks:
            yield SplitBlock(block, is_val)

    def process(self, blocks: Sequence[Any]) -> list[EncodedBlock]:
        """Return the documents of each `SplitBlock`; blocks do not influence each other."""
        encoded = process_blocks([block.block for block in blocks], self._memory, self._encode)
        return [
            replace(one, is_val=np.full(one.n_documents, block.is_val))
            for one, block in zip(encoded, blocks, strict=True)
        ]

    def _encode(
        self, records: Records, timer: StageTimer
    ) -> tuple[EncodedBlock, dict[int, Reject]]:
        """Return the documents of records, and the rejects by row of those that have none."""
        samples = samples_of(records.batch, self._rules)
        refused = dict(samples.refused)
        self._check_ids(samples, refused)
        lacks_eos = np.zeros(len(samples.rows), bool)
        if not self._rules.are_chats:
            lacks_eos = self._lack_eos(samples, refused)
        is_good = np.ones(len(samples.rows), bool)
        if refused:
            is_good = ~np.isin(samples.rows, list(refused))
        is_trained = _are_trained(samples)
        drops = {}
        is_empty = np.bincount(samples.rows, minlength=samples.n_rows) == 0
        is_empty[list(refused)] = False
        if is_empty.any():
            drops[EMPTY] = np.flatnonzero(is_empty)
        if not is_trained.all():
            drops[UNTRAINED] = samples.rows[is_good & ~is_trained]
        is_kept = is_good & is_trained
        is_long = is_kept & (samples.lengths > self._packing) & bool(self._packing)
        lost = {}
        if is_long.any():
            drops[TOO_LONG] = samples.rows[is_long]
            lost[TOO_LONG] = np.stack([samples.rows, samples.lengths], axis=1)[is_long]
        block = replace(self._block(samples, is_kept & ~is_long, lacks_eos, drops), lost=lost)
        timer.end("narrow")
        return block, {row: records.reject(row, *why) for row, why in refused.items()}

    def _block(
        self,
        samples: RowSamples,
        keep: Flags,
        lacks_eos: Flags,
        drops: dict[str, npt.NDArray[np.int64]],
    ) -> EncodedBlock:
        """Return the samples that are kept; eos is added to those that lack it."""
        ids, lengths, weights = samples.ids, samples.lengths, samples.weights
        if not keep.all():
            is_token = np.repeat(keep, lengths)
            ids, lengths, lacks_eos = ids[is_token], lengths[keep], lacks_eos[keep]
            weights = None if weights is None else weights[is_token]
        tokens = ids.astype(self.dtype)
        if lacks_eos.any():
            ends = np.cumsum(lengths)[lacks_eos]
            tokens = np.insert(tokens, ends, self.dtype.type(self._eos_id))
            lengths = lengths + lacks_eos
        sidecars: dict[str, npt.NDArray[Any]] = {}
        if weights is not None:
            sidecars["mask"] = (weights > 0).astype(np.uint8)
        if weights is not None and self._has_weights:
            sidecars["weight"] = weights.astype(np.float32)
        counters = {
            ADDED_EOS: lacks_eos,
            UNTRAINED_FIRST: samples.began_trained[keep],
            CUT_PADDING: samples.padding[keep],
        }
        return EncodedBlock(
            tokens=tokens,
            offsets=offsets_of(lengths),
            rows=samples.rows[keep],
            text_bytes=np.zeros(len(lengths), np.int64),
            is_val=np.zeros(len(lengths), bool),
            drops=drops,
            sidecars=sidecars,
            counters={name: n.astype(np.int64) for name, n in counters.items() if n.any()},
        )

    def _check_ids(self, samples: RowSamples, refused: dict[int, tuple[str, str]]) -> None:
        """Refuse the rows of ids that are not the tokenizer's."""
        ids = samples.ids
        if not len(ids) or (ids.min() >= 0 and ids.max() < self._n_ids):
            return
        bad = np.flatnonzero((ids < 0) | (ids >= self._n_ids))
        ends = np.cumsum(samples.lengths)
        rows = samples.rows[np.searchsorted(ends, bad, "right")]
        for row, first in zip(*np.unique(rows, return_index=True), strict=True):
            message = (
                f"id {ids[bad[first]]}, and the tokenizer has ids from 0 to {self._n_ids - 1:,}: "
                "name the tokenizer that made these tokens"
            )
            refused.setdefault(int(row), ("id of no token", message))

    def _lack_eos(self, samples: RowSamples, refused: dict[int, tuple[str, str]]) -> Flags:
        """Return which documents do not end with eos; refuse their rows, if none is to be added."""
        lacks_eos: Flags = samples.ids[np.cumsum(samples.lengths) - 1] != self._eos_id
        if not self._rules.adds_eos:
            message = (
                f"a document does not end with eos {self._eos_id}: --add-eos adds it, or name the "
                "right one with --eos-token"
            )
            for row in samples.rows[lacks_eos].tolist():
                refused.setdefault(row, ("no eos", message))
        return lacks_eos


def _are_trained(samples: RowSamples) -> Flags:
    """Return which samples train a token: (n,)."""
    if samples.weights is None or not len(samples.rows):
        return np.ones(len(samples.rows), bool)
    starts = np.cumsum(samples.lengths) - samples.lengths
    is_trained: Flags = np.maximum.reduceat(samples.weights, starts) > 0
    return is_trained
