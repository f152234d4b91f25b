"""The tasks of a mix, in this process or on workers; each leaves a file when it is done.

A part leaves its record, as in any run. The others write for the parts, in `.mix`: what is done
there is not done again, unless the machine was started anew since, as it is not synced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.children import do_items, work_on
from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.layout import SHARD_BYTES
from tokmill.dataset.part_writer import PartWriter
from tokmill.loader.order import shuffled
from tokmill.machine.limits import usable_cores
from tokmill.mixing.batch import (
    bounds,
    documents_of,
    read_chunk,
    read_run,
    sorted_by_place,
    write_run,
)
from tokmill.mixing.checks import CHECK
from tokmill.mixing.contamination import open_contaminated_marks, open_flags
from tokmill.mixing.duplicates import (
    find_equal,
    hashes_name,
    open_marks,
    places_name,
    write_places,
)
from tokmill.mixing.output import amounts_of, ranges_of
from tokmill.mixing.selection import Selection
from tokmill.mixing.settings import MixSettings
from tokmill.mixing.survey import DUPLICATE, Survey, open_reasons, survey_batch
from tokmill.mixing.temporary import Temporary
from tokmill.run.mixes import MixPlan
from tokmill.settings.schema import OutputSettings
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.children import Do
    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.counts import Counts
    from tokmill.dataset.part_writer import EncodedDocuments
    from tokmill.dataset.place import Place
    from tokmill.mixing.checks import InputFile
    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.output import OutputPart, Piece
    from tokmill.mixing.selection import Taken

    Task = tuple[str, int]
    """The name of a task and its number."""

PART = "part"
"""The name of the task that writes a part."""

_MODULE = __name__
"""Its `main` runs in a worker."""


@dataclass
class Job:
    """What every task needs.

    Attributes:
        place: of the output.
        temporary: what tasks write for each other.
        is_linked: whether all shards stay as they are.
        has_reasons: whether documents are looked at.
        has_hashes: whether their hashes are compared, in `n_buckets` tasks.
        files: of the inputs, which tasks sum.
        taken: of each source.
        pieces: what is written, in order.
        runs: the numbers of the pieces of each run of a shuffle.
        parts: of the output; `plan` has the same ones, as everybody may read them.
    """

    place: Place
    temporary: Temporary
    inputs: Inputs
    settings: MixSettings
    is_linked: bool = False
    chunks: Sequence[Chunk] = ()
    files: Sequence[InputFile] = ()
    has_reasons: bool = False
    has_hashes: bool = False
    n_buckets: int = 0
    taken: Sequence[Taken] = ()
    pieces: Sequence[Piece] = ()
    runs: Sequence[tuple[int, ...]] = ()
    parts: Sequence[OutputPart] = ()
    plan: MixPlan = field(default_factory=lambda: MixPlan({}, ()))

    def check(self) -> None:
        """Do nothing: the place is held, so no other run took it over."""

    @property
    def marks_contaminated(self) -> bool:
        """Return whether documents that share tokens with held-out texts are marked."""
        return bool(self.settings.against) and not self.settings.drop_contaminated

    @property
    def output(self) -> OutputSettings:
        """Return where and how the mix is written, for its shards and its manifest."""
        inputs = self.inputs
        limit = self.settings.shard_tokens or SHARD_BYTES // inputs.dtype.itemsize
        if self.is_linked:  # a linked shard is as long as its input allowed
            limit = max(dataset.output.shard_tokens for dataset in inputs.datasets)
        fractions = inputs.val_fractions
        return OutputSettings(
            dir=self.place.where,
            dtype=inputs.dtype.name,
            shard_tokens=limit,
            val_fraction=fractions[0] if len(fractions) == 1 else 0.0,
            checksum=inputs.datasets[0].output.checksum,
        )

    def places(self, first: int, n: int, n_all: int) -> npt.NDArray[np.int64]:
        """Return where `n` documents from the one numbered `first` on stand in their split."""
        numbers = np.arange(first, first + n)
        settings = self.settings
        return shuffled(numbers, n_all, seed=settings.seed) if settings.is_shuffled else numbers

    def first_place(self, split: str) -> int:
        """Return the place of the first document of a split among all of the mix, val first."""
        return 0 if split == "val" else amounts_of(self.pieces, "val")[0]

    def selection(self) -> Selection:
        """Return the selection of what is taken."""
        reasons = open_reasons(self.temporary) if self.has_reasons else None
        return Selection(self.inputs, self.settings, reasons, self.taken)


class Outcome(NamedTuple):
    """What a task has come to.

    `n_tokens`: that it read. `summed`: the files that its worker has found to be sound so far.
    """

    n_tokens: int
    value: Any
    summed: set[Path]


class Worker:
    """Does the tasks of a job, by name and number; keeps what they share."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._survey: Survey | None = None
        self._selection: Selection | None = None
        self._pieces: dict[int, list[Piece]] = {}
        self._checked: dict[Path, CheckedFiles] = {}

    def do(self, name: str, number: int) -> Outcome:
        """Do a task unless it is done."""
        temporary, done = self._job.temporary, f"done-{name}-{number}.json"
        if name != PART and temporary.has(done):
            return Outcome(0, json.loads(temporary.read(done)), set())
        tasks = {
            CHECK: self._check,
            "survey": self._look,
            "duplicates": self._leave_out,
            "places": self._place,
            "marks": self._mark,
            "contaminated": self._mark_contaminated,
            "run": self._sort,
            PART: self._write,
        }
        with storage_errors(temporary.output):
            n_tokens, value = tasks[name](number)
        if name != PART:  # whose record says that it is done
            with temporary.new(done) as file:
                file.write(json.dumps(value).encode())
        summed = [checked.summed for checked in self._checked.values()]
        return Outcome(n_tokens, value, set().union(*summed))

    def _check(self, number: int) -> tuple[int, Any]:
        """Check a file; what this worker has read of it in order is summed."""
        file = self._job.files[number]
        self._checked_of(file.directory).check([file.path])
        return 0, None

    def _checked_of(self, directory: Path) -> CheckedFiles:
        """Return the files of an input, with the sums of what this worker has read so far."""
        if not self._checked:
            entries: dict[Path, dict[Path, FileEntry]] = {}
            for file in self._job.files:
                entries.setdefault(file.directory, {})[file.path] = file.entry
            self._checked = {place: CheckedFiles(place, own) for place, own in entries.items()}
        return self._checked[directory]

    def _look(self, number: int) -> tuple[int, Any]:
        job, chunk = self._job, self._job.chunks[number]
        self._survey = self._survey or Survey(job.inputs, job.settings, job.temporary)
        batch = self._read(chunk)
        survey_batch(
            job.inputs, self._survey, chunk, batch, job.temporary, has_hashes=job.has_hashes
        )
        return int(np.ptp(bounds(batch, job.inputs.dtype))), None

    def _read(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the documents of a chunk, and sum what is read."""
        inputs = self._job.inputs
        checked = self._checked_of(inputs.datasets[chunk.input].directory)
        return read_chunk(inputs, chunk, checked)

    def _leave_out(self, number: int) -> tuple[int, Any]:
        """Leave out the documents of a bucket that equal one before; return how many."""
        job = self._job
        n_val = sum(len(chunk) for chunk in job.chunks if chunk.split == "val")
        names = list(map(hashes_name, job.chunks))
        equal = find_equal(job.temporary, names, number, job.n_buckets, n_val)
        open_reasons(job.temporary)[equal.numbers] = DUPLICATE
        return 0, [len(equal.numbers), equal.n_overlap]

    def _place(self, number: int) -> tuple[int, Any]:
        """Write the places of the documents of a chunk in the mix, and mark their repeats."""
        job, chunk = self._job, self._job.chunks[number]
        marks, firsts = open_marks(job.temporary), np.full(len(chunk), -1)
        for piece, taken, places in self._places_of(number):
            if piece.repeat:  # the shuffled order may have a repeat before the first
                marks[np.maximum(firsts[taken], places)] = 1
                places = np.minimum(firsts[taken], places)
            firsts[taken] = places
        write_places(job.temporary, chunk, firsts)
        return 0, None

    def _mark_contaminated(self, number: int) -> tuple[int, Any]:
        """Mark the documents of a chunk, in the mix, that share tokens with held-out texts."""
        job, chunk = self._job, self._job.chunks[number]
        flags = open_flags(job.temporary)[chunk.numbers]
        if flags.any():
            marks = open_contaminated_marks(job.temporary)
            for _, taken, places in self._places_of(number):
                marks[places] = flags[taken]
        return 0, None

    def _places_of(
        self, number: int
    ) -> Iterator[tuple[Piece, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield the pieces of a chunk, the documents that each takes, and their places."""
        job, chunk = self._job, self._job.chunks[number]
        self._selection = self._selection or job.selection()
        if not self._pieces:
            for piece in job.pieces:
                self._pieces.setdefault(piece.chunk, []).append(piece)
        times, start = self._selection.times(chunk), job.first_place(chunk.split)
        n_of_split, _ = amounts_of(job.pieces, chunk.split)
        for piece in self._pieces.get(number, ()):
            taken = np.flatnonzero(times > piece.repeat)
            yield piece, taken, start + job.places(piece.first, piece.documents, n_of_split)

    def _mark(self, number: int) -> tuple[int, Any]:
        """Mark the documents of a bucket that equal one before them in the mix."""
        job = self._job
        names = list(map(places_name, job.chunks))
        equal = find_equal(job.temporary, names, number, job.n_buckets, job.first_place("train"))
        open_marks(job.temporary)[equal.numbers] = 1
        return 0, equal.n_overlap

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
        """Write a part of the output, and its record."""
        job, part = self._job, self._job.parts[number]
        planned = job.plan.parts[number]
        writer = PartWriter(job.place, number, job.plan.fingerprint_of(planned), job.output)
        try:
            for slice_index, batch in self._batches(part):
                documents = documents_of(batch, job.inputs)
                writer.append(part.split, documents)
                _count(writer.counts_of(slice_index), documents)
            for slice_index, piece in enumerate(planned.slices):
                writer.counts_of(slice_index).input_bytes = piece.n_bytes
            writer.end()
            writer.finish()
        except BaseException:
            writer.close()
            raise
        return sum(shard.tokens for shard in writer.shards), None

    def _batches(self, part: OutputPart) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the documents of a part, each batch with the number of its slice."""
        job = self._job
        for slice_index, number in enumerate(part.pieces):
            yield slice_index, self._taken_of(job.pieces[number])
        runs = [i for i, run in enumerate(job.runs) if job.pieces[run[0]].split == part.split]
        for places in ranges_of(part, job.pieces, job.inputs.chunk_tokens):
            spans = [read_run(job.temporary, f"run-{i}", places.start, places.stop) for i in runs]
            yield 0, sorted_by_place(spans)

    def _taken_of(self, piece: Piece) -> pa.RecordBatch:
        """Return the documents of a piece."""
        job, chunk = self._job, self._job.chunks[piece.chunk]
        self._selection = self._selection or job.selection()
        batch = self._read(chunk)
        taken = np.flatnonzero(self._selection.times(chunk) > piece.repeat)
        return batch if len(taken) == len(batch) else batch.take(pa.array(taken))


_TOKENS_OF_A_WORKER = 16 << 20
"""A worker takes about 0.4 s to start, and 0.1 to 0.3 s for so many tokens."""


def n_workers_of(inputs: Inputs, settings: MixSettings) -> int:
    """Return the workers; by default a core has one if that has more to do than to start."""
    return settings.workers or min(usable_cores(), 1 + inputs.n_tokens // _TOKENS_OF_A_WORKER)


def _count(counts: Counts, documents: EncodedDocuments) -> None:
    """Add documents to the counts of their slice; each counts as a record."""
    counts.records += len(documents)
    counts.documents += len(documents)
    counts.tokens += len(documents.tokens)
    if "mask" in documents.of_tokens:
        counts.trained_tokens += int(np.count_nonzero(documents.of_tokens["mask"]))


def do_tasks(
    job: Job, tasks: Sequence[Task], n_workers: int, report: Callable[[int], None]
) -> dict[Task, Any]:
    """Do tasks, begun in their order; return their values. `report` gets tokens read.

    A check of a file that a worker has summed while it read it is left out.

    Raises:
        WorkerError: a worker died.
        TokmillError: what a task raised; tasks that are done stay.
    """
    values: dict[Task, Any] = {}
    summed: set[Path] = set()

    def left() -> Iterator[Task]:
        for task in tasks:
            name, number = task
            if name != CHECK or job.files[number].path not in summed:
                yield task

    def done(task: Task, outcome: Outcome) -> None:
        values[task] = outcome.value
        summed.update(outcome.summed)
        report(outcome.n_tokens)

    # Who reads files in order has summed them: checks alone are worth no worker.
    n_workers = min(sum(name != CHECK for name, _ in tasks), n_workers)
    if n_workers <= 1:
        worker = Worker(job)
        for task in left():
            done(task, worker.do(*task))
        return values
    work_on(n_workers, _MODULE, job, left(), lambda task: f"{task[0]} {task[1]}", done, report)
    return values


@contextmanager
def _begun(job: Job) -> Iterator[Do]:
    """Yield what does a task in this process."""
    worker = Worker(job)
    yield lambda task, _: worker.do(*task)


def main() -> None:
    """Do, in a worker process, the tasks that the parent sends."""
    do_items(_begun)
