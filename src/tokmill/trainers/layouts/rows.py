"""Rows of a split for trainers that read rows: one for each document, or one for each pack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tokmill.dataset.packs import PackReader, Packs, pack, sample_lengths
from tokmill.errors import UsageError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

BATCH_TOKENS = 1 << 18
"""Tokens that are read at a time, about; a longer row is read alone."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows, end to end.

    `ids`: (n_tokens,) uint16 or uint32. `mask`: (n_tokens,) uint8, 1 for a target; None for
    pretraining. `row_offsets`: (n_rows + 1,) int64, the tokens where rows begin and end.
    `sample_lengths`: (n_samples,) int64 in tokens. `row_samples`: (n_rows + 1,) int64: row r has
    the samples `row_samples[r]:row_samples[r + 1]`. `weights`: (n_tokens,) float32, of rows that
    are documents of a dataset with weights.
    """

    ids: npt.NDArray[np.unsignedinteger]
    mask: npt.NDArray[np.uint8] | None
    row_offsets: npt.NDArray[np.int64]
    sample_lengths: npt.NDArray[np.int64]
    row_samples: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None = None

    @property
    def sample_starts(self) -> npt.NDArray[np.int64]:
        """Return the token where each sample begins: (n_samples,)."""
        return np.cumsum(self.sample_lengths) - self.sample_lengths


class Rows(Protocol):
    """The rows of a split, numbered from 0.

    Attributes:
        split: `train` or `val`.
        n_rows: rows.
        n_samples: documents in all rows.
        n_tokens: tokens in all rows.
    """

    split: str
    n_rows: int
    n_samples: int
    n_tokens: int

    @property
    def packs(self) -> Packs | None:
        """Return the pack index of rows that are packs, else None."""

    def cuts(self, n_parts: int) -> npt.NDArray[np.int64]:
        """Return the rows where parts of about equal size begin, and `n_rows`; no part is empty."""

    def batches(self, start: int, stop: int) -> Iterator[RowBatch]:
        """Yield rows start:stop in order, about `BATCH_TOKENS` tokens at a time."""


class DocumentRows:
    """One row for each document; see `Rows`. Memory: the index of one shard, and one batch."""

    packs = None

    def __init__(self, source: ExportSource, split: str) -> None:
        self.split = split
        self.n_rows = self.n_samples = len(source.documents(split))
        self.n_tokens = source.n_tokens(split)
        self._source = source

    def cuts(self, n_parts: int) -> npt.NDArray[np.int64]:
        """Return the rows where parts begin; see `Rows`."""
        wanted = np.linspace(0, self.n_tokens, n_parts + 1).astype(np.int64)
        found, n_tokens, n_rows = [np.zeros(1, np.int64)], 0, 0
        for shard in self._source.shards(self.split):
            stops = n_tokens + np.cumsum(shard.lengths, dtype=np.int64)
            here = wanted[(wanted > n_tokens) & (wanted <= stops[-1])]
            found.append(n_rows + 1 + np.searchsorted(stops, here))
            n_tokens, n_rows = int(stops[-1]), n_rows + len(stops)
        return np.unique(np.concatenate(found))

    def batches(self, start: int, stop: int) -> Iterator[RowBatch]:
        """Yield rows start:stop; see `Rows`."""
        first = 0
        for shard in self._source.shards(self.split):
            count = len(shard.lengths)
            here = range(max(start, first) - first, min(stop, first + count) - first)
            first += count
            if not len(here):
                continue
            offsets = shard.offsets // shard.tokens.itemsize
            stops = offsets + shard.lengths
            row = here.start
            while row < here.stop:
                last = int(np.searchsorted(stops, offsets[row] + BATCH_TOKENS, "right"))
                last = min(max(last, row + 1), here.stop)
                span = slice(int(offsets[row]), int(stops[last - 1]))
                lengths = shard.lengths[row:last].astype(np.int64)
                yield RowBatch(
                    shard.tokens[span],
                    None if shard.mask is None else shard.mask[span],
                    _sums(lengths),
                    lengths,
                    np.arange(len(lengths) + 1),
                    None if shard.weights is None else shard.weights[span],
                )
                row = last


class PackedRows:
    """One row for each pack; see `Rows`. Memory: 24 bytes for each sample, and one batch."""

    def __init__(self, source: ExportSource, split: str, packs: Packs) -> None:
        self.packs: Packs = packs
        lengths = sample_lengths(source.directory, source.entries(split), split)
        offsets = np.asarray(packs.row_offsets)
        sizes = np.add.reduceat(lengths[packs.samples], offsets[:-1], dtype=np.int64)
        self.split = split
        self.n_rows, self.n_samples = packs.n_rows, len(lengths)
        self.n_tokens = int(lengths.sum(dtype=np.int64))
        self._lengths, self._sizes = lengths, sizes
        self._reader = PackReader(source.documents(split), packs, int(sizes.max()), 0)

    def cuts(self, n_parts: int) -> npt.NDArray[np.int64]:
        """Return the rows where parts begin; see `Rows`."""
        return np.unique(np.linspace(0, self.n_rows, n_parts + 1).astype(np.int64))

    def batches(self, start: int, stop: int) -> Iterator[RowBatch]:
        """Yield rows start:stop; see `Rows`."""
        n_rows = max(1, BATCH_TOKENS // self._reader.capacity)
        for first in range(start, stop, n_rows):
            last = min(first + n_rows, stop)
            bodies, sizes = self._reader.rows(first, last), self._sizes[first:last]
            real = np.arange(self._reader.capacity) < sizes[:, None]
            ids = bodies["bin"].reshape(real.shape)[real]
            mask = bodies["mask"].reshape(real.shape)[real] if "mask" in bodies else None
            offsets = np.asarray(self.packs.row_offsets[first : last + 1])
            samples = self.packs.samples[offsets[0] : offsets[-1]]
            lengths = self._lengths[samples].astype(np.int64)
            yield RowBatch(ids, mask, _sums(sizes), lengths, offsets - offsets[0])


def _sums(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    sums = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=sums[1:])
    return sums


def rows_of(source: ExportSource, split: str, options: ExportOptions) -> Rows:
    """Return the rows of a split: its packs or new ones if `options` says so, else its documents.

    Raises:
        UsageError: a document is longer than a pack, or packs are asked for of pretraining data.
    """
    check_packing(source, options)
    if options.packing:
        return PackedRows(source, split, new_packs(source, split, options.packing))
    if split in source.packs and not options.unpacked:
        return PackedRows(source, split, source.packs[split])
    return DocumentRows(source, split)


def check_packing(source: ExportSource, options: ExportOptions) -> None:
    """Check that the options of packing go together; raises `UsageError`."""
    if options.packing and source.kind != "sft":
        raise UsageError(
            "--packing puts whole chats into rows, and this dataset has documents of any length: "
            "leave it out; the trainer cuts documents into rows"
        )
    if options.unpacked and source.kind != "sft":
        raise UsageError("--unpacked is for packed chats, and this dataset has text: leave it out")
    if options.packing and options.unpacked:
        raise UsageError("--packing and --unpacked exclude each other: leave one out")


def new_packs(source: ExportSource, split: str, capacity: int) -> Packs:
    """Return new packs of whole samples, at most `capacity` tokens each; see `dataset.packs`.

    Raises:
        UsageError: a sample is longer.
    """
    lengths = sample_lengths(source.directory, source.entries(split), split)
    return packed(lengths, capacity, source)


def packed(lengths: npt.NDArray[np.integer], capacity: int, source: ExportSource) -> Packs:
    """Return packs of samples of (n,) lengths; raises `UsageError` if one is longer than a row."""
    if lengths.max() > capacity:
        raise UsageError(
            f"{source.directory}: a sample of {plural(int(lengths.max()), 'token')} fits in no row "
            f"of {capacity:,}: make the rows longer (--packing), or the samples shorter "
            "(tokmill sft --max-tokens)"
        )
    return pack(lengths, capacity)
