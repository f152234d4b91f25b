"""Write the files of a part: encoded documents are cut into the shards of their split, and counted.

Everything that makes a dataset writes through here: runs, imports, mixes, packed rows. A shard ends
before the record that would make it longer than its limit; a longer record gets a shard for itself,
and a record with several samples is never divided. So the ends depend on the documents alone, not
on how many of them are written at once, or by how many workers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.counts import Counts, documents_by_length
from tokmill.dataset.layout import (
    PARTS,
    SPLITS,
    part_name,
    rejects_name,
    shard_stem,
    stopped_rejects_name,
)
from tokmill.dataset.part_record import PartRecord, SliceCounts
from tokmill.dataset.writer import RejectsFile, ShardWriter
from tokmill.errors import StateError, TokmillError
from tokmill.timing import add_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.place import Place
    from tokmill.dataset.writer import ShardEntry
    from tokmill.settings.schema import OutputSettings
    from tokmill.timing import StageSeconds
    from tokmill.values import RecordPlace, Reject


MOST_AT_ONCE = 4 << 20
"""Tokens that a shard gets at once. Some of these wait for its writing thread, in memory."""


@dataclass(frozen=True, slots=True)
class EncodedDocuments:
    """n encoded documents, end to end.

    Attributes:
        tokens: (n_tokens,) ids of the dataset's dtype, eos included.
        offsets: (n + 1,) int64: document i has the tokens from `offsets[i] - offsets[0]` to
            `offsets[i + 1] - offsets[0]`.
        of_tokens: by ending, (n_tokens,) each: `mask` uint8, `weight` float32.
        of_documents: by ending, n rows each: `origin` (n, 2) int64, `meta` a `pyarrow.RecordBatch`.
        records: (n,) int64, not decreasing: documents of one record have the same number; None if
            each record has one document.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    offsets: npt.NDArray[np.int64]
    of_tokens: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    of_documents: Mapping[str, Any] = field(default_factory=dict)
    records: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the tokens of each document: (n,)."""
        return np.diff(self.offsets)

    @property
    def endings(self) -> tuple[str, ...]:
        """Return the endings of the sidecars, in the order of their files."""
        return (*self.of_tokens, *self.of_documents)

    def record_bounds(self) -> npt.NDArray[np.int64]:
        """Return (k + 1,) int64: record i has the documents `bounds[i]` to `bounds[i + 1] - 1`."""
        if self.records is None:
            return np.arange(len(self) + 1)
        begins = np.flatnonzero(self.records[1:] != self.records[:-1]) + 1
        return np.concatenate([[0], begins, [len(self)]])

    def between(self, start: int, stop: int) -> EncodedDocuments:
        """Return documents `start` to `stop - 1`; nothing is copied."""
        first, last = (int(self.offsets[i] - self.offsets[0]) for i in (start, stop))
        return EncodedDocuments(
            self.tokens[first:last],
            self.offsets[start : stop + 1],
            {ending: values[first:last] for ending, values in self.of_tokens.items()},
            {ending: rows[start:stop] for ending, rows in self.of_documents.items()},
            None if self.records is None else self.records[start:stop],
        )

    def where(self, is_member: npt.NDArray[np.bool_]) -> EncodedDocuments:
        """Return a copy of the documents for which `is_member`, (n,), is true."""
        lengths = self.lengths
        is_token = np.repeat(is_member, lengths)
        of_documents: dict[str, Any] = {}
        for ending, rows in self.of_documents.items():
            is_array = isinstance(rows, np.ndarray)
            of_documents[ending] = rows[is_member] if is_array else rows.filter(is_member)
        return EncodedDocuments(
            self.tokens[is_token],
            np.append(0, np.cumsum(lengths[is_member])),
            {ending: values[is_token] for ending, values in self.of_tokens.items()},
            of_documents,
            None if self.records is None else self.records[is_member],
        )

    def by_split(self, is_val: npt.NDArray[np.bool_]) -> Iterator[tuple[str, EncodedDocuments]]:
        """Yield each split that has documents, with these; `is_val`: (n,)."""
        if not is_val.any():  # the usual case, without a copy
            yield "train", self
            return
        for split, is_member in (("train", ~is_val), ("val", is_val)):
            if is_member.any():
                yield split, self.where(is_member)

    def pieces(self, n_tokens: int) -> Iterator[EncodedDocuments]:
        """Yield all documents in pieces of at most `n_tokens` tokens, or of one document."""
        start = 0
        while start < len(self):
            fits_up_to = int(np.searchsorted(self.offsets, self.offsets[start] + n_tokens, "right"))
            stop = max(fits_up_to - 1, start + 1)
            yield self.between(start, stop)
            start = stop


class SplitWriter:
    """Writes the documents of one split, in order, to numbered shards; at most one is open.

    `stem_of`: returns the name without ending of shard 0, 1, …. `most_tokens`: the limit of a
    shard. `check` is called before the files of a shard appear under their names, and may raise.
    `entries`: the shards that are ended. `stage_s`: their seconds, by stage.
    """

    def __init__(
        self,
        directory: Path,
        split: str,
        stem_of: Callable[[int], str],
        dtype: np.dtype[np.unsignedinteger],
        most_tokens: int,
        algorithm: str,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._split, self._stem_of = directory, split, stem_of
        self._dtype, self._most_tokens = dtype, most_tokens
        self._algorithm, self._check = algorithm, check
        self._shard: ShardWriter | None = None
        self.entries: list[ShardEntry] = []
        self.stage_s: dict[str, StageSeconds] = {}

    def append(self, documents: EncodedDocuments) -> None:
        """Write documents, and end each shard that they fill.

        Raises:
            TokmillError: see `ShardWriter.append`.
        """
        bounds = documents.record_bounds()
        offsets = documents.offsets[bounds]
        first, n_records = 0, len(bounds) - 1
        while first < n_records:
            n_written = 0 if self._shard is None else self._shard.n_tokens
            room = max(0, self._most_tokens - n_written)
            stop = int(np.searchsorted(offsets, offsets[first] + room, "right")) - 1
            if self._shard is None:
                stop = max(stop, first + 1)  # a record that is too long for any shard
            if stop > first:
                self._write(documents.between(int(bounds[first]), int(bounds[stop])))
            if stop < n_records:
                self.end()
            first = stop

    def _write(self, documents: EncodedDocuments) -> None:
        """Append documents to the open shard, or open one."""
        if self._shard is None:
            self._shard = ShardWriter(
                self._directory,
                self._split,
                self._stem_of(len(self.entries)),
                self._dtype,
                documents.endings,
                algorithm=self._algorithm,
            )
        for piece in documents.pieces(MOST_AT_ONCE):
            sidecars = {**piece.of_tokens, **piece.of_documents}
            self._shard.append(piece.tokens, piece.lengths, sidecars)

    def end(self) -> None:
        """End the open shard, if there is one; raises what `check` raises, or `StorageError`."""
        if self._shard is not None:
            self._check()
            self.entries.append(self._shard.commit())
            add_seconds(self.stage_s, self._shard.stage_s)
            self._shard = None

    def discard(self) -> None:
        """Remove the open shard."""
        if self._shard is not None:
            self._shard.discard()
            self._shard = None


class PartWriter:
    """Writes the files of one part, and its record, last.

    `output`: dtype, limit of a shard and algorithm of checksums; none of them is `auto` or 0.
    `check` is called before a file or the record appears in the place, and may raise. `counts`: of
    the slices so far, by number. `length_histogram`: (32,) int64, see `documents_by_length`.
    """

    def __init__(
        self,
        place: Place,
        part: int,
        fingerprint: str,
        output: OutputSettings,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._place, self._part, self._fingerprint = place, part, fingerprint
        self._algorithm, self._check = output.checksum, check
        self.counts: dict[int, Counts] = {}
        self.length_histogram = documents_by_length(np.zeros(0, np.int64))
        dtype = np.dtype(output.dtype).newbyteorder("<")
        self._splits = {
            split: SplitWriter(
                place.local,
                split,
                partial(shard_stem, split, part),
                dtype,
                output.shard_tokens,
                output.checksum,
                check,
            )
            for split in SPLITS
        }
        self._n_kept = dict.fromkeys(SPLITS, 0)
        self._rejects: RejectsFile | None = None
        self._rejects_entry: FileEntry | None = None

    @property
    def stage_s(self) -> dict[str, StageSeconds]:
        """Return the seconds of the shards that are ended, by stage."""
        seconds: dict[str, StageSeconds] = {}
        for writer in self._splits.values():
            add_seconds(seconds, writer.stage_s)
        return seconds

    @property
    def shards(self) -> tuple[ShardEntry, ...]:
        """Return the shards that are ended, those of train before those of val."""
        return tuple(entry for split in SPLITS for entry in self._splits[split].entries)

    def counts_of(self, slice_index: int) -> Counts:
        """Return the counts of a slice of the part, to be added to."""
        return self.counts.setdefault(slice_index, Counts()).mutable()

    def append(self, split: str, documents: EncodedDocuments) -> None:
        """Write documents of a split, and count their lengths; see `SplitWriter.append`."""
        self.length_histogram += documents_by_length(documents.lengths)
        self._splits[split].append(documents)

    def reject(self, source: str, place: RecordPlace, reject: Reject) -> None:
        """Write a reject; `source` is the path of its file, `place` is its place there."""
        if self._rejects is None:
            name = rejects_name(self._part)
            self._rejects = RejectsFile(self._place.local, name, self._algorithm)
        self._rejects.append(source, place, reject)

    def keep_ended(self) -> None:
        """Make the shards that are ended stand in the place; raises what `check` raises."""
        for split in SPLITS:
            entries = self._splits[split].entries
            for entry in entries[self._n_kept[split] :]:
                # The `.bin` last: in a store, too, it never stands without its sidecars.
                for file in reversed(entry.files):
                    self._place.keep(file, self._check)
                self._n_kept[split] += 1

    def end(self) -> None:
        """End the open files."""
        for split in SPLITS:
            self._splits[split].end()
        if self._rejects is not None:
            self._rejects_entry = self._rejects.commit_entry()

    def finish(self) -> PartRecord:
        """Write the part's record after all files were ended; an earlier record stays valid.

        Raises:
            StateError: another record of this part is there, or `check` raises.
        """
        self.keep_ended()
        if self._rejects_entry is not None:
            self._place.keep(self._rejects_entry, self._check)
        record = PartRecord(
            self._part,
            self._fingerprint,
            self.shards,
            self._rejects_entry,
            tuple(starmap(SliceCounts, sorted(self.counts.items()))),
            tuple(np.trim_zeros(self.length_histogram, "b").tolist()),
        )
        self._check()
        name = f"{PARTS}/{part_name(self._part)}"
        if not self._place.create(name, [record.as_bytes()]):
            raise StateError(
                f"{self._place.where}/{name}: holds another record of this part than the one just "
                "made: another run writes there too: choose another --output"
            )
        return record

    def close(self) -> None:
        """Close the open files; of a part that is stopped, only its rejects are kept.

        They get a name of their own. Nothing is raised: there is an error already.
        """
        for writer in self._splits.values():
            writer.discard()  # first: what is removed makes room on a full disk
        if self._rejects is None or self._rejects_entry is not None:
            return
        with self._rejects as rejects, suppress(TokmillError):
            self._check()
            name = stopped_rejects_name(self._part)
            self._place.keep(rejects.commit_stopped(name), self._check)
