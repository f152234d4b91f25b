"""Write a part as commits: each makes a shard of each split, rejects and a record durable at once.

A commit ends before the record that would make one of its shards longer than `shard_tokens`; a
longer record gets a shard for itself. The ends depend on the documents alone, not on blocks or
workers, and a record with several samples is never divided. Between commits, the open one gets a
checkpoint every 30 seconds, so that a stopped attempt loses little.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.checkpoint import (
    Checkpoint,
    checkpoint_path,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from tokmill.dataset.commit_record import (
    Commit,
    PartRecord,
    ResumePoint,
    read_committed,
    read_record,
)
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import PARTS, SPLITS, commit_name, part_name
from tokmill.dataset.rejects import describe_reject
from tokmill.errors import RecordError, StorageError
from tokmill.recipes.spec import Increments
from tokmill.run.open_commit import OpenCommit
from tokmill.storage import remove_file, write_file
from tokmill.timing import StageTimer, add_seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.timing import StageSeconds
    from tokmill.values import Place, Reject

CHECKPOINT_S = 30.0
"""Seconds between checkpoints of an open commit. Each waits for the disk once, about 0.1 s."""


@dataclass(slots=True)
class PartWriter:
    """Writes one part, commit by commit; at most one shard of each split is open.

    `checkpoint_s`: seconds between checkpoints; infinite for an input that can be read only once.
    `n_added`: blocks and ends of slices so far. `stage_s`: seconds of finished commits, by stage.
    """

    directory: Path
    part: int
    fingerprint: str
    dtype: np.dtype[np.unsignedinteger]
    algorithm: str
    shard_tokens: int
    fail_on_reject: bool
    checkpoint_s: float = CHECKPOINT_S
    n_added: int = field(default=0, init=False)
    stage_s: dict[str, StageSeconds] = field(default_factory=dict, init=False)
    _commits: list[Commit] = field(default_factory=list, init=False)
    _is_adding: bool = field(default=False, init=False)
    _open: OpenCommit = field(init=False)
    _kept: frozenset[str] = field(init=False)
    _checkpoint_due_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Open the first commit."""
        self._open = self._open_next()

    def _open_next(self, resumed: Commit | None = None) -> OpenCommit:
        self._kept = frozenset()
        self._checkpoint_due_s = time.monotonic() + self.checkpoint_s
        number = len(self._commits)
        return OpenCommit(self.directory, self.part, number, self.dtype, self.algorithm, resumed)

    def resume(self) -> tuple[ResumePoint | None, Counts]:
        """Continue after the commits of an earlier attempt, and after its checkpoint if it fits.

        Returns:
            The place to read from, None for the beginning, and the counts of everything before it.
        """
        total = Counts()
        while record := read_committed(
            self._commit_path(len(self._commits)), self.fingerprint, self.directory
        ):
            self._commits.append(record.commits[0])
        self._open = self._open_next()
        following = self._commits[-1].next if self._commits else None
        if (resumed := self._resume_checkpoint()) is not None:
            following = resumed.next
        for counts_of in [commit.counts for commit in self._commits] + [self._open.counts]:
            for counts in counts_of.values():
                total.add(counts)
        return following, total

    def _resume_checkpoint(self) -> Commit | None:
        """Continue the commit of a checkpoint; remove a checkpoint that does not fit."""
        found = read_checkpoint(checkpoint_path(self.directory, self.part))
        if found is not None and (found.fingerprint, found.part, found.number) == (
            self.fingerprint,
            self.part,
            len(self._commits),
        ):
            try:
                self._open = self._open_next(found.commit)
            except StorageError:  # a file is missing or changed: the commit begins again
                self._open = self._open_next()
            else:
                self._kept = frozenset(found.names())
                return found.commit
        remove_checkpoint(self.directory, self.part)
        return None

    def add(
        self, slice_index: int, source: str, block: EncodedBlock, origin: Callable[[], Place]
    ) -> Increments:
        """Write one block, and end each commit that it fills.

        `source` is the path of its file; `origin` returns the place where its slice begins there.

        Raises:
            RecordError: the block has a reject and `on_error` is `fail`.
        """
        if time.monotonic() >= self._checkpoint_due_s:
            self.checkpoint_before(slice_index, block)
        self._is_adding = True
        n, start, first_line, first_row, n_records = block.n_documents, 0, 0, 0, 0
        while True:
            stop = self._fitting(block, start)
            cut = None if stop == n else block.lookup.place(int(block.rows[stop]))
            end_row = None if cut is None else int(block.rows[stop])
            self._open.write(slice_index, block, start, stop)
            n_records += self._open.count(slice_index, block, (start, stop), (first_row, end_row))
            for reject in block.rejects:
                if first_line <= reject.place.line and (
                    cut is None or reject.place.line < cut.line
                ):
                    self._write_reject(slice_index, source, reject.place.shifted(origin()), reject)
            if cut is None or end_row is None:
                break
            self._commit(ResumePoint(slice_index, cut.line, cut.byte_offset))
            start, first_line, first_row = stop, cut.line, end_row
        if block.unread is not None:
            unread = replace(block.unread, place=block.unread.place.shifted(origin()))
            self._open.counts_of(slice_index).unread.append(unread)
        drops = {reason: len(rows) for reason, rows in block.drops.items()}
        first = ""
        if block.rejects:
            place = block.rejects[0].place.shifted(origin())
            first = describe_reject(source, place, block.rejects[0])
        self._added()
        return Increments(
            input_bytes=block.input_bytes,
            text_bytes=int(block.text_bytes.sum()),
            records=n_records + len(block.rejects),
            documents=n,
            tokens=len(block.tokens),
            drops=drops,
            rejects=Counter(reject.reason for reject in block.rejects),
            first_reject=first,
        )

    def end_slice(
        self, slice_index: int, input_bytes: int, length: tuple[int, int] | None = None
    ) -> None:
        """Count a slice of `input_bytes` that was read to its end; `length`: see `Counts`."""
        self._is_adding = True
        counts = self._open.counts_of(slice_index)
        counts.input_bytes += input_bytes
        counts.length = length
        counts.compacted()
        self._added()

    def _added(self) -> None:
        self.n_added += 1
        self._is_adding = False

    @property
    def is_between_blocks(self) -> bool:
        """Return whether no block is half written; an interrupt can come at any moment."""
        return not self._is_adding

    def checkpoint_before(self, slice_index: int, block: EncodedBlock) -> None:
        """Make everything before a block durable; a later attempt begins with its first record.

        Without effect if that record was rejected: its place is not known.
        """
        place = _first_place(block)
        if place is None or math.isinf(self.checkpoint_s):
            return
        self._is_adding = True
        timer = StageTimer()
        commit = self._open.checkpoint(ResumePoint(slice_index, place.line, place.byte_offset))
        found = Checkpoint(self.part, self.fingerprint, self._open.number, commit)
        write_checkpoint(self.directory, found)
        self._kept = frozenset(found.names())
        timer.end("checkpoint")
        add_seconds(self.stage_s, timer.seconds)
        self._checkpoint_due_s = time.monotonic() + self.checkpoint_s
        self._is_adding = False

    def finish(self) -> PartRecord:
        """End the last commit and write the part's record; an earlier record of it stays valid."""
        self._commit(None)
        record = PartRecord(self.part, self.fingerprint, tuple(self._commits))
        path = self.directory / PARTS / part_name(self.part)
        if not write_file(path, record.as_bytes(), first_wins=True):
            record = read_record(path, self.fingerprint) or record
        for commit in range(len(self._commits)):
            remove_file(self._commit_path(commit))
        remove_checkpoint(self.directory, self.part)
        return record

    def close(self) -> None:
        """Close all files, and remove those that neither a commit nor a checkpoint names."""
        self._open.discard({name.rpartition("/")[2] for name in self._kept})

    def discard(self) -> None:
        """Close all files, and remove all that no commit names, checkpoint included."""
        self._open.discard()
        remove_checkpoint(self.directory, self.part)

    def _fitting(self, block: EncodedBlock, start: int) -> int:
        """Return the first document from `start` on that belongs to the next commit, or the end."""
        stop = block.n_documents
        most = max(self._open.n_tokens(split) or 0 for split in SPLITS)
        n_tokens = int(block.offsets[stop] - block.offsets[start])
        if start == stop or most + n_tokens <= self.shard_tokens:
            return stop  # nearly always: all of it fits in the shard of either split
        firsts = np.flatnonzero(np.diff(block.rows[start:], prepend=-1))
        lengths = np.diff(block.offsets[start:])
        is_val = block.is_val[start:]
        n_fitting = len(firsts)
        for split, member in zip(SPLITS, (~is_val, is_val), strict=True):
            of_records = np.add.reduceat(np.where(member, lengths, 0), firsts)
            records = np.flatnonzero(of_records)
            in_shard = self._open.n_tokens(split)
            room = self.shard_tokens - (in_shard or 0)
            fits = int(np.searchsorted(np.cumsum(of_records[records]), room, "right"))
            if in_shard is None:
                fits = max(fits, 1)
            if fits < len(records):
                n_fitting = min(n_fitting, int(records[fits]))
        return stop if n_fitting == len(firsts) else start + int(firsts[n_fitting])

    def _write_reject(self, slice_index: int, source: str, place: Place, reject: Reject) -> None:
        if self.fail_on_reject:
            message = describe_reject(source, place, reject)
            raise RecordError(f"{message}; --on-error skip counts it and goes on")
        self._open.reject(slice_index, source, place, reject)

    def _commit(self, following: ResumePoint | None) -> None:
        commit = self._open.commit(following)
        add_seconds(self.stage_s, self._open.stage_s)
        if following is not None:
            record = PartRecord(self.part, self.fingerprint, (commit,))
            write_file(self._commit_path(len(self._commits)), record.as_bytes(), first_wins=True)
            remove_checkpoint(self.directory, self.part)
        self._commits.append(commit)
        self._open = self._open_next()

    def _commit_path(self, commit: int) -> Path:
        return self.directory / PARTS / commit_name(self.part, commit)


def _first_place(block: EncodedBlock) -> Place | None:
    """Return the place of a block's first record; None without records, or if it was rejected."""
    firsts = [int(rows[0]) for rows in (block.rows, *block.drops.values()) if len(rows)]
    if not firsts:
        return None
    place = block.lookup.place(min(firsts))
    return None if block.rejects and block.rejects[0].place < place else place
