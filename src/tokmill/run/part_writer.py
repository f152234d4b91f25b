"""Write the files of a part: the shards of each split, the rejects, and the record, last.

A shard ends before the record that would make it longer than `shard_tokens`; a longer record gets
a shard for itself. The ends depend on the documents alone, not on blocks or workers, and a record
with several samples is never divided.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import (
    ORIGIN,
    PARTS,
    SPLITS,
    part_name,
    rejects_name,
    shard_stem,
)
from tokmill.dataset.origin_file import origin_numbers
from tokmill.dataset.part_record import PartRecord
from tokmill.dataset.rejects import RejectsFile, describe_reject
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import RecordError, StateError
from tokmill.fields import add_fields
from tokmill.recipes.spec import Increments
from tokmill.timing import add_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tokmill import values
    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.place import Place
    from tokmill.dataset.writer import ShardEntry
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.timing import StageSeconds
    from tokmill.values import Reject, UnreadKeys

_N_LENGTH_BINS = 32


@dataclass(slots=True)
class PartWriter:
    """Writes the files of one part; at most one shard of each split is open.

    `check` is called before a file or the record appears in the place, and may raise. `stage_s`:
    seconds of the ended shards, by stage.
    """

    place: Place
    part: int
    fingerprint: str
    dtype: np.dtype[np.unsignedinteger]
    algorithm: str
    shard_tokens: int
    fail_on_reject: bool
    check: Callable[[], None]
    stage_s: dict[str, StageSeconds] = field(default_factory=dict, init=False)
    _open: dict[str, ShardWriter] = field(default_factory=dict, init=False)
    _shards: dict[str, list[ShardEntry]] = field(init=False)
    _ended: list[FileEntry] = field(default_factory=list, init=False)
    _rejects: RejectsFile | None = field(default=None, init=False)
    _rejects_entry: FileEntry | None = field(default=None, init=False)
    _counts: dict[int, Counts] = field(default_factory=dict, init=False)
    _histogram: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Begin without shards."""
        self._shards = {split: [] for split in SPLITS}
        self._histogram = np.zeros(_N_LENGTH_BINS, np.int64)

    def add(
        self,
        slice_index: int,
        source: str,
        block: EncodedBlock,
        origin: Callable[[], values.RecordPlace],
    ) -> Increments:
        """Write one block, and end each shard that it fills.

        `source` is the path of its file; `origin` returns the place where its slice begins there.

        Raises:
            RecordError: the block has a reject and `on_error` is `fail`.
        """
        counts = self._counts_of(slice_index)
        first_reject = ""
        for reject in block.rejects:
            place = reject.place.shifted(origin())
            first_reject = first_reject or describe_reject(source, place, reject)
            self._add_reject(source, place, reject, counts)
        self._write(slice_index, block)
        n_records = _count(block, counts)
        if block.unread is not None:
            place = block.unread.place.shifted(origin())
            counts.unread.append(replace(block.unread, place=place))
        return Increments(
            input_bytes=block.input_bytes,
            text_bytes=int(block.text_bytes.sum()),
            records=n_records + len(block.rejects),
            documents=block.n_documents,
            tokens=len(block.tokens),
            drops={reason: len(rows) for reason, rows in block.drops.items()},
            rejects=Counter(reject.reason for reject in block.rejects),
            first_reject=first_reject,
        )

    def end_slice(
        self, slice_index: int, input_bytes: int, length: tuple[int, int] | None = None
    ) -> None:
        """Count a slice of `input_bytes` that was read to its end; `length`: see `Counts`."""
        counts = self._counts_of(slice_index)
        counts.input_bytes += input_bytes
        counts.length = length
        counts.compacted()

    def keep_ended(self) -> None:
        """Make the files that are ended stand in the place; raises what `check` raises."""
        while self._ended:
            self.place.keep(self._ended[-1], self.check)
            self._ended.pop()

    def end(self) -> None:
        """End the open files."""
        for split in SPLITS:
            self._end_shard(split)
        if self._rejects is not None:
            self._rejects_entry = self._rejects.commit()
            self._ended.append(self._rejects_entry)

    def finish(self) -> PartRecord:
        """Write the part's record after all files were ended; an earlier record stays valid.

        Raises:
            StateError: another record of this part is there, or `check` raises.
        """
        self.keep_ended()
        used = len(np.trim_zeros(self._histogram, "b"))
        record = PartRecord(
            self.part,
            self.fingerprint,
            tuple(shard for split in SPLITS for shard in self._shards[split]),
            self._rejects_entry,
            dict(sorted(self._counts.items())),
            tuple(int(n) for n in self._histogram[:used]),
        )
        self.check()
        name = f"{PARTS}/{part_name(self.part)}"
        if not self.place.create(name, [record.as_bytes()]):
            raise StateError(
                f"{self.place.where}/{name}: holds another record of this part than the one just "
                "made: another run writes there too: choose another --output"
            )
        return record

    def close(self) -> None:
        """Close the open files and remove them."""
        for shard in self._open.values():
            shard.discard()
        if self._rejects is not None:
            self._rejects.discard()

    def _counts_of(self, slice_index: int) -> Counts:
        return self._counts.setdefault(slice_index, Counts()).mutable()

    def _add_reject(
        self, source: str, place: values.RecordPlace, reject: Reject, counts: Counts
    ) -> None:
        if self.fail_on_reject:
            message = describe_reject(source, place, reject)
            raise RecordError(f"{message}; --on-error=skip counts it and goes on")
        if self._rejects is None:
            name = rejects_name(self.part)
            self._rejects = RejectsFile(self.place.local, name, self.algorithm)
        self._rejects.append(source, place, reject)
        counts.rejects[reject.reason] += 1
        counts.records += 1

    def _write(self, slice_index: int, block: EncodedBlock) -> None:
        """Append the documents of a block to the shards of their splits."""
        if not block.n_documents:
            return
        lengths = np.diff(block.offsets)
        exponents = np.frexp(lengths.astype(np.float64))[1] - 1
        self._histogram += np.bincount(exponents, minlength=_N_LENGTH_BINS)
        origins = origin_numbers(slice_index, block.lookup.places(block.rows))
        documents = _Documents(
            block.tokens, lengths, block.rows, {**block.sidecars, ORIGIN: origins}
        )
        if block.is_val.any():
            self._append("train", documents.chosen(~block.is_val))
            self._append("val", documents.chosen(block.is_val))
        else:
            self._append("train", documents)

    def _append(self, split: str, documents: _Documents) -> None:
        while documents.n_documents:
            shard = self._open.get(split)
            n_tokens = 0 if shard is None else shard.n_tokens
            stop = documents.fitting(self.shard_tokens - n_tokens, at_least_one=shard is None)
            if stop:
                if shard is None:
                    shard = self._open_shard(split, tuple(documents.sidecars))
                fitting, documents = documents.cut(stop)
                shard.append(fitting.tokens, fitting.lengths, fitting.sidecars)
            if documents.n_documents:
                self._end_shard(split)

    def _open_shard(self, split: str, sidecars: tuple[str, ...]) -> ShardWriter:
        stem = shard_stem(split, self.part, len(self._shards[split]))
        self._open[split] = ShardWriter(
            self.place.local, split, stem, self.dtype, sidecars, algorithm=self.algorithm
        )
        return self._open[split]

    def _end_shard(self, split: str) -> None:
        shard = self._open.get(split)
        if shard is not None:
            self.check()  # in a directory, its files appear now
            entry = shard.commit()
            self._shards[split].append(entry)
            self._ended += entry.files
            del self._open[split]
            add_seconds(self.stage_s, shard.stage_s)


@dataclass(frozen=True, slots=True)
class _Documents:
    """Documents of one split: tokens end to end, lengths (n,), rows (n,), and sidecars.

    A sidecar has a value for every token, `ORIGIN` one for every document.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    sidecars: Mapping[str, npt.NDArray[Any]]

    @property
    def n_documents(self) -> int:
        return len(self.lengths)

    def chosen(self, member: npt.NDArray[np.bool_]) -> _Documents:
        """Return the documents that are members, (n,)."""
        of_tokens = np.repeat(member, self.lengths)
        sidecars = {
            ending: body[member if ending == ORIGIN else of_tokens]
            for ending, body in self.sidecars.items()
        }
        return _Documents(self.tokens[of_tokens], self.lengths[member], self.rows[member], sidecars)

    def fitting(self, room: int, *, at_least_one: bool) -> int:
        """Return how many documents, in whole records, have at most `room` tokens."""
        if len(self.tokens) <= room:
            return self.n_documents  # nearly always
        firsts = np.flatnonzero(np.diff(self.rows, prepend=-1))
        ends = np.cumsum(np.add.reduceat(self.lengths, firsts))
        n_records = max(int(np.searchsorted(ends, room, "right")), int(at_least_one))
        return int(firsts[n_records]) if n_records < len(firsts) else self.n_documents

    def cut(self, stop: int) -> tuple[_Documents, _Documents]:
        """Return the documents before `stop`, and those from it on."""
        n_tokens = int(self.lengths[:stop].sum())

        def part(documents: slice, tokens: slice) -> _Documents:
            sidecars = {
                ending: body[documents if ending == ORIGIN else tokens]
                for ending, body in self.sidecars.items()
            }
            return _Documents(
                self.tokens[tokens], self.lengths[documents], self.rows[documents], sidecars
            )

        return part(slice(stop), slice(n_tokens)), part(slice(stop, None), slice(n_tokens, None))


def _count(block: EncodedBlock, counts: Counts) -> int:
    """Add the documents and drops of a block to the counts of its slice; return their records."""
    outcomes = np.concatenate([block.rows, *block.drops.values()])
    n_records = len(np.unique(outcomes))
    counts.documents += block.n_documents
    counts.records += n_records
    counts.extra += len(outcomes) - n_records
    counts.tokens += len(block.tokens)
    counts.text_bytes += int(block.text_bytes.sum())
    counts.drops.update({reason: len(rows) for reason, rows in block.drops.items() if len(rows)})
    if block.mask is not None:
        counts.trained_tokens += int(np.count_nonzero(block.mask))
    for sums, of_block in ((counts.counters, block.counters), (counts.checks, block.checks)):
        for name, of_documents in of_block.items():
            if n := int(of_documents.sum()):
                sums[name] += n
    if block.unread_keys is not None:
        _count_unread_keys(counts, block.unread_keys, block.rows)
    for _, fields in block.fields:
        add_fields(counts.fields, fields)
    return n_records


def _count_unread_keys(counts: Counts, keys: UnreadKeys, rows: npt.NDArray[np.int64]) -> None:
    """Count the unread keys of records with documents, in the order of their first record.

    That order decides which keys get a name, and does not depend on the size of blocks.
    """
    of_record = keys.of_row[np.unique(rows)]
    kinds, first, n_records = np.unique(
        of_record[of_record >= 0], return_index=True, return_counts=True
    )
    for i in np.argsort(first):
        for key in keys.sets[int(kinds[i])]:
            counts.add_unread_key(key, int(n_records[i]))
