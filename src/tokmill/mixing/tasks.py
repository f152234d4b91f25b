"""The tasks of a mix, in this process or on workers; each leaves a file when it is done.

A task that is done is not done again, unless the machine was started anew since: what tasks write
for each other is not synced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.children import Child, ChildEndedError, Parent, share_out
from tokmill.dataset.layout import SHARD_BYTES
from tokmill.errors import TokmillError, WorkerError
from tokmill.loader.order import shuffled
from tokmill.mixing.batch import bounds, read_chunk, read_run, sorted_by_place, write_run
from tokmill.mixing.output import Shards, amounts_of, ranges_of
from tokmill.mixing.selection import Selection
from tokmill.mixing.settings import DROP, MARK, MixSettings
from tokmill.mixing.survey import Survey, find_duplicates, open_reasons, survey_chunk
from tokmill.mixing.temporary import Temporary
from tokmill.settings.schema import BLAKE3
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.dataset.place import Place
    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.output import OutputPart, Piece
    from tokmill.mixing.selection import Taken

_MODULE = __name__
"""Its `main` runs in a worker."""


@dataclass
class Job:
    """What every task needs.

    Attributes:
        place: of the output.
        temporary: what tasks write for each other.
        has_reasons: whether documents are looked at.
        has_hashes: whether their hashes are compared, in `n_buckets` tasks.
        taken: of each source.
        pieces: what is written, in order.
        runs: the numbers of the pieces of each run of a shuffle.
        parts: of the output.
    """

    place: Place
    temporary: Temporary
    inputs: Inputs
    settings: MixSettings
    chunks: Sequence[Chunk] = ()
    has_reasons: bool = False
    has_hashes: bool = False
    n_buckets: int = 0
    taken: Sequence[Taken] = ()
    pieces: Sequence[Piece] = ()
    runs: Sequence[tuple[int, ...]] = ()
    parts: Sequence[OutputPart] = ()

    @property
    def shard_tokens(self) -> int:
        """Return the most tokens of a shard."""
        return self.settings.file_tokens or SHARD_BYTES // self.inputs.dtype.itemsize

    @property
    def algorithm(self) -> str:
        """Return the algorithm of the checksums."""
        return str(self.inputs.manifest["config"]["output"].get("checksum", BLAKE3))

    def places(self, first: int, n: int, n_all: int) -> npt.NDArray[np.int64]:
        """Return where `n` documents from the one numbered `first` on stand in their split."""
        numbers = np.arange(first, first + n)
        settings = self.settings
        return shuffled(numbers, n_all, seed=settings.seed) if settings.is_shuffled else numbers

    def selection(self) -> Selection:
        """Return the selection of what is taken."""
        reasons = open_reasons(self.temporary) if self.has_reasons else None
        return Selection(self.inputs, self.settings, reasons, self.taken)


class Worker:
    """Does the tasks of a job, by name and number; keeps what they share."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._survey: Survey | None = None
        self._selection: Selection | None = None

    def do(self, name: str, number: int) -> tuple[int, Any]:
        """Do a task unless it is done; return the tokens it read, and its outcome."""
        temporary, done = self._job.temporary, f"done-{name}-{number}.json"
        if temporary.has(done):
            return 0, json.loads(temporary.read(done))
        tasks = {"survey": self._look, "duplicates": self._compare, "run": self._sort}
        with storage_errors(temporary.output):
            n_tokens, outcome = tasks.get(name, self._write)(number)
        with temporary.new(done) as file:
            file.write(json.dumps(outcome).encode())
        return n_tokens, outcome

    def _look(self, number: int) -> tuple[int, Any]:
        job, chunk = self._job, self._job.chunks[number]
        self._survey = self._survey or Survey(job.inputs, job.settings)
        n_tokens = survey_chunk(
            job.inputs, self._survey, chunk, job.temporary, has_hashes=job.has_hashes
        )
        return n_tokens, None

    def _compare(self, number: int) -> tuple[int, Any]:
        job = self._job
        firsts = [chunk.first for chunk in job.chunks]
        n_val = sum(len(chunk) for chunk in job.chunks if chunk.split == "val")
        marks = {MARK: True, DROP: False}.get(job.settings.dedup)
        buckets = number, job.n_buckets
        return 0, find_duplicates(job.temporary, firsts, buckets, n_val, marks=marks)

    def _sort(self, number: int) -> tuple[int, Any]:
        """Write some pieces as a run of a shuffle."""
        job = self._job
        pieces = [job.pieces[i] for i in job.runs[number]]
        batches = [self._taken_of(piece) for piece in pieces]
        n, _ = amounts_of(job.pieces, pieces[0].split)
        places = job.places(pieces[0].first, sum(piece.documents for piece in pieces), n)
        write_run(job.temporary, f"run-{number}", batches, places)
        return sum(piece.tokens for piece in pieces), None

    def _write(self, number: int) -> tuple[int, Any]:
        """Write a part of the output."""
        job, part = self._job, self._job.parts[number]
        shards = Shards(job.place.local, part, job.inputs, job.shard_tokens, job.algorithm)
        n_tokens = 0
        try:
            for batch in self._batches(part):
                shards.append(batch)
                n_tokens += int(np.ptp(bounds(batch, job.inputs.dtype)))
            entries = [entry.as_json() for entry in shards.finish()]
        except BaseException:
            shards.discard()
            raise
        return n_tokens, entries

    def _batches(self, part: OutputPart) -> Iterator[pa.RecordBatch]:
        """Yield the documents of a part."""
        job = self._job
        for number in part.pieces:
            yield self._taken_of(job.pieces[number])
        runs = [i for i, run in enumerate(job.runs) if job.pieces[run[0]].split == part.split]
        for places in ranges_of(part, job.pieces, job.inputs.chunk_tokens):
            spans = [read_run(job.temporary, f"run-{i}", places.start, places.stop) for i in runs]
            yield sorted_by_place(spans)

    def _taken_of(self, piece: Piece) -> pa.RecordBatch:
        """Return the documents of a piece."""
        job, chunk = self._job, self._job.chunks[piece.chunk]
        self._selection = self._selection or job.selection()
        batch = read_chunk(job.inputs, chunk)
        taken = np.flatnonzero(self._selection.times(chunk) > piece.repeat)
        return batch if len(taken) == len(batch) else batch.take(pa.array(taken))


def do_tasks(
    job: Job, name: str, n: int, n_workers: int, report: Callable[[int], None]
) -> list[Any]:
    """Do the tasks 0 to n - 1 of a name; return their outcomes. `report` gets tokens read.

    Raises:
        WorkerError: a worker died.
        TokmillError: what a task raised; tasks that are done stay.
    """
    outcomes: dict[int, Any] = {}

    def answered(answer: Any) -> bool:
        if isinstance(answer, BaseException):
            raise answer
        number, (n_tokens, outcome) = answer
        outcomes[number] = outcome
        report(n_tokens)
        return True

    if min(n, n_workers) <= 1:
        worker = Worker(job)
        for number in range(n):
            answered((number, worker.do(name, number)))
        return [outcomes[number] for number in range(n)]
    with ExitStack() as stack:
        children = [stack.enter_context(Child(_MODULE)) for _ in range(min(n, n_workers))]
        try:
            for child in children:
                child.send(job)
            items = [(name, number) for number in range(n)]
            share_out(children, items, lambda item: f"{item[0]} {item[1]}", answered)
        except ChildEndedError as error:
            how = error.stopped or "process died (killed, or out of memory)"
            raise WorkerError(
                f"a worker {how}: what is done is kept; run the same command again to continue, "
                "with fewer --workers if memory is short"
            ) from None
    return [outcomes[number] for number in range(n)]


def main() -> None:
    """Do, in a worker process, the tasks that the parent sends until it sends None."""
    parent = Parent()
    worker = Worker(parent.receive())
    while (item := parent.receive()) is not None:
        name, number = item
        try:
            parent.send((number, worker.do(name, number)))
        except TokmillError as error:
            parent.send(error)
        except BaseException as error:  # a bug
            parent.send(RuntimeError(f"in a worker process: {type(error).__name__}: {error}"))
