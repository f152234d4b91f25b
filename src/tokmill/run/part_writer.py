"""Cuts a part's documents into commits and commits them: a shard of each split, rejects, a record.

A commit ends before the record whose documents would make one of its shards longer than
`shard_tokens`; a longer one gets a shard of its own. Where a commit ends depends on the documents
alone, and never between two samples of a record: the next commit begins at a record. In between, an
open commit gets checkpoints by time, so that an attempt that is stopped loses little.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
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
from tokmill.recipes.spec import Progress
from tokmill.run.open_commit import OpenCommit
from tokmill.storage import write_file
from tokmill.timing import StageTimer, add_seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.values import Place

CHECKPOINT_S = 30.0
"""An open commit gets a checkpoint so often. Each waits for the disk once, some 0.1 s."""


class PartWriter:
    """Writes one part, commit by commit; holds at most one open shard of each split.

    `checkpoint_s`: seconds between checkpoints of the open commit; infinite for an input that can
    be read once only. `n_taken`: blocks and ends of slices taken so far. `stage_s`: seconds spent
    on finished commits, by stage.
    """

    def __init__(
        self,
        directory: Path,
        part: int,
        fingerprint: str,
        *,
        dtype: np.dtype[np.unsignedinteger],
        shard_tokens: int,
        fail_on_reject: bool,
        algorithm: str,
        checkpoint_s: float = CHECKPOINT_S,
    ) -> None:
        self._directory = directory
        self._part = part
        self._fingerprint = fingerprint
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._fail_on_reject = fail_on_reject
        self._algorithm = algorithm
        self._checkpoint_s = checkpoint_s
        self._commits: list[Commit] = []
        self.n_taken = 0
        self._is_half_taken = False
        self.stage_s: dict[str, float] = {}
        self._open = self._open_next()

    def _open_next(self, left: Commit | None = None) -> OpenCommit:
        self._kept: frozenset[str] = frozenset()
        self._checkpoint_due_s = time.monotonic() + self._checkpoint_s
        return OpenCommit(
            self._directory,
            self._part,
            len(self._commits),
            dtype=self._dtype,
            algorithm=self._algorithm,
            left=left,
        )

    def resume(self) -> tuple[ResumePoint | None, Counts]:
        """Take over what an earlier attempt committed, and its checkpoint if it fits.

        Returns:
            Where to go on, None for the beginning, and the counts of all before.
        """
        total = Counts()
        while record := read_committed(
            self._commit_path(len(self._commits)), self._fingerprint, self._directory
        ):
            self._commits.append(record.commits[0])
        self._open = self._open_next()
        following = self._commits[-1].next if self._commits else None
        if (left := self._take_checkpoint()) is not None:
            following = left.next
        for counts_of in [commit.counts for commit in self._commits] + [self._open.counts]:
            for counts in counts_of.values():
                total.add(counts)
        return following, total

    def _take_checkpoint(self) -> Commit | None:
        """Go on with the commit that a checkpoint holds; remove one that does not fit."""
        found = read_checkpoint(checkpoint_path(self._directory, self._part))
        if found is not None and (found.fingerprint, found.part, found.number) == (
            self._fingerprint,
            self._part,
            len(self._commits),
        ):
            try:
                self._open = self._open_next(found.commit)
            except StorageError:  # a file is gone, cut or changed: the commit begins anew
                self._open = self._open_next()
            else:
                self._kept = frozenset(found.names())
                return found.commit
        remove_checkpoint(self._directory, self._part)
        return None

    def add(
        self, slice_index: int, source: str, block: EncodedBlock, origin: Callable[[], Place]
    ) -> Progress:
        """Write one block; commits every commit that it fills.

        Raises:
            RecordError: it holds a reject and `on_error` is `fail`.
        """
        if time.monotonic() >= self._checkpoint_due_s:
            self.checkpoint_before(slice_index, block)
        self._is_half_taken = True
        n, start, first_line, first_row, n_records = block.n_documents, 0, 0, 0, 0
        while True:
            stop = self._fitting(block, start)
            cut = None if stop == n else block.lookup.place(int(block.rows[stop]))
            end_row = None if cut is None else int(block.rows[stop])
            self._open.write(block, start, stop)
            n_records += self._open.count(slice_index, block, (start, stop), (first_row, end_row))
            self._reject(
                slice_index, source, block, origin, first_line, None if cut is None else cut.line
            )
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
        self._took()
        return Progress(
            input_bytes=block.input_bytes,
            text_bytes=int(block.text_bytes.sum()),
            records=n_records + len(block.rejects),
            documents=n,
            tokens=len(block.tokens),
            drops=drops,
            rejects=Counter(reject.reason for reject in block.rejects),
            first_reject=first,
        )

    def end_slice(self, slice_index: int, input_bytes: int) -> None:
        """Note that a slice of `input_bytes` has been read to its end."""
        self._is_half_taken = True
        self._open.counts_of(slice_index).input_bytes += input_bytes
        self._took()

    def _took(self) -> None:
        self.n_taken += 1
        self._is_half_taken = False

    @property
    def is_between_blocks(self) -> bool:
        """Return whether all that was taken is written: an interrupt may come in the middle."""
        return not self._is_half_taken

    def checkpoint_before(self, slice_index: int, block: EncodedBlock) -> None:
        """Make durable all that was taken, unless the block's first record was refused.

        An attempt that continues begins with that record.
        """
        place = _first_place(block)
        if place is None or math.isinf(self._checkpoint_s):
            return
        self._is_half_taken = True
        laps = StageTimer()
        commit = self._open.checkpoint(ResumePoint(slice_index, place.line, place.byte_offset))
        found = Checkpoint(self._part, self._fingerprint, self._open.number, commit)
        write_checkpoint(self._directory, found)
        self._kept = frozenset(found.names())
        laps.end("checkpoint")
        add_seconds(self.stage_s, laps.seconds)
        self._checkpoint_due_s = time.monotonic() + self._checkpoint_s
        self._is_half_taken = False

    def finish(self) -> PartRecord:
        """Commit the last commit and the part; if another attempt was first, its record holds."""
        self._commit(None)
        record = PartRecord(self._part, self._fingerprint, tuple(self._commits))
        path = self._directory / PARTS / part_name(self._part)
        if not write_file(path, record.as_bytes(), first_wins=True):
            record = read_record(path, self._fingerprint) or record
        for commit in range(len(self._commits)):
            self._commit_path(commit).unlink(missing_ok=True)
        remove_checkpoint(self._directory, self._part)
        return record

    def close(self) -> None:
        """Close all files; what is not committed goes, but for what a checkpoint names."""
        self._open.discard({name.rpartition("/")[2] for name in self._kept})

    def discard(self) -> None:
        """Close all files, and remove everything that is not committed."""
        self._open.discard()
        remove_checkpoint(self._directory, self._part)

    def _fitting(self, block: EncodedBlock, start: int) -> int:
        """Give the first document from `start` on whose record opens a new commit, or the end."""
        stop = block.n_documents
        if start == stop:
            return stop
        firsts = np.flatnonzero(np.diff(block.rows[start:], prepend=-1))
        lengths = np.diff(block.offsets[start:])
        is_val = block.is_val[start:]
        n_fitting = len(firsts)
        for split, member in zip(SPLITS, (~is_val, is_val), strict=True):
            n_tokens = np.add.reduceat(np.where(member, lengths, 0), firsts)
            records = np.flatnonzero(n_tokens)
            held = self._open.n_tokens(split)
            room = self._shard_tokens - (held or 0)
            fits = int(np.searchsorted(np.cumsum(n_tokens[records]), room, "right"))
            if held is None:
                fits = max(fits, 1)
            if fits < len(records):
                n_fitting = min(n_fitting, int(records[fits]))
        return stop if n_fitting == len(firsts) else start + int(firsts[n_fitting])

    def _reject(
        self,
        slice_index: int,
        source: str,
        block: EncodedBlock,
        origin: Callable[[], Place],
        first_line: int,
        end_line: int | None,
    ) -> None:
        for reject in block.rejects:
            line = reject.place.line
            if line < first_line or (end_line is not None and line >= end_line):
                continue
            place = reject.place.shifted(origin())
            if self._fail_on_reject:
                message = describe_reject(source, place, reject)
                raise RecordError(f"{message}; --on-error skip counts it and goes on")
            self._open.reject(slice_index, source, place, reject)

    def _commit(self, following: ResumePoint | None) -> None:
        commit = self._open.commit(following)
        add_seconds(self.stage_s, self._open.stage_s)
        if following is not None:
            record = PartRecord(self._part, self._fingerprint, (commit,))
            write_file(self._commit_path(len(self._commits)), record.as_bytes(), first_wins=True)
            remove_checkpoint(self._directory, self._part)
        self._commits.append(commit)
        self._open = self._open_next()

    def _commit_path(self, commit: int) -> Path:
        return self._directory / PARTS / commit_name(self._part, commit)


def _first_place(block: EncodedBlock) -> Place | None:
    """Return the place of a block's first record; None if it has none, or that was refused."""
    firsts = [int(rows[0]) for rows in (block.rows, *block.drops.values()) if len(rows)]
    if not firsts:
        return None
    place = block.lookup.place(min(firsts))
    return None if block.rejects and block.rejects[0].place < place else place
