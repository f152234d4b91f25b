"""Windows: rows of the same length over the tokens of a split, across documents and shards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.documents import Spans
from tokmill.errors import UsageError
from tokmill.loader.batch_memory import BatchMemory
from tokmill.loader.kept_fields import COLUMN_IDS, checked_columns, places_in_rows
from tokmill.loader.source import (
    EVERY_ROW,
    IGNORED,
    RowSource,
    cache_options,
    checked_count,
    checked_shift,
    labels_of,
)
from tokmill.loader.source import position_ids as positions_in
from tokmill.words import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import SupportsIndex

    import numpy.typing as npt

    from tokmill.loader.document_names import DocumentNames
    from tokmill.loader.kept_fields import KeptFields
    from tokmill.loader.source import AnyDataset, Arrays, Numbers, OpenDataset, Rows


_SCRATCH = BatchMemory(16)
"""Holds the tokens of files until they are int64."""


class WindowSource(RowSource):
    """Rows of a fixed length over the tokens of a split, by number; see `windows`.

    Attributes:
        length: tokens of a row.
        shift: whether labels are the next tokens.
        n_left_out: tokens at the end of the split that are in no row.
    """

    def __init__(self, dataset: AnyDataset, split: str, options: Mapping[str, Any]) -> None:
        self.length, self.shift = options["length"], options["shift"]
        self._shift = int(self.shift)
        self.has_cu_seqlens = options["cu_seqlens"]
        super().__init__(dataset, split, options, ("length", "shift"))
        self.dtypes = {"input_ids": np.int64, "labels": np.int64}
        if options["document_ids"]:
            self.dtypes["document_ids"] = np.int64
        if options["position_ids"] or self.has_cu_seqlens:
            self.dtypes["position_ids"] = np.int64
        if "weight" in self._files.dtypes:
            self.dtypes["weights"] = np.float32
        counts = [entry.tokens for entry in self._documents.entries]
        self._stops = np.cumsum(counts, dtype=np.int64)
        self._starts = self._stops - counts
        if options["sources"]:
            self.dtypes["source_ids"] = np.int64
        if options["columns"]:
            self.dtypes[COLUMN_IDS] = np.int64
        n_tokens = int(self._stops[-1])
        span = options.get("span", self.length)  # of which rows are parts; see `cut`
        self._n_rows = (n_tokens - self._shift) // span * (span // self.length)
        if not self._n_rows:
            raise UsageError(
                f"{self.directory}: {split} has {plural(n_tokens, 'token')}, a row reads "
                f"{self.length + self._shift:,}: choose a shorter length"
            )
        self._squares: npt.NDArray[np.int64] | None = None
        self.n_left_out = n_tokens - self._n_rows * self.length - self._shift
        if self._names is not None and self._wanted is not None:
            self._choose(self._rows_of_source(self._names, self._wanted))

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n_rows if self._chosen is None else len(self._chosen)

    def cut(self, length: int) -> WindowSource:
        """Return the same rows, cut into rows of `length` tokens: as many of each, in order.

        Open files are shared. Raises `UsageError` if `length` does not divide that of the rows.
        """
        if length == self.length:
            return self
        if self.length % length:
            raise UsageError(
                f"length {length:,} does not divide {self.length:,}, the length of its windows: "
                f"open them with a multiple of both, such as {lcm(self.length, length):,}"
            )
        if self._chosen is not None:
            raise UsageError("the rows of one source (source=…) are not cut: choose their length")
        rows = type(self).__new__(type(self))
        vars(rows).update(vars(self))
        rows.length, rows._n_rows = length, self._n_rows * (self.length // length)
        rows._squares = None
        rows._options = {"span": self.length, **self._options, "length": length}
        return rows

    def _rows_of_source(self, names: DocumentNames, wanted: int) -> npt.NDArray[np.bool_]:
        """Return which rows hold a target that is a token of a source: (n_rows,)."""
        changes = np.zeros(self._n_rows + 1, np.int64)
        for shard in range(len(self._documents.entries)):
            own = np.flatnonzero(names.of_shard(shard) == wanted)
            lengths, offsets = self._files.index(shard)
            starts = offsets[own] // self._files.dtypes["bin"].itemsize + self._starts[shard]
            first = np.maximum(starts - self._shift, 0) // self.length
            last = (starts + lengths[own] - 1 - self._shift) // self.length
            is_inside = (first < self._n_rows) & (last >= first)
            np.add.at(changes, first[is_inside], 1)
            np.add.at(changes, np.minimum(last[is_inside] + 1, self._n_rows), -1)
        return np.cumsum(changes)[:-1] > 0

    @property
    def _reads_index(self) -> bool:
        """Return whether rows say where documents begin."""
        options = self._options
        names = ("document_ids", "position_ids", "cu_seqlens", "sources", "source", "columns")
        return any(options[name] for name in names)

    def _shards_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the shards of rows: that of their first token, up to that of their last."""
        starts = self._row_numbers(numbers) * self.length
        first = np.searchsorted(self._stops, starts, side="right")
        last = np.searchsorted(self._stops, starts + self.length + self._shift - 1, side="right")
        counts = last - first + 1
        begins = np.cumsum(counts) - counts
        return np.repeat(first - begins, counts) + np.arange(int(counts.sum()))

    def _first_rows(self) -> npt.NDArray[np.int64]:
        """Return the first row that begins in or after each shard."""
        first: npt.NDArray[np.int64] = -(-self._starts // self.length)
        return first

    def fill(self, numbers: Numbers, into: Arrays, rows: Rows = EVERY_ROW) -> None:
        """Read rows into arrays that exist already; see `RowSource.fill`."""
        starts = self._row_numbers(numbers) * self.length
        length, shift = self.length, self._shift
        read = self._read(starts)
        into["input_ids"][rows] = read["bin"][:, :length]
        mask = read["mask"][:, shift:] if "mask" in read else None
        labels = labels_of(read["bin"][:, shift:], mask)  # their dtype: copied once, where they go
        weights = read["weight"][:, shift:] if "weight" in read else None
        if self._fields is not None and len(starts):
            self._fill_fields(self._fields, starts + shift, into, rows)
        if self._names is not None and len(starts):
            sources = self._sources_at(self._names, starts + shift)
            if self._wanted is not None:
                labels = np.where(sources == self._wanted, labels, np.int64(IGNORED))
            if self._wanted is not None and weights is not None:
                weights = np.where(sources == self._wanted, weights, np.float32(0))
            if self.source_names:
                into["source_ids"][rows] = sources
        into["labels"][rows] = labels
        if weights is not None:
            into["weights"][rows] = weights
        if "document_ids" in self.dtypes or "position_ids" in self.dtypes:
            self._fill_segments(starts, into, rows)

    def segment_sums(self, numbers: Numbers) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return tokens and squared lengths of rows; see `RowSource.segment_sums`.

        They are kept, 8 bytes a row: a shard is looked through when a row of it is first asked for.
        """
        if not self.dtypes.keys() & {"document_ids", "position_ids"}:
            raise UsageError(
                f"{self!r}: to balance batches, keep documents apart, with cu_seqlens=True, "
                "position_ids=True or document_ids=True: without, all rows cost the same"
            )
        rows = self._row_numbers(numbers)
        if self._squares is None:
            self._squares = np.zeros(self._n_rows, np.int64)  # 0: not known yet
        unknown = rows[self._squares[rows] == 0]
        shards = np.searchsorted(self._stops, unknown * self.length, side="right")
        for shard in np.unique(shards).tolist():
            begin, end = self._starts[shard], self._stops[shard]
            first, last = -(-int(begin) // self.length), -(-int(end) // self.length)
            last = min(last, self._n_rows)
            self._squares[first:last] = self._squared_lengths(shard, first, last)
        return np.full(len(rows), self.length), self._squares[rows]

    def _squared_lengths(self, shard: int, first: int, last: int) -> npt.NDArray[np.int64]:
        """Return the sums of the squared lengths of the segments of the rows that begin in a shard.

        Documents end to end are [starts[i], starts[i + 1]), whose squares sum up to `sums`.
        """
        bounds = np.arange(first, last + 1) * self.length
        begins, ends = bounds[:-1], bounds[1:]
        starts = np.append(self._document_starts(shard, int(bounds[-1])), bounds[-1])
        lengths = np.diff(starts)
        if starts[0] > bounds[0] or lengths.min() < 0:
            raise self._files.damaged_index(shard)
        sums = np.append(0, np.cumsum(lengths**2))
        head = np.searchsorted(starts, begins, side="right") - 1
        tail = np.searchsorted(starts, ends, side="left") - 1
        several = (starts[head + 1] - begins) ** 2 + (ends - starts[tail]) ** 2
        several += sums[tail] - sums[head + 1]
        return np.where(head == tail, self.length**2, several)

    def _document_starts(self, shard: int, stop: int) -> npt.NDArray[np.int64]:
        """Return where documents begin in the split, from a shard on and before token `stop`."""
        item, found = self._files.dtypes["bin"].itemsize, []
        while shard < len(self._starts) and self._starts[shard] < stop:
            _, offsets = self._files.index(shard)
            before = self._starts[shard]
            n = bisect_left(offsets, (stop - before) * item)
            found.append(offsets[:n] // item + before)
            shard += 1
        return np.concatenate(found)

    def _sources_at(
        self, names: DocumentNames, starts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the number of each token's source, from each start on: (n, length)."""
        cuts, documents = self._segments(self._spans(starts, self.length))
        lengths = np.diff(cuts, append=len(starts) * self.length)
        sources = names.of_documents(documents)
        return np.repeat(sources, lengths).reshape(len(starts), self.length)

    def _fill_fields(
        self, fields: KeptFields, starts: npt.NDArray[np.int64], into: Arrays, rows: Rows
    ) -> None:
        """Write the kept fields of each token's document, from each start on."""
        cuts, documents = self._segments(self._spans(starts, self.length))
        lengths = np.diff(cuts, append=len(starts) * self.length)
        row_of = cuts // self.length
        ids = np.repeat(places_in_rows(row_of), lengths)
        into[COLUMN_IDS][rows] = ids.reshape(len(starts), self.length)
        fields.fill(into, rows, row_of, documents)

    def _read(self, starts: npt.NDArray[np.int64]) -> Arrays:
        """Return the tokens from each start, and their sidecars: (n, length + shift) each."""
        shape = (len(starts), self.length + self._shift)
        spans = self._spans(starts, shape[1])
        read = {}
        for ending, dtype in self._files.dtypes.items():
            values = _SCRATCH((shape[0] * shape[1],), dtype)
            self._files.read(spans, ending, values)
            read[ending] = values.reshape(shape)
        return read

    def _spans(self, starts: npt.NDArray[np.int64], length: int) -> Spans:
        """Return the spans of rows; a row that crosses the end of a shard has several."""
        first = np.searchsorted(self._stops, starts, side="right")
        last = np.searchsorted(self._stops, starts + (length - 1), side="right")
        targets = np.arange(len(starts)) * length
        if (first == last).all():
            lengths = np.full(len(starts), length)
            return Spans(first, starts - self._starts[first], lengths, targets)
        n_pieces = last - first + 1
        row = np.repeat(np.arange(len(starts)), n_pieces)
        piece = np.arange(len(row)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
        shards = first[row] + piece
        begins = np.maximum(starts[row], self._starts[shards])
        ends = np.minimum(starts[row] + length, self._stops[shards])
        in_shard, targets = begins - self._starts[shards], targets[row] + begins - starts[row]
        return Spans(shards, in_shard, ends - begins, targets)

    def _fill_segments(self, starts: npt.NDArray[np.int64], into: Arrays, rows: Rows) -> None:
        """Write position ids and document ids, which binary search in the indices finds."""
        n_tokens, shape = len(starts) * self.length, (len(starts), self.length)
        if not n_tokens:
            return
        cuts, numbers = self._segments(self._spans(starts, self.length))
        lengths = np.diff(cuts, append=n_tokens)
        if lengths.min() < 0:
            stops = self._documents.stops
            number = numbers[int(np.argmax(lengths < 0))]
            raise self._files.damaged_index(int(np.searchsorted(stops, number, side="right")))
        if "position_ids" in self.dtypes:
            into["position_ids"][rows] = positions_in(cuts, n_tokens).reshape(shape)
        if "document_ids" in self.dtypes:
            into["document_ids"][rows] = np.repeat(numbers, lengths).reshape(shape)

    def _segments(self, spans: Spans) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the documents of rows begin, rows end to end, and their numbers: (m,)."""
        item = self._files.dtypes["bin"].itemsize
        cuts, numbers = [], []
        columns = (spans.shards, spans.starts, spans.lengths, spans.targets)
        mapped = -1
        for shard, start, length, target in zip(*(one.tolist() for one in columns), strict=True):
            if shard != mapped:
                (_, offsets), mapped = self._files.index(shard), shard
            # NumPy's searchsorted would copy all offsets, which are not aligned in the file.
            first = bisect_right(offsets, start * item) - 1
            if first < 0:
                raise self._files.damaged_index(shard)
            most = min(first + length, len(offsets))
            last = bisect_left(offsets, (start + length) * item, first + 1, most)
            found = offsets[first:last] // item + (target - start)
            found[0] = target
            cuts.append(found)
            numbers.append(np.arange(first, last) + self._documents.firsts[shard])
        return np.concatenate(cuts), np.concatenate(numbers)


def windows(
    dataset: str | os.PathLike[str] | OpenDataset,
    length: SupportsIndex = 4096,
    split: str = "train",
    *,
    shift: bool,
    document_ids: bool = False,
    position_ids: bool = False,
    cu_seqlens: bool = False,
    sources: bool = False,
    source: str | None = None,
    columns: Sequence[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
) -> WindowSource:
    """Return rows of `length` tokens over a split, read as one stream, as training samples.

    Row i begins at token i x `length`. Rows cross documents and shards. Tokens at the end that fill
    no row are left out: `n_left_out` of the source.

    A sample has `input_ids` and `labels`: (length,) int64 each. A label is -100 where the mask of
    an SFT dataset is 0. `weights`: (length,) float32, if the dataset has them, at the place of the
    labels.

    Args:
        dataset: a directory, the URL of a store, or an open `tokmill.Dataset`.
        length: tokens of a row.
        split: `train` or `val`.
        shift: True: labels are the next tokens, for a loop of your own, nanoGPT and torchtitan,
            which do not shift them. A row reads one token more, the first of the next row. False:
            labels are the ids at their own place, for models that shift them, as those of
            transformers do. The wrong one trains a model to copy, or to skip a token.
        document_ids: also `document_ids`: (length,) int64, the number of each token's document.
        position_ids: also `position_ids`: (length,) int64, from 0 at the start of each document and
            of the row.
        cu_seqlens: also `cu_seqlens`: (m + 1,) int32, where the documents of the row begin, then
            its length; and `position_ids`.
        sources: also `source_ids`: (length,) int64, the source of each label's token, a place in
            the attribute `source_names`.
        source: only the rows with a token of this source as a target, such as `wiki`; the labels of
            other tokens are -100. For the validation loss of one source.
        columns: names of kept fields, such as `["url", "language"]`: a row also has for each a list
            of the values of its documents, str or None; and `column_ids`: (length,) int64, the
            place of each label's token in these lists.
        cache: of a dataset in a store: a directory on a local disk, in which whole shards are kept
            as they are needed; processes of a machine share it.
        cache_bytes: the most that it holds, such as `200GB`; None: nine tenths of what is free.

    Raises:
        UsageError: there is no dataset, the length is wrong, the split does not fill a row, no
            source has the name, or a field was not kept.
        TokmillError: the manifest is damaged or cannot be read.

    Example:
        >>> source = tokmill.loader.windows("out", length=1024, shift=True)  # for your own loop
        >>> len(source), source[0]["labels"], source.n_left_out
    """
    options = {
        "length": checked_count("length", length), "shift": checked_shift(shift),
        "document_ids": bool(document_ids), "position_ids": bool(position_ids),
        "cu_seqlens": bool(cu_seqlens), "sources": bool(sources), "source": source or "",
        "columns": checked_columns(columns),
        **cache_options(cache, cache_bytes),
    }  # fmt: skip
    return WindowSource(dataset, split, options)
