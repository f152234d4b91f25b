"""The commit that is being written: a shard of each split, a file of rejects, and counts."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checkpoint import final_name
from tokmill.dataset.commit_record import Commit, ResumePoint
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import ORIGIN, REJECTS, SIDECARS, SPLITS, rejects_name, shard_stem
from tokmill.dataset.origin_file import origin_numbers
from tokmill.dataset.rejects import RejectsFile
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import StorageError
from tokmill.fields import add_fields
from tokmill.timing import add_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.writer import ShardEntry
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.timing import StageSeconds
    from tokmill.values import Place, Reject, UnreadKeys

N_LENGTH_BINS = 32


@dataclass(slots=True)
class OpenCommit:
    """Commit `number` of a part, until it is committed or discarded.

    `resumed`: returned by `checkpoint` in an earlier attempt; its files are appended to, and a
    `StorageError` means that they have changed. `stage_s`: of `ShardWriter`, once committed.
    """

    directory: Path
    part: int
    number: int
    dtype: np.dtype[np.unsignedinteger]
    algorithm: str
    resumed: InitVar[Commit | None] = None
    counts: dict[int, Counts] = field(default_factory=dict, init=False)
    stage_s: dict[str, StageSeconds] = field(default_factory=dict, init=False)
    _shards: dict[str, ShardWriter] = field(default_factory=dict, init=False)
    _rejects: RejectsFile | None = field(default=None, init=False)
    _histogram: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self, resumed: Commit | None) -> None:
        """Open the files of a commit that is resumed."""
        self._histogram = np.zeros(N_LENGTH_BINS, np.int64)
        if resumed is not None:
            self._resume(resumed)

    def _resume(self, resumed: Commit) -> None:
        try:
            for shard in resumed.shards:
                stem = shard_stem(shard.split, self.part, self.number)
                self._open_shard(shard.split, _sidecars(shard, stem), shard)
            if resumed.rejects is not None:
                name = final_name(resumed.rejects.name.removeprefix(f"{REJECTS}/"))
                if name != rejects_name(self.part, self.number):
                    raise StorageError(f"{resumed.rejects.name}: belongs to another commit")
                self._rejects = RejectsFile(self.directory, name, self.algorithm, resumed.rejects)
        except BaseException:
            self.discard()
            raise
        self.counts = dict(resumed.counts)
        self._histogram[: len(resumed.length_histogram)] = resumed.length_histogram

    def _open_shard(
        self, split: str, sidecars: tuple[str, ...], resumed: ShardEntry | None = None
    ) -> None:
        stem = shard_stem(split, self.part, self.number)
        self._shards[split] = ShardWriter(
            self.directory,
            split,
            stem,
            self.dtype,
            sidecars,
            algorithm=self.algorithm,
            resumed=resumed,
        )

    def n_tokens(self, split: str) -> int | None:
        """Return the tokens of a split's shard; None if there is no shard yet."""
        shard = self._shards.get(split)
        return None if shard is None else shard.n_tokens

    def counts_of(self, slice_index: int) -> Counts:
        """Return the counts of a slice, to add to."""
        return self.counts.setdefault(slice_index, Counts()).mutable()

    def write(self, slice_index: int, block: EncodedBlock, start: int, stop: int) -> None:
        """Append documents start:stop of a block to the shards of their splits."""
        if start == stop:
            return
        span = slice(int(block.offsets[start]), int(block.offsets[stop]))
        tokens = block.tokens[span]
        sidecars = {ending: body[span] for ending, body in block.sidecars.items()}
        lengths = block.offsets[start + 1 : stop + 1] - block.offsets[start:stop]
        is_val = block.is_val[start:stop]
        origins = origin_numbers(slice_index, block.lookup.places(block.rows[start:stop]))
        if not is_val.any():
            self._append("train", tokens, lengths, {**sidecars, ORIGIN: origins})
            return
        for split, member in zip(SPLITS, (~is_val, is_val), strict=True):
            of_split = np.repeat(member, lengths)
            of_sidecars = {ending: body[of_split] for ending, body in sidecars.items()}
            of_sidecars[ORIGIN] = origins[member]
            self._append(split, tokens[of_split], lengths[member], of_sidecars)

    def _append(
        self,
        split: str,
        tokens: npt.NDArray[np.unsignedinteger],
        lengths: npt.NDArray[np.int64],
        sidecars: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        if not len(lengths):
            return
        if split not in self._shards:
            self._open_shard(split, tuple(sidecars))
        self._shards[split].append(tokens, lengths, sidecars)
        exponents = np.frexp(lengths.astype(np.float64))[1] - 1
        self._histogram += np.bincount(exponents, minlength=N_LENGTH_BINS)

    def count(
        self,
        slice_index: int,
        block: EncodedBlock,
        documents: tuple[int, int],
        rows: tuple[int, int | None],
    ) -> int:
        """Count a range of documents and the drops in a range of rows; return their records."""
        start, stop = documents
        dropped = {reason: _within(found, rows) for reason, found in block.drops.items()}
        outcomes = np.concatenate([block.rows[start:stop], *dropped.values()])
        n_records = len(np.unique(outcomes))
        counts = self.counts_of(slice_index)
        counts.documents += stop - start
        counts.records += n_records
        counts.extra += len(outcomes) - n_records
        counts.tokens += int(block.offsets[stop] - block.offsets[start])
        counts.text_bytes += int(block.text_bytes[start:stop].sum())
        counts.drops.update({reason: len(found) for reason, found in dropped.items() if len(found)})
        if block.mask is not None:
            mask = block.mask[block.offsets[start] : block.offsets[stop]]
            counts.trained_tokens += int(np.count_nonzero(mask))
        for sums, found in ((counts.counters, block.counters), (counts.checks, block.checks)):
            for name, of_documents in found.items():
                if n := int(of_documents[start:stop].sum()):
                    sums[name] += n
        if block.unread_keys is not None:
            _count_unread(counts, block.unread_keys, block.rows[start:stop])
        for row, fields in block.fields:
            if rows[0] <= row and (rows[1] is None or row < rows[1]):
                add_fields(counts.fields, fields)
        return n_records

    def reject(self, slice_index: int, source: str, place: Place, reject: Reject) -> None:
        """Write and count a reject; `place` is its place in the file."""
        if self._rejects is None:
            name = rejects_name(self.part, self.number)
            self._rejects = RejectsFile(self.directory, name, self.algorithm)
        self._rejects.append(source, place, reject)
        counts = self.counts_of(slice_index)
        counts.rejects[reject.reason] += 1
        counts.records += 1

    def checkpoint(self, following: ResumePoint) -> Commit:
        """Make the commit durable so far, and return it with the temporary names of its files."""
        shards = tuple(self._shards[s].checkpoint() for s in SPLITS if s in self._shards)
        rejects = None if self._rejects is None else self._rejects.checkpoint()
        return self._described(shards, rejects, following)

    def commit(self, following: ResumePoint | None) -> Commit:
        """Make the files appear under their names, and return the commit."""
        shards = tuple(self._shards[s].commit() for s in SPLITS if s in self._shards)
        for shard in self._shards.values():
            add_seconds(self.stage_s, shard.stage_s)
        rejects = None if self._rejects is None else self._rejects.commit()
        return self._described(shards, rejects, following)

    def _described(
        self,
        shards: tuple[ShardEntry, ...],
        rejects: FileEntry | None,
        following: ResumePoint | None,
    ) -> Commit:
        used = len(np.trim_zeros(self._histogram, "b"))
        histogram = tuple(int(n) for n in self._histogram[:used])
        counts = dict(sorted(self.counts.items()))
        return Commit(shards, rejects, counts, histogram, following)

    def discard(self, keep: Collection[str] = ()) -> None:
        """Close the files, and remove those whose temporary names are not in `keep`."""
        for shard in self._shards.values():
            shard.discard(keep)
        if self._rejects is not None:
            self._rejects.discard(keep)


def _count_unread(counts: Counts, keys: UnreadKeys, rows: npt.NDArray[np.int64]) -> None:
    """Count the unread keys of records with documents, in the order of their first record.

    That order decides which keys get a name, and does not depend on the size of blocks.
    """
    found = keys.of_row[np.unique(rows)]
    kinds, first, n_records = np.unique(found[found >= 0], return_index=True, return_counts=True)
    for i in np.argsort(first):
        for key in keys.sets[int(kinds[i])]:
            counts.add_unread_key(key, int(n_records[i]))


def _sidecars(shard: ShardEntry, stem: str) -> tuple[str, ...]:
    """Return the sidecars of a checkpoint's shard; raises `StorageError` if it is another shard."""
    names = [final_name(entry.name) for entry in shard.files]
    endings = tuple(name.removeprefix(f"{stem}.") for name in names)
    if endings[:2] != ("bin", "idx") or not set(endings[2:]) <= {*SIDECARS, ORIGIN}:
        raise StorageError(f"{stem}: the checkpoint has other files: {', '.join(names)}")
    return endings[2:]


def _within(found: npt.NDArray[np.int64], rows: tuple[int, int | None]) -> npt.NDArray[np.int64]:
    """Return the rows, which do not decrease, that are in a range; None as stop: to the end."""
    start, stop = rows
    return found[
        np.searchsorted(found, start) : None if stop is None else np.searchsorted(found, stop)
    ]
