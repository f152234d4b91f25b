"""Write the documents of one file of tokens as a part of a dataset: shards, and their record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import shard_stem
from tokmill.dataset.part_record import PartRecord
from tokmill.dataset.writer import ShardEntry, ShardWriter
from tokmill.errors import TokenizerError, VerifyError
from tokmill.masks.truncation import UNTRAINED
from tokmill.trainers.importing.blocks import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.trainers.importing.blocks import TokenFile

EMPTY = "no token"
"""Reason of a drop: a document without tokens."""

ADDED_EOS, UNTRAINED_FIRST = "eos added", "first token of a sample no longer trained"
"""Counters of a part: documents that got an eos, and samples whose mask began with 1."""

_BINS = 64


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for the documents and shards of a part.

    `vocab_size`: ids are below it. `eos_id`: every document ends with it. `adds_eos`: it is added
    where it is missing, else that is an error. `dtype`: of the dataset. `shard_tokens`: most tokens
    of a shard, but for a longer document. `algorithm`: of the checksums.
    """

    vocab_size: int
    eos_id: int
    adds_eos: bool
    dtype: np.dtype[np.unsignedinteger]
    shard_tokens: int
    algorithm: str


@dataclass(slots=True)
class PartImport:
    """Writes one file of tokens; `ends_by_eos`: its tail may lack the eos that ends a document."""

    directory: Path
    number: int
    file: TokenFile
    rules: Rules
    ends_by_eos: bool
    counters: Counter[str] = field(default_factory=Counter)
    _shards: list[ShardEntry] = field(default_factory=list)
    _shard: ShardWriter | None = None
    _counts: Counts = field(default_factory=Counts)
    _histogram: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    _n_open: int = 0
    _n_before: int = 0
    _n_documents: int = 0

    def write(self, blocks: Iterable[Block], fingerprint: str) -> PartRecord:
        """Write all blocks; return the part's record, which is not on disk yet.

        Raises:
            TokenizerError: an id is not of the tokenizer, or its eos cannot be one of the ids.
            VerifyError: a document does not end with eos.
            StorageError: the files cannot be written.
        """
        self._check_eos()
        try:
            samples = blocks if self.file.mask is None else whole_documents(blocks)
            for block in samples:
                self._add(block)
            self._end()
        except BaseException:
            if self._shard is not None:
                self._shard.discard()
            raise
        used = len(np.trim_zeros(self._histogram, "b"))
        histogram = tuple(int(n) for n in self._histogram[:used])
        shards = tuple(self._shards)
        return PartRecord(self.number, fingerprint, shards, None, {0: self._counts}, histogram)

    def _check_eos(self) -> None:
        """Check that the ids of the dataset are wide enough for the eos that documents end with."""
        dtype, eos_id = self.rules.dtype, self.rules.eos_id
        is_written = self.file.mask is None or self.rules.adds_eos
        if is_written and eos_id > np.iinfo(dtype).max:
            raise TokenizerError(
                f"{self.file.path}: its ids are {dtype.name}, and the tokenizer's eos is "
                f"{eos_id:,}: name the tokenizer that made these tokens"
            )

    def _add(self, block: Block) -> None:
        self._check_ids(block.tokens)
        tokens = block.tokens.astype(self.rules.dtype)
        ends, mask = self._without_empty(block.ends), block.mask
        if mask is not None:
            tokens, ends, mask = self._trained(tokens, ends, mask)
        tokens, ends, mask = self._with_eos(tokens, ends, mask)
        start, i = 0, 0
        while True:
            shard = self._open_shard()
            room = self.rules.shard_tokens - shard.n_tokens
            if len(tokens) - start <= room:
                break
            k = int(np.searchsorted(ends, start + room, side="right"))
            if k <= i and not self._n_open and shard.n_documents:
                self._end_shard()
                continue
            k = max(k, i + 1)
            if k > len(ends):
                break
            self._append(
                tokens[start : ends[k - 1]], ends[i:k] - start, _part(mask, start, ends[k - 1])
            )
            start, i = int(ends[k - 1]), k
            if start == len(tokens):
                break
            self._end_shard()
        self._append(tokens[start:], ends[i:] - start, _part(mask, start, len(tokens)))
        self._n_before += len(block.tokens)

    def _check_ids(self, tokens: npt.NDArray[np.generic]) -> None:
        if not len(tokens):
            return
        for found, place in ((tokens.min(), tokens.argmin()), (tokens.max(), tokens.argmax())):
            if not 0 <= int(found) < self.rules.vocab_size:
                raise TokenizerError(
                    f"{self.file.path}: token {self._n_before + int(place):,} is {int(found)}, and "
                    f"the tokenizer has ids from 0 to {self.rules.vocab_size - 1:,}: name the "
                    "tokenizer that made these tokens"
                )

    def _without_empty(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the ends of documents that have tokens; count the others."""
        before = -1 if self._n_open else 0
        kept = ends[np.diff(ends, prepend=before) > 0]
        if len(kept) < len(ends):
            self._counts.drops[EMPTY] += len(ends) - len(kept)
        return kept

    def _trained(
        self,
        tokens: npt.NDArray[np.unsignedinteger],
        ends: npt.NDArray[np.int64],
        mask: npt.NDArray[np.uint8],
    ) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """Return the samples that train a token; the first token of a sample is no target."""
        mask = mask.copy()
        if not len(ends):
            return tokens, ends, mask
        starts = np.concatenate([[0], ends[:-1]])
        self.counters[UNTRAINED_FIRST] += int(mask[starts].sum())
        mask[starts] = 0
        is_kept = np.maximum.reduceat(mask, starts) > 0
        if is_kept.all():
            return tokens, ends, mask
        self._counts.drops[UNTRAINED] += int((~is_kept).sum())
        lengths = ends - starts
        chosen = np.repeat(is_kept, lengths)
        return tokens[chosen], np.cumsum(lengths[is_kept]), mask[chosen]

    def _with_eos(
        self,
        tokens: npt.NDArray[np.unsignedinteger],
        ends: npt.NDArray[np.int64],
        mask: npt.NDArray[np.uint8] | None,
    ) -> tuple[
        npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64], npt.NDArray[np.uint8] | None
    ]:
        """Return documents of pretraining with eos at their ends; samples may end otherwise."""
        if mask is not None or not len(ends):
            return tokens, ends, mask
        missing = tokens[np.maximum(ends - 1, 0)] != self.rules.eos_id
        n_missing = int(missing.sum())
        if not n_missing:
            return tokens, ends, mask
        if not self.rules.adds_eos:
            at = self._n_documents + int(np.flatnonzero(missing)[0])
            raise VerifyError(
                f"{self.file.path}: document {at:,} does not end with eos {self.rules.eos_id}: "
                "--add-eos adds it, or name the right one with --eos-token"
            )
        self.counters[ADDED_EOS] += n_missing
        eos = self.rules.dtype.type(self.rules.eos_id)
        return np.insert(tokens, ends[missing], eos), ends + np.cumsum(missing), mask

    def _open_shard(self) -> ShardWriter:
        if self._shard is None:
            stem = shard_stem(self.file.split, self.number, len(self._shards))
            sidecars = ("mask",) if self.file.mask is not None else ()
            self._shard = ShardWriter(
                self.directory, self.file.split, stem, self.rules.dtype, sidecars,
                algorithm=self.rules.algorithm,
            )  # fmt: skip
        return self._shard

    def _append(
        self,
        tokens: npt.NDArray[np.unsignedinteger],
        ends: npt.NDArray[np.int64],
        mask: npt.NDArray[np.uint8] | None,
    ) -> None:
        """Add tokens, and documents that end among them; an open document goes on."""
        if not len(tokens):
            return
        lengths = np.diff(ends, prepend=0)
        if len(lengths):
            lengths[0] += self._n_open
            exponents = np.frexp(lengths.astype(np.float64))[1] - 1
            self._histogram += np.bincount(exponents, minlength=_BINS)
            self._n_open = len(tokens) - int(ends[-1])
        else:
            self._n_open += len(tokens)
        self._open_shard().append(tokens, lengths, {} if mask is None else {"mask": mask})
        self._counts.documents += len(lengths)
        self._n_documents += len(lengths)
        self._counts.tokens += len(tokens)
        self._counts.trained_tokens += 0 if mask is None else int(mask.sum())

    def _end(self) -> None:
        if self._n_open:
            if not self.ends_by_eos:
                raise VerifyError(f"{self.file.path}: has tokens behind the last document")
            self.counters[ADDED_EOS] += 1
            eos = np.array([self.rules.eos_id], self.rules.dtype)
            self._append(eos, np.array([1], np.int64), None)
        self._counts.input_bytes = self.file.n_bytes
        self._counts.counters.update({k: n for k, n in self.counters.items() if n})
        self._end_shard()
        self._counts.records = self._counts.documents + sum(self._counts.drops.values())

    def _end_shard(self) -> None:
        if self._shard is not None and self._shard.n_tokens:
            self._shards.append(self._shard.commit())
        elif self._shard is not None:
            self._shard.discard()
        self._shard = None


def _part(
    mask: npt.NDArray[np.uint8] | None, start: int, stop: int
) -> npt.NDArray[np.uint8] | None:
    return None if mask is None else mask[start:stop]


def whole_documents(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks that end with a document; memory grows with the longest document only."""
    rest: Block | None = None
    for block in blocks:
        joined = block if rest is None else _behind(rest, block)
        stop = int(joined.ends[-1]) if len(joined.ends) else 0
        if stop:
            yield Block(joined.tokens[:stop], joined.ends, _part(joined.mask, 0, stop))
        after = _part(joined.mask, stop, len(joined.tokens))
        rest = Block(joined.tokens[stop:], np.empty(0, np.int64), after)
    if rest is not None and len(rest.tokens):
        yield rest


def _behind(first: Block, second: Block) -> Block:
    mask = None
    if first.mask is not None and second.mask is not None:
        mask = np.concatenate([first.mask, second.mask])
    tokens = np.concatenate([first.tokens, second.tokens])
    return Block(tokens, second.ends + len(first.tokens), mask)
