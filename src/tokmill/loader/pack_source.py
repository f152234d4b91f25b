"""Packs: the packed rows of a dataset, whole samples or pieces of documents side by side."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokmill.dataset.identity import identity_of, replaced
from tokmill.dataset.packs import open_rows
from tokmill.dataset.reader import read_manifest
from tokmill.errors import UsageError, VerifyError
from tokmill.loader.kept_fields import (
    COLUMN_IDS,
    as_objects,
    checked_columns,
    end_to_end,
    places_in_rows,
)
from tokmill.loader.source import (
    EVERY_ROW,
    IGNORED,
    RowSource,
    cache_options,
    checked_shift,
    labels_of,
    position_ids,
)
from tokmill.offsets import indices_of
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.packs import PackReader, RowTokens
    from tokmill.loader.kept_fields import KeptFields
    from tokmill.loader.source import AnyDataset, Arrays, Numbers, OpenDataset, Rows


TOKEN, SAMPLE = "token", "sample"
"""What has an equal weight in the loss."""

PADDING = -1
"""The source of padding."""


class PackSource(RowSource):
    """The packed rows of a split by number; see `packs`.

    Attributes:
        length: the most tokens of a row; with padding, the tokens of every row.
        shift: whether labels are the next tokens of the same sample or piece.
        padded: whether rows are padded to `length`.
    """

    def __init__(self, dataset: AnyDataset, split: str, options: Mapping[str, Any]) -> None:
        self.shift, self.padded = options["shift"], options["pad"]
        self.has_cu_seqlens = options["cu_seqlens"]
        decisive = ("shift", "weights") if options["weights"] == SAMPLE else ("shift",)
        super().__init__(dataset, split, options, decisive)
        packed = self._manifest.packs[split]
        self.length, self._n_rows = packed.capacity, packed.rows
        if options["pad_cu_seqlens"]:
            self.max_segments = self._most_segments(packed.max_samples_per_row)
        self.fingerprint += f" length={self.length}"
        self.dtypes = dict.fromkeys(("input_ids", "labels", "position_ids"), np.int64)
        if "weight" in self._files.dtypes or options["weights"] == SAMPLE:
            self.dtypes["weights"] = np.float32
        if options["sources"]:
            self.dtypes["source_ids"] = np.int64
        if options["columns"]:
            self.dtypes[COLUMN_IDS] = np.int64
        if self._names is not None and self._wanted is not None:
            packs = self._reader.packs
            is_wanted = (
                self._names.of_documents(np.asarray(packs.samples, np.int64)) == self._wanted
            )
            firsts = np.asarray(packs.row_offsets[:-1])
            self._choose(np.logical_or.reduceat(is_wanted, firsts))

    def _most_segments(self, max_samples: int) -> int:
        """Return the most segments of a row: its samples, and padding; raises `UsageError`."""
        if not self.has_cu_seqlens:
            raise UsageError("pad_cu_seqlens: needs cu_seqlens=True, which it gives a fixed length")
        if not max_samples:
            how = f"tokmill pack {quote(str(self.directory))} --length={self.length}"
            if self.kind == "sft":
                how = f"tokmill sft --packing={self.length}"
            raise UsageError(
                f"{self.directory}: rows of {self.split} have any number of samples, so cu_seqlens "
                f"have no fixed length: pack with {how} --max-samples-per-row=32"
            )
        return max_samples + int(self.padded)

    def _beside(self, manifest: Manifest) -> Sequence[str]:
        """Return the names of the files of the pack index; raises `UsageError` without one."""
        if self.split in manifest.packs:
            names = manifest.packs[self.split].index_names(self.split)
            return [*names, *super()._beside(manifest)]
        how = (
            f"documents are not packed: run tokmill pack {quote(str(self.directory))} --length=4096"
        )
        if self.kind == "sft":
            how = "samples are not packed: make it with tokmill sft --packing=4096"
        raise UsageError(
            f"{shown_place(self.directory)}: its {how}, or read it with documents or windows"
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._n_rows) if self._chosen is None else len(self._chosen)

    def __getitems__(self, numbers: Numbers) -> list[Arrays]:
        """Return several rows, read together; see `packs`."""
        if self.padded:
            return super().__getitems__(numbers)
        flat, lengths = self._flat(numbers)
        ends = np.cumsum(lengths)[:-1]
        found: list[Arrays] = [{} for _ in lengths]
        for name, values in flat.items():
            of_rows = values if name in self.columns else np.split(values, ends)
            for row, own in zip(found, of_rows, strict=False):
                row[name] = own
        return self.measured(found)

    def batch(self, numbers: Numbers, allocate: Callable[..., Any] | None = None) -> Arrays:
        """Return several rows as one batch: (n, length) each; without padding (1, n_tokens).

        `cu_seqlens` are those of all rows, end to end. Arguments and errors are those of
        `RowSource.batch`; without padding, `allocate` is not used.
        """
        if self.padded:
            return super().batch(numbers, allocate)
        flat, lengths = self._flat(numbers)
        if self.columns:
            n_of = [len(values) for values in flat[self.columns[0]]]
            ids = np.split(flat[COLUMN_IDS], np.cumsum(lengths)[:-1])
            flat[COLUMN_IDS] = end_to_end(ids, n_of)
        found: Arrays = {}
        for name, values in flat.items():
            found[name] = values[None]
            if name in self.columns:
                found[name] = as_objects([[one for row in values for one in row]])
        if self.has_cu_seqlens:
            found["cu_seqlens"] = self.cu_seqlens(flat["position_ids"], len(numbers))
        return found

    def _shards_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the shards of the samples of rows, row by row."""
        packs, rows = self._reader.packs, self._row_numbers(numbers)
        firsts = np.asarray(packs.row_offsets[rows])
        places = indices_of(firsts, np.asarray(packs.row_offsets[rows + 1]) - firsts)
        documents = np.asarray(packs.samples[places])
        return np.searchsorted(self._documents.stops, documents, side="right")

    def _first_rows(self) -> npt.NDArray[np.int64]:
        """Return the first row whose first sample is in or after each shard, by binary search.

        Rows are in the order of their first sample.
        """
        packs = self._reader.packs

        def first_sample(row: int) -> int:
            return int(packs.samples[packs.row_offsets[row]])

        rows = range(self._n_rows)
        firsts = self._documents.firsts.tolist()
        found = [bisect_left(rows, first, key=first_sample) for first in firsts]
        return np.array(found, np.int64)

    def fill(self, numbers: Numbers, into: Arrays, rows: Rows = EVERY_ROW) -> None:
        """Read rows into arrays that exist already; see `RowSource.fill`.

        Raises:
            UsageError: the rows are not padded, so they have no length to share.
        """
        if not self.padded:
            raise UsageError("packs without padding have rows of different lengths: use batch")
        for name, values in self._flat(numbers)[0].items():
            into[name][rows] = values if name in self.columns else values.reshape(-1, self.length)

    def segment_sums(self, numbers: Numbers) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return tokens and squared lengths of rows; see `RowSource.segment_sums`."""
        tokens, squares = self._reader.segment_sums(self._row_numbers(numbers))
        if self.padded:
            squares += (self.length - tokens) ** 2
            tokens[:] = self.length
        return tokens, squares

    @cached_property
    def _reader(self) -> PackReader:
        """Return the reader, whose index is mapped when the first row is read.

        Once it is mapped, new packs in its place change nothing here. So they are compared now.
        """
        now = read_manifest(self.directory)
        if (
            self.split not in now.packs
            or identity_of(now, self.directory, self._beside(now)) != self.identity
        ):
            raise replaced(self.directory)
        reader = open_rows(self.directory, self._manifest, self.split)
        if reader.packs.n_rows != self._n_rows:
            raise VerifyError(
                f"{shown_place(self.directory)}: the pack index of {self.split} has "
                f"{plural(reader.packs.n_rows, 'row')}, {self._n_rows:,} by the manifest; "
                "see tokmill verify"
            )
        return reader

    def _flat(self, numbers: Numbers) -> tuple[Arrays, npt.NDArray[np.int64]]:
        """Return the arrays of rows, end to end: (n_tokens,) each, and the rows' real tokens.

        Kept fields are a list for each row: (n_rows,) objects.
        """
        rows = self._reader.read(self._row_numbers(numbers), is_padded=self.padded)
        read, starts = rows.bodies, rows.starts
        n_tokens, mask = len(read["bin"]), read.get("mask")
        if mask is None:  # of text, all but the first token of a piece, which nothing precedes
            mask = np.ones(n_tokens, np.uint8)
            mask[starts] = 0
            if self.padded:
                mask.reshape(-1, self.length)[np.arange(self.length) >= rows.lengths[:, None]] = 0
        labels = labels_of(read["bin"], mask).astype(np.int64, copy=False)
        if self.shift:  # the first token of a sample is never a target, nor is padding
            labels = np.append(labels[1:], IGNORED)
            if "weight" in read:
                read["weight"] = np.append(read["weight"][1:], np.float32(0))
        beside = self._of_samples(rows, labels, read.get("weight"))
        if self.padded:  # padding is a segment of its own, so that no sample attends to it
            short = rows.lengths < self.length
            padding = (np.arange(len(rows.lengths)) * self.length + rows.lengths)[short]
            starts = np.sort(np.concatenate([starts, padding]))
        arrays: Arrays = {
            "input_ids": read["bin"].astype(np.int64),
            "labels": labels,
            "position_ids": position_ids(starts, n_tokens),
        }
        return arrays | beside, rows.lengths

    def _of_samples(
        self, rows: RowTokens, labels: npt.NDArray[np.int64], weights: npt.NDArray[Any] | None
    ) -> Arrays:
        """Return weights and source ids, and hide the labels of other sources, in place.

        A label is a token of the sample in which it stands, shifted or not.
        """
        found: Arrays = {}
        sample_of = np.full(len(labels), -1, np.int64)
        inside = indices_of(rows.starts, rows.sample_lengths)
        sample_of[inside] = np.repeat(np.arange(len(rows.samples)), rows.sample_lengths)
        if self._names is not None:
            of_samples = np.append(self._names.of_documents(rows.samples), PADDING)
            sources = of_samples[sample_of]
            if self._wanted is not None:
                labels[sources != self._wanted] = IGNORED
            if self.source_names:
                found["source_ids"] = sources
        if self._options["weights"] == SAMPLE:
            found["weights"] = _sample_weights(labels, weights, sample_of, len(rows.samples))
        elif weights is not None:
            found["weights"] = np.where(labels == IGNORED, np.float32(0), weights)
        if self._fields is not None:
            found |= self._fields_of(self._fields, rows, sample_of)
        return found

    def _fields_of(
        self, fields: KeptFields, rows: RowTokens, sample_of: npt.NDArray[np.int64]
    ) -> Arrays:
        """Return the kept fields of each row, and the `column_ids` of its tokens."""
        n_tokens = np.full(len(rows.lengths), self.length) if self.padded else rows.lengths
        row_of = np.searchsorted(np.cumsum(n_tokens), rows.starts, side="right")
        places = np.append(places_in_rows(row_of), PADDING)
        found: Arrays = {name: np.empty(len(rows.lengths), object) for name in self.columns}
        fields.fill(found, EVERY_ROW, row_of, rows.samples)
        return {COLUMN_IDS: places[sample_of], **found}


def _sample_weights(
    labels: npt.NDArray[np.int64],
    weights: npt.NDArray[Any] | None,
    sample_of: npt.NDArray[np.int64],
    n_samples: int,
) -> npt.NDArray[np.float32]:
    """Return weights whose sum is 1 in each sample: (n_tokens,); 0 where nothing is trained.

    `weights`: of the dataset, None for 1 at each target. `sample_of`: (n_tokens,), -1: padding.
    """
    trained = np.flatnonzero(labels != IGNORED)
    own = np.ones(len(trained)) if weights is None else weights[trained].astype(np.float64)
    sums = np.bincount(sample_of[trained], own, n_samples)[sample_of[trained]]
    found = np.zeros(len(labels), np.float32)
    found[trained] = np.divide(own, sums, out=np.zeros_like(own), where=sums > 0)
    return found


def packs(
    dataset: str | os.PathLike[str] | OpenDataset,
    split: str = "train",
    *,
    shift: bool,
    pad: bool = True,
    cu_seqlens: bool = True,
    sources: bool = False,
    source: str | None = None,
    columns: Sequence[str] | None = None,
    weights: Literal["token", "sample"] = "token",
    pad_cu_seqlens: bool = False,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
) -> PackSource:
    """Return the packed rows of a dataset as training samples: whole samples side by side.

    A row has `input_ids`, `labels` and `position_ids`: (capacity,) int64 each, where the capacity
    is that of the dataset; and `cu_seqlens`: (m + 1,) int32, where the samples of the row begin,
    then its length. Labels are -100 where the mask is 0: the first token of each sample is never a
    target, so no token is predicted from another sample. Position ids are from 0 in each sample.
    `weights`: float32, if the dataset has them.

    In a dataset for pretraining that `tokmill.pack` has packed, samples are whole documents and
    pieces of long ones. A piece is a segment of its own, also one that goes on in another row: its
    positions are from 0, and its first token is not a target; all other tokens are.

    Args:
        dataset: a directory, the URL of a store, or an open `tokmill.Dataset`.
        split: `train` or `val`.
        shift: True: labels are the next tokens, each within its own sample, for a loop of your own
            and torchtitan, which do not shift them; the label of the last token of a sample is
            -100. False: labels are the ids at their own place, for models that shift them, as those
            of transformers do. The wrong one trains a model to copy, or to skip a token.
        pad: fill each row up to the capacity with eos whose label is -100; this padding is a
            segment of its own in `position_ids` and `cu_seqlens`. Otherwise a row has its own
            length, and a batch is one row of all samples: (1, n_tokens).
        cu_seqlens: with `cu_seqlens`; their lengths differ from row to row.
        sources: also `source_ids`: (capacity,) int64, the source of each label's token, a place in
            the attribute `source_names`; -1 in padding.
        source: only the rows with a sample of this source, such as `wiki`; the labels of the others
            are -100. For the validation loss of one source.
        columns: names of kept fields, such as `["url", "language"]`: a row also has for each a list
            of the values of its samples, str or None; and `column_ids`: (capacity,) int64, the
            place of each token's sample in these lists; -1 in padding.
        weights: `token` gives each target the weight of the dataset, or none; `sample` gives
            targets weights whose sum is 1 in each sample, so that a long answer counts as much as a
            short one. Weights of the dataset are multiplied first.
        pad_cu_seqlens: repeat the last number of `cu_seqlens`, so that they have one length, as
            CUDA graphs and compilers need: for n rows, n x `max_segments` of the source + 1. The
            further segments are empty. Rows must be packed with `max_samples_per_row`.
        cache: of a dataset in a store: a directory on a local disk, in which whole shards are kept
            as they are needed; processes of a machine share it.
        cache_bytes: the most that it holds, such as `200GB`; None: nine tenths of what is free.

    Raises:
        UsageError: there is no dataset, the split is empty, it is not packed, or not with
            `max_samples_per_row` where it is needed; no source has the name; or a field was not
            kept.
        TokmillError: the manifest is damaged or cannot be read.

    Example:
        >>> source = tokmill.loader.packs("sft", shift=False)  # for a model of transformers
        >>> len(source), source[0]["cu_seqlens"]
    """
    if weights not in (TOKEN, SAMPLE):
        raise UsageError(f"weights: expected token or sample, found {weights!r}")
    options = {
        "shift": checked_shift(shift), "pad": bool(pad), "cu_seqlens": bool(cu_seqlens),
        "sources": bool(sources), "source": source or "", "weights": weights,
        "columns": checked_columns(columns), "pad_cu_seqlens": bool(pad_cu_seqlens),
        **cache_options(cache, cache_bytes),
    }  # fmt: skip
    return PackSource(dataset, split, options)
