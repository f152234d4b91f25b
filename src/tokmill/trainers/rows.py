"""Rows of a split for trainers that read rows, and their comparison with what a trainer read.

A row is a document, or a pack. In packs of documents that were cut, a sample is a piece. Its first
token is no target, since what comes before it stands in another row, or is another document.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.packing import Packs, pack
from tokmill.dataset.packs import PackReader, sample_lengths
from tokmill.dataset.sidecars import METADATA, read_metadata
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.trainer import Checked
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

BATCH_TOKENS = 1 << 18
"""Tokens that are read at a time, about; a longer row is read alone."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows, end to end.

    `ids`: (n_tokens,) uint16 or uint32. `mask`: (n_tokens,) uint8, 1 for a target; None for whole
    documents of pretraining. `row_offsets`: (n_rows + 1,) int64, the tokens where rows begin, end.
    `sample_lengths`: (n_samples,) int64 in tokens. `row_samples`: (n_rows + 1,) int64: row r has
    the samples `row_samples[r]:row_samples[r + 1]`. `weights`: (n_tokens,) float32, of a dataset
    with weights. `metadata`: a row for each, with the columns `keep`.
    """

    ids: npt.NDArray[np.unsignedinteger]
    mask: npt.NDArray[np.uint8] | None
    row_offsets: npt.NDArray[np.int64]
    sample_lengths: npt.NDArray[np.int64]
    row_samples: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None = None
    metadata: pa.Table | None = None

    @property
    def sample_starts(self) -> npt.NDArray[np.int64]:
        """Return the token where each sample begins: (n_samples,)."""
        return np.cumsum(self.sample_lengths) - self.sample_lengths

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Return the place of each token in its sample: (n_tokens,)."""
        return np.arange(len(self.ids)) - np.repeat(self.sample_starts, self.sample_lengths)


class DocumentRows:
    """The rows of a split, numbered from 0: one for each document.

    Memory: the index of one shard, and one batch.

    Attributes:
        packs: the pack index of rows that are packs, else None.
        split: `train` or `val`.
        n_rows: rows.
        n_samples: documents, or pieces, in all rows.
        n_tokens: tokens of the dataset in all rows.
        n_stored: tokens in all rows, with padding.
        keep: metadata columns that batches have.
    """

    packs = None

    def __init__(self, source: ExportSource, split: str, keep: Sequence[str] = ()) -> None:
        self.split, self.keep = split, keep
        self.n_rows = self.n_samples = len(source.documents(split))
        self.n_tokens = self.n_stored = source.n_tokens(split)
        self._source = source

    def cuts(self, n_parts: int) -> npt.NDArray[np.int64]:
        """Return the rows where parts of about equal size begin, and `n_rows`; none is empty."""
        wanted = np.linspace(0, self.n_tokens, n_parts + 1).astype(np.int64)
        found, n_tokens, n_rows = [np.zeros(1, np.int64)], 0, 0
        for shard in self._source.shards(self.split):
            stops = n_tokens + np.cumsum(shard.lengths, dtype=np.int64)
            here = wanted[(wanted > n_tokens) & (wanted <= stops[-1])]
            found.append(n_rows + 1 + np.searchsorted(stops, here))
            n_tokens, n_rows = int(stops[-1]), n_rows + len(stops)
        return np.unique(np.concatenate(found))

    def batches(self, start: int, stop: int) -> Iterator[RowBatch]:
        """Yield rows start:stop in order, about `BATCH_TOKENS` tokens at a time."""
        first, every = 0, self._source.manifest.keep
        for shard in self._source.shards(self.split):
            count = len(shard.lengths)
            here = range(max(start, first) - first, min(stop, first + count) - first)
            first += count
            if not len(here):
                continue
            offsets = shard.offsets[:] // shard.tokens.itemsize
            stops = offsets + shard.lengths[:]
            row = here.start
            path = self._source.path(shard.name, METADATA)
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
                    read_metadata(path, every, row, last).select(self.keep) if self.keep else None,
                )
                row = last


class PackedRows:
    """One row for each pack; see `DocumentRows`.

    Memory: 24 bytes for each sample, or 8 for each row of pieces, and one batch.
    """

    keep: Sequence[str] = ()

    def __init__(self, source: ExportSource, split: str, packs: Packs) -> None:
        self.packs: Packs = packs
        lengths = lengths_in(source, split, packs)
        sizes = np.add.reduceat(lengths, np.asarray(packs.row_offsets[:-1]), dtype=np.int64)
        self.split = split
        self.n_rows, self.n_samples = packs.n_rows, len(lengths)
        self.n_tokens = self.n_stored = int(sizes.sum())
        self._lengths = lengths
        self._reader = PackReader(source.documents(split), packs, int(sizes.max()), 0)

    def cuts(self, n_parts: int) -> npt.NDArray[np.int64]:
        """Return the rows where parts begin; see `DocumentRows`."""
        return np.unique(np.linspace(0, self.n_rows, n_parts + 1).astype(np.int64))

    def batches(self, start: int, stop: int) -> Iterator[RowBatch]:
        """Yield rows start:stop; see `DocumentRows`."""
        n_rows = max(1, BATCH_TOKENS // self._reader.capacity)
        for first in range(start, stop, n_rows):
            last = min(first + n_rows, stop)
            read = self._reader.read(np.arange(first, last), is_padded=False)
            mask = read.bodies.get("mask")
            if mask is None:
                mask = np.ones(len(read.bodies["bin"]), np.uint8)
                mask[read.starts] = 0
            self.packs.check()
            offsets = np.asarray(self.packs.row_offsets[first : last + 1])
            lengths = self._lengths[offsets[0] : offsets[-1]].astype(np.int64)
            row_samples = offsets - offsets[0]
            yield RowBatch(
                read.bodies["bin"],
                mask,
                _sums(read.lengths),
                lengths,
                row_samples,
                read.bodies.get("weight"),
            )


class PaddedRows(PackedRows):
    """One row of `row_tokens` tokens for each pack; see `PackedRows`.

    Padding at the end of a row has the id `pad_id` and the mask 0. In batches it is a sample of its
    own, the last of its row; each row has some.
    """

    def __init__(
        self, source: ExportSource, split: str, packs: Packs, row_tokens: int, pad_id: int
    ) -> None:
        super().__init__(source, split, packs)
        self.row_tokens, self.pad_id = row_tokens, pad_id
        self.n_stored = self.n_rows * row_tokens

    def batches(self, start: int, stop: int) -> Iterator[RowBatch]:
        """Yield rows start:stop; see `DocumentRows`."""
        for batch in super().batches(start, stop):
            yield self._padded(batch)

    def _padded(self, batch: RowBatch) -> RowBatch:
        if batch.mask is None:
            raise TypeError("packs have a mask")
        lengths = np.diff(batch.row_offsets)
        row_numbers = np.arange(len(lengths) + 1)
        row_offsets = row_numbers * self.row_tokens
        moved = np.repeat(row_offsets[:-1] - batch.row_offsets[:-1], lengths)
        places = np.arange(len(batch.ids)) + moved
        ids = np.full(row_offsets[-1], self.pad_id, batch.ids.dtype)
        ids[places] = batch.ids
        mask = np.zeros(len(ids), np.uint8)
        mask[places] = batch.mask
        sample_lengths = np.insert(
            batch.sample_lengths, batch.row_samples[1:], self.row_tokens - lengths
        )
        row_samples = batch.row_samples + row_numbers
        return RowBatch(ids, mask, row_offsets, sample_lengths, row_samples)


Rows = DocumentRows | PackedRows


def lengths_in(source: ExportSource, split: str, packs: Packs) -> npt.NDArray[np.int32]:
    """Return the tokens of every sample, or piece, of packs, in their order: (n_samples,)."""
    if packs.pieces is not None:
        return packs.pieces[:, 1]
    return sample_lengths(source.directory, source.entries(split), split)[packs.samples]


def _sums(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    sums = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=sums[1:])
    return sums


def rows_of(
    source: ExportSource, split: str, options: ExportOptions, keep: Sequence[str] = ()
) -> Rows:
    """Return the rows of a split: its packs or new ones if `options` says so, else its documents.

    `keep`: the metadata columns of documents.

    Raises:
        UsageError: a sample is longer than a pack, or new packs are asked for of pretraining data.
    """
    check_packing(source, options)
    if options.packing:
        lengths = sample_lengths(source.directory, source.entries(split), split)
        return PackedRows(source, split, packed(lengths, options.packing, source))
    if split in source.packs and not options.unpacked:
        return PackedRows(source, split, source.packs[split])
    return DocumentRows(source, split, keep)


def check_packing(source: ExportSource, options: ExportOptions) -> None:
    """Check that the options of packing go together; raises `UsageError`."""
    if options.packing and source.kind != "sft":
        raise UsageError(
            "--packing puts whole chats into rows, and this dataset has documents of any length: "
            f"run tokmill pack {quote(str(source.directory))} --length {options.packing} first"
        )
    if options.unpacked and source.kind != "sft" and not source.packs:
        raise UsageError("--unpacked is for packs, and this dataset has none: leave it out")
    if options.packing and options.unpacked:
        raise UsageError("--packing and --unpacked exclude each other: leave one out")


def packed(lengths: npt.NDArray[np.integer], capacity: int, source: ExportSource) -> Packs:
    """Return packs of samples of (n,) lengths; raises `UsageError` if one is longer than a row."""
    if lengths.max() > capacity:
        raise UsageError(
            f"{source.where}: a sample of {plural(int(lengths.max()), 'token')} fits in no row "
            f"of {capacity:,}: make the rows longer (--packing), or the samples shorter "
            "(tokmill sft --max-tokens)"
        )
    return pack(lengths, capacity)


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, or a piece of one, as the dataset has it.

    `ids`: (n,) int64. `is_trained`: (n,) bool. `weights`: (n,) float32; None without them.
    `kept`: fields of a document that its row has as strings.
    """

    ids: npt.NDArray[np.int64]
    is_trained: npt.NDArray[np.bool_]
    weights: npt.NDArray[np.float32] | None = None
    kept: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Return the ids, with -100 where a token is not trained."""
        return np.where(self.is_trained, self.ids, -100)


def expected_rows(source: ExportSource, rows: Rows) -> Iterator[list[Sample]]:
    """Yield the samples of each row, read one by one from the dataset.

    Exports are written by other code, so one bug cannot hide in both.
    """
    documents = source.documents(rows.split)
    for row in range(rows.n_rows):
        numbers: Sequence[int] = [row]
        if rows.packs is not None:
            numbers = rows.packs.row(row).tolist()
        samples = [_sample(*documents.find(number)) for number in numbers]
        if rows.packs is not None and rows.packs.pieces is not None:
            spans = rows.packs.row_pieces(row)
            samples = [_piece(*pair) for pair in zip(samples, spans, strict=True)]
        if rows.keep:
            (kept,) = documents.metadata(row).select(rows.keep).to_pylist()
            samples = [replace(samples[0], kept=kept)]
        yield samples


def _sample(shard: Shard, place: int) -> Sample:
    mask = shard.sample_mask(place)
    ids = shard.document(place).astype(np.int64)
    is_trained = np.ones(len(ids), bool) if mask is None else mask.astype(bool)
    weights = None if shard.weights is None else shard.weights[shard.span(place)]
    return Sample(ids, is_trained, weights)


def _piece(document: Sample, span: slice) -> Sample:
    """Return a piece of a document, whose first token nothing precedes."""
    ids = document.ids[span]
    return Sample(ids, np.arange(len(ids)) > 0)


def check_columns(found: Mapping[str, Any], samples: Sequence[Sample], where: str) -> None:
    """Check the columns of a row, which has samples end to end; raises `VerifyError`."""
    lengths = np.array([len(sample.ids) for sample in samples])
    weights = [sample.weights for sample in samples if sample.weights is not None]
    expected = {
        "input_ids": np.concatenate([sample.ids for sample in samples]),
        "labels": np.concatenate([sample.labels for sample in samples]),
        "attention_mask": np.ones(lengths.sum(), np.int64),
        "loss_mask": np.concatenate([sample.is_trained for sample in samples]).astype(np.int64),
        "seq_lengths": lengths,
        "weights": np.concatenate([np.zeros(0, np.float32), *weights]),
    }
    for name, values in found.items():
        check_equal(values, expected[name], where, name)


def check_equal(found: Any, expected: npt.NDArray[Any], where: str, name: str) -> None:
    """Check that a reader returned the expected (n,) values; raises `VerifyError`."""
    array = np.asarray(found)
    if array.shape != expected.shape:
        raise VerifyError(
            f"{where}: {name}: expected {plural(len(expected), 'value')}, found {len(array):,}"
        )
    if not np.array_equal(array, expected):
        at = int(np.argmax(array != expected))
        raise VerifyError(f"{where}: {name}[{at}]: expected {expected[at]}, found {array[at]}")


def check_rows(
    source: ExportSource,
    splits: Sequence[Rows],
    output: Path,
    read: Callable[[str], Any],
    compare: Callable[[Any, Sequence[Sample], str], None],
    reader: str,
) -> Checked:
    """Compare every row that a trainer's reader returns with the samples of the dataset.

    `read`: returns the rows of a split, with `len` and `[i]`. `compare`: compares a row with its
    samples, or raises `VerifyError`; it takes the place of the row too. `reader`: see `Checked`.

    Raises:
        VerifyError: something differs.
    """
    for rows in splits:
        found = read(rows.split)
        if len(found) != rows.n_rows:
            expected = plural(rows.n_rows, "row")
            raise VerifyError(f"{output}: {rows.split}: expected {expected}, found {len(found):,}")
        for i, samples in enumerate(expected_rows(source, rows)):
            compare(found[i], samples, f"{output}: row {i} of {rows.split}")
    return Checked(reader, _compared(splits))


def _compared(splits: Sequence[Rows]) -> str:
    """Return how much was compared, as `Checked.compared` says it."""
    n_samples, n_tokens = sum(one.n_samples for one in splits), sum(one.n_tokens for one in splits)
    are_cut = any(one.packs is not None and one.packs.pieces is not None for one in splits)
    text = f"{plural(n_samples, 'piece' if are_cut else 'document')}, {plural(n_tokens, 'token')}"
    if any(one.packs is not None for one in splits):
        text += f" in {plural(sum(one.n_rows for one in splits), 'pack')}"
    return text
