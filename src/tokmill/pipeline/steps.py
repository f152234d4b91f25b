"""Cuts a part's documents into steps and commits them: a shard of each split, rejects, a record.

A step ends before the record whose documents would make one of its shards longer than
`shard_tokens`; a longer one gets a shard of its own. Where a step ends depends on the documents
alone, and never between two samples of a record: the next step begins at a record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import RecordError
from tokmill.laps import add_seconds
from tokmill.pipeline.rejects import RejectsFile, describe_reject
from tokmill.pipeline.spec import Progress
from tokmill.shards.layout import (
    PARTS,
    SPLITS,
    part_name,
    rejects_name,
    shard_stem,
    step_name,
)
from tokmill.shards.record import Counts, Next, PartRecord, Step, read_committed, read_record
from tokmill.shards.writer import ShardWriter
from tokmill.storage import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tokmill.batch import Place
    from tokmill.pipeline.encoded import Encoded

N_LENGTH_BINS = 32


class StepWriter:
    """Writes one part, step by step; holds at most one open shard of each split.

    `stage_s`: seconds that committed steps took, by stage.
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
    ) -> None:
        self._directory = directory
        self._part = part
        self._fingerprint = fingerprint
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._fail_on_reject = fail_on_reject
        self._algorithm = algorithm
        self._steps: list[Step] = []
        self.stage_s: dict[str, float] = {}
        self._open_step()

    def _open_step(self) -> None:
        self._shards: dict[str, ShardWriter] = {}
        self._rejects: RejectsFile | None = None
        self._counts: dict[int, Counts] = {}
        self._histogram = np.zeros(N_LENGTH_BINS, np.int64)

    def resume(self) -> tuple[Next | None, Counts]:
        """Take over the steps that an earlier attempt committed; give where the next one begins."""
        total = Counts()
        while record := read_committed(
            self._step_path(len(self._steps)), self._fingerprint, self._directory
        ):
            self._steps.append(record.steps[0])
        for step in self._steps:
            for counts in step.counts.values():
                total.add(counts)
        return (self._steps[-1].next if self._steps else None), total

    def add(
        self, slice_index: int, source: str, block: Encoded, origin: Callable[[], Place]
    ) -> Progress:
        """Write one block; commits every step that it fills.

        Raises:
            RecordError: it holds a reject and `on_error` is `fail`.
        """
        n, start, first_line, first_row, n_records = block.n_documents, 0, 0, 0, 0
        while True:
            stop = self._fitting(block, start)
            cut = None if stop == n else block.lookup.place(int(block.rows[stop]))
            end_row = None if cut is None else int(block.rows[stop])
            self._write(block, start, stop)
            n_records += self._count(slice_index, block, (start, stop), (first_row, end_row))
            self._reject(
                slice_index, source, block, origin, first_line, None if cut is None else cut.line
            )
            if cut is None or end_row is None:
                break
            self._commit_step(Next(slice_index, cut.line, cut.byte_offset))
            start, first_line, first_row = stop, cut.line, end_row
        if block.unread is not None:
            unread = replace(block.unread, place=block.unread.place.shifted(origin()))
            self._counts_of(slice_index).unread.append(unread)
        drops = {reason: len(rows) for reason, rows in block.drops.items()}
        first = ""
        if block.rejects:
            place = block.rejects[0].place.shifted(origin())
            first = describe_reject(source, place, block.rejects[0])
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
        self._counts_of(slice_index).input_bytes += input_bytes

    def finish(self) -> PartRecord:
        """Commit the last step and the part; if another attempt was first, its record holds."""
        self._commit_step(None)
        record = PartRecord(self._part, self._fingerprint, tuple(self._steps))
        path = self._directory / PARTS / part_name(self._part)
        if not write_whole(path, record.as_bytes(), first_wins=True):
            record = read_record(path, self._fingerprint) or record
        for step in range(len(self._steps)):
            self._step_path(step).unlink(missing_ok=True)
        return record

    def discard(self) -> None:
        """Remove everything that is not committed."""
        for shard in self._shards.values():
            shard.discard()
        if self._rejects is not None:
            self._rejects.discard()

    def _fitting(self, block: Encoded, start: int) -> int:
        """Give the first document from `start` on whose record opens a new step, or the end."""
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
            shard = self._shards.get(split)
            room = self._shard_tokens - (shard.n_tokens if shard else 0)
            fits = int(np.searchsorted(np.cumsum(n_tokens[records]), room, "right"))
            if shard is None:
                fits = max(fits, 1)
            if fits < len(records):
                n_fitting = min(n_fitting, int(records[fits]))
        return stop if n_fitting == len(firsts) else start + int(firsts[n_fitting])

    def _write(self, block: Encoded, start: int, stop: int) -> None:
        if start == stop:
            return
        span = slice(int(block.offsets[start]), int(block.offsets[stop]))
        tokens = block.tokens[span]
        sidecars = {ending: body[span] for ending, body in block.sidecars.items()}
        lengths = block.offsets[start + 1 : stop + 1] - block.offsets[start:stop]
        is_val = block.is_val[start:stop]
        if not is_val.any():
            self._append("train", tokens, lengths, sidecars)
            return
        for split, member in zip(SPLITS, (~is_val, is_val), strict=True):
            own = np.repeat(member, lengths)
            beside = {ending: body[own] for ending, body in sidecars.items()}
            self._append(split, tokens[own], lengths[member], beside)

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
            stem = shard_stem(split, self._part, len(self._steps))
            self._shards[split] = ShardWriter(
                self._directory,
                split,
                stem,
                self._dtype,
                tuple(sidecars),
                algorithm=self._algorithm,
            )
        self._shards[split].append(tokens, lengths, sidecars)
        exponents = np.frexp(lengths.astype(np.float64))[1] - 1
        self._histogram += np.bincount(exponents, minlength=N_LENGTH_BINS)

    def _counts_of(self, slice_index: int) -> Counts:
        return self._counts.setdefault(slice_index, Counts())

    def _count(
        self,
        slice_index: int,
        block: Encoded,
        documents: tuple[int, int],
        rows: tuple[int, int | None],
    ) -> int:
        """Count documents, and the drops of `rows`; give how many records they came from."""
        start, stop = documents
        dropped = {reason: _within(found, rows) for reason, found in block.drops.items()}
        outcomes = np.concatenate([block.rows[start:stop], *dropped.values()])
        n_records = len(np.unique(outcomes))
        counts = self._counts_of(slice_index)
        counts.documents += stop - start
        counts.records += n_records
        counts.extra += len(outcomes) - n_records
        counts.tokens += int(block.offsets[stop] - block.offsets[start])
        counts.text_bytes += int(block.text_bytes[start:stop].sum())
        counts.drops.update({reason: len(found) for reason, found in dropped.items() if len(found)})
        if block.mask is not None:
            mask = block.mask[block.offsets[start] : block.offsets[stop]]
            counts.trained_tokens += int(np.count_nonzero(mask))
        for name, noticed in block.counters.items():
            if n := int(noticed[start:stop].sum()):
                counts.counters[name] += n
        return n_records

    def _reject(
        self,
        slice_index: int,
        source: str,
        block: Encoded,
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
            if self._rejects is None:
                name = rejects_name(self._part, len(self._steps))
                self._rejects = RejectsFile(self._directory, name, self._algorithm)
            self._rejects.append(source, place, reject)
            counts = self._counts_of(slice_index)
            counts.rejects[reject.reason] += 1
            counts.records += 1

    def _commit_step(self, following: Next | None) -> None:
        shards = tuple(self._shards[split].commit() for split in SPLITS if split in self._shards)
        for shard in self._shards.values():
            add_seconds(self.stage_s, shard.stage_s)
        rejects = None if self._rejects is None else self._rejects.commit()
        used = len(np.trim_zeros(self._histogram, "b"))
        histogram = tuple(int(n) for n in self._histogram[:used])
        counts = dict(sorted(self._counts.items()))
        step = Step(shards, rejects, counts, histogram, following)
        if following is not None:
            record = PartRecord(self._part, self._fingerprint, (step,))
            write_whole(self._step_path(len(self._steps)), record.as_bytes(), first_wins=True)
        self._steps.append(step)
        self._open_step()

    def _step_path(self, step: int) -> Path:
        return self._directory / PARTS / step_name(self._part, step)


def _within(found: npt.NDArray[np.int64], rows: tuple[int, int | None]) -> npt.NDArray[np.int64]:
    """Give those of some rows, not decreasing, that are in a range; to the end if it has none."""
    start, stop = rows
    return found[
        np.searchsorted(found, start) : None if stop is None else np.searchsorted(found, stop)
    ]
