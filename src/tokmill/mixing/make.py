"""Make a mix: look at documents, choose, plan, make the parts, finish.

A mix that keeps all documents in their order has no parts of its own: it links the shards of its
inputs, with numbers of parts behind those before. A call that was stopped goes on.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokmill.dataset.checksum import FileEntry, digest_of_chunks
from tokmill.dataset.contents import remove_contents, remove_leftovers
from tokmill.dataset.counts import Increments
from tokmill.dataset.finish import usage, write_manifest
from tokmill.dataset.layout import (
    MIX,
    REJECTS,
    SPLITS,
    contaminated_name,
    duplicates_name,
    rejects_name,
    shard_stem,
)
from tokmill.dataset.typed_json import to_json
from tokmill.dataset.writer import write_hashed_chunks
from tokmill.errors import RecordError, VerifyError
from tokmill.interrupts import CONTINUES
from tokmill.mixing.begin import (
    asked_of,
    begin,
    begin_again,
    check_output,
    is_linked,
    remove_temporary,
)
from tokmill.mixing.checks import InputFiles
from tokmill.mixing.contamination import (
    check_report,
    make_contaminated_marks,
    make_flags,
    open_contaminated_marks,
    open_flags,
    write_report,
)
from tokmill.mixing.drop_list import keep_drop_lists, write_drop_lists
from tokmill.mixing.duplicates import BUCKET_DOCUMENTS, make_marks, open_marks
from tokmill.mixing.finish import count, linked_histogram, statement_of, sums_of
from tokmill.mixing.held_out import keep_index, read_held_out
from tokmill.mixing.inputs import (
    described,
    open_inputs,
    overlaps,
    warn_of_copies,
    warn_of_rules,
)
from tokmill.mixing.output import amounts_of, parts_of, pieces_of, runs_of
from tokmill.mixing.plan import keep_plan
from tokmill.mixing.selection import choose, everything
from tokmill.mixing.settings import DROP, MARK, requests
from tokmill.mixing.survey import make_reasons
from tokmill.mixing.tasks import PART, Job, do_tasks, n_workers_of
from tokmill.mixing.temporary import Temporary
from tokmill.place import open_place
from tokmill.run.output import make_parts, records_of_parts
from tokmill.storage import make_folder
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.dataset.manifest import Manifest, ShardRow
    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.mixing.begin import Asked
    from tokmill.mixing.finish import Written
    from tokmill.mixing.held_out import HeldOut
    from tokmill.mixing.inputs import Chunk, Input, Inputs
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.tasks import Task
    from tokmill.recipes.spec import Part
    from tokmill.run.begin import Observer

    class Watcher(Observer, Protocol):  # only a type: the run's way to begin takes 0.3 s to import
        """Follows a mix."""

        def begin(self, total_bytes: int) -> None:
            """Receive the bytes that will be read, before the first is."""


_MARKS_AT_ONCE = 16 << 20
"""Bytes of marks that are copied at a time."""


def mix(settings: MixSettings, watcher: Watcher, *, overwrite: bool = False) -> Manifest:
    """Write a dataset of the documents of others, and return its manifest.

    The same call continues one that was stopped, makes again what was removed of one that is
    finished, and returns at once if the dataset is complete.

    Raises:
        UsageError: a setting is wrong, or the datasets differ in what readers rely on.
        StateError: something else stands at the output.
        RecordError: no document is left.
        VerifyError: an input is damaged.
        StorageError: no space, no permission.
        WorkerError: a worker died.
        KeyboardInterrupt: its message says what is kept.
    """
    inputs = open_inputs(requests(settings), settings)
    place = open_place(settings.output)
    check_output(place, inputs, settings)
    if settings.report:
        check_report(settings.report)
    held_out = read_held_out(settings, inputs)
    with TemporaryDirectory(prefix="tokmill-mix-") as folder:
        lists = write_drop_lists(settings.drop, inputs, Path(folder))
        asked = asked_of(settings, inputs, lists, held_out.files)
        with place.held():
            files = InputFiles(inputs, settings)
            complete = begin(place, asked, files, watcher.warned, overwrite=overwrite)
            if complete is not None:
                if settings.report:
                    report_alone(settings, inputs, held_out, watcher)
                return complete
            linked = is_linked(settings, inputs)
            job = Job(place, Temporary(place.local), inputs, settings, is_linked=linked)
            if InputFiles(inputs, settings).were_written_to(job.temporary):
                begin_again(place, asked)
            keep_drop_lists(Path(folder), job.temporary)
            watcher.noted(described(inputs))
            warn_of_rules(inputs, watcher.warned)
            warn_of_copies(inputs, settings, watcher.warned)
            try:
                if settings.against:
                    keep_held_out(job, held_out, watcher)
                return _make(job, watcher, asked)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(CONTINUES) from None
            except VerifyError:
                remove_contents(place)  # parts that are done may be of damaged bytes
                raise


@dataclass
class _Made:
    """What stands in the place before the manifest.

    Attributes:
        checks: of the inputs, to be finished.
        found: how many documents equal others, for the manifest.
        files: entries of all files.
        shards: rows of the manifest.
        length_histogram: documents by length.
        written: what is there of each source; None: everything.
        n_resumed: parts that an earlier attempt had done.
    """

    checks: InputFiles
    found: Mapping[str, int]
    files: list[FileEntry]
    shards: Sequence[ShardRow]
    length_histogram: Sequence[int]
    written: Written | None = None
    n_resumed: int = 0


def _make(job: Job, watcher: Watcher, asked: Asked) -> Manifest:
    """Make what is missing, and return the manifest."""
    started_s = time.perf_counter()
    job.place.make_folders()
    remove_leftovers(job.place)
    made = _link(job, watcher, asked) if job.is_linked else _write(job, watcher, asked)
    if job.settings.dedup == MARK:
        made.files += _write_marks(job, duplicates_name, open_marks(job.temporary))
    if job.marks_contaminated:
        marks = open_contaminated_marks(job.temporary)
        made.files += _write_marks(job, contaminated_name, marks)
    if job.settings.report:
        write_report(job.settings.report, job.chunks, job.settings, job.temporary)
    made.checks.finish()
    used_s, memory_bytes = time.perf_counter() - started_s, watcher.peak_memory_bytes()
    run = usage(used_s, memory_bytes, made.n_resumed)
    mix_entry = {**_entry(job, asked), **made.found}
    statement = statement_of(
        job, made.files, made.shards, made.length_histogram, made.written, mix_entry, run
    )
    manifest = write_manifest(job.place, statement)
    remove_temporary(job.place)
    return manifest


def _link(job: Job, watcher: Watcher, asked: Asked) -> _Made:
    """Link all shards, and mark equal documents if that was asked for."""
    job.taken = everything(job.inputs)
    job.plan, files = keep_plan(job, _entry(job, asked))
    # Before the inputs are watched: a new link changes the time of its file's last change.
    linked, shards = _link_shards(job.inputs, job.place)
    files += [*linked, *_link_rejects(job)]
    checks = _begin(job, watcher)
    found = _look(job, watcher, checks)
    if job.has_reasons:
        job.pieces = pieces_of(job.chunks, job.selection())
    if job.has_hashes:
        found |= _mark(job, watcher)
    if job.marks_contaminated:
        found |= _mark_contaminated(job, watcher)
    return _Made(checks, found, files, shards, linked_histogram(job.inputs))


def _write(job: Job, watcher: Watcher, asked: Asked) -> _Made:
    """Choose documents, plan the parts, and make those that are missing."""
    settings, inputs, place = job.settings, job.inputs, job.place
    checks = _begin(job, watcher)
    found = _look(job, watcher, checks)
    job.taken = everything(inputs)
    job.taken = choose(inputs, settings, job.chunks, job.selection(), watcher.warned)
    job.pieces = pieces_of(job.chunks, job.selection())
    if not job.pieces:
        raise RecordError(f"{place.where}: no document is left: filters or shares leave all out")
    if job.has_hashes and settings.dedup != DROP:
        found |= _mark(job, watcher)
    if job.marks_contaminated:
        found |= _mark_contaminated(job, watcher)
    if settings.is_shuffled:
        job.runs = runs_of(job.pieces, inputs.chunk_tokens)
    limit = job.output.shard_tokens
    job.parts = parts_of(job.pieces, limit, is_shuffled=settings.is_shuffled)
    job.plan, files = keep_plan(job, _entry(job, asked))
    files += _link_rejects(job)
    records, missing = records_of_parts(job.plan, place, place.entries(), job.check)
    n_resumed = len(records)
    records = _make_parts(job, watcher, checks, records, missing)
    sums = sums_of(records, job.output.checksum)
    written = count(job)
    files += sums.files
    return _Made(checks, found, files, sums.shards, sums.length_histogram, written, n_resumed)


def _make_parts(
    job: Job,
    watcher: Watcher,
    checks: InputFiles,
    records: dict[int, PartRecord],
    missing: Container[int],
) -> dict[int, PartRecord]:
    """Make the parts that are missing; return the records of all. A shuffle writes its runs first.

    Files that only parts read which are done are compared with their sums, too: the parts may be of
    damaged bytes.
    """
    if job.runs:
        of_runs = [[job.pieces[piece].chunk for piece in run] for run in job.runs]
        wanted = range(len(job.runs) if missing else 0)
        _do_checked(job, watcher, "run", of_runs, checks, wanted)
    of_parts = [[job.pieces[piece].chunk for piece in part.pieces] for part in job.parts]

    def make(parts: Sequence[Part]) -> None:
        wanted = {part.index for part in parts}
        _do_checked(job, watcher, PART, of_parts, checks, wanted)

    records = make_parts(job, watcher.warned, make, watcher.progressed, records)
    _do_checked(job, watcher, PART, of_parts, checks, ())  # if no part was missing
    return records


def keep_held_out(job: Job, held_out: HeldOut, watcher: Watcher) -> None:
    """Write the index of held-out texts for the tasks, and say how many are not looked for."""
    n_short = keep_index(held_out, job.settings, job.inputs, job.temporary)
    n_texts, n_files = len(held_out.texts), len(held_out.files)
    watcher.noted(f"held-out: {plural(n_texts, 'text')} of {plural(n_files, 'file')}")
    if n_short:
        texts, least = plural(n_texts, "held-out text"), job.settings.ngram_in_words
        watcher.warned(f"{n_short:,} of {texts}: not looked for, shorter than {least}")


def contaminated_line(job: Job, n: int) -> str:
    """Return how many documents share tokens with held-out texts, in words."""
    length = job.settings.ngram_in_words
    return f"{plural(n, 'document')} with {length} in a row of a held-out text"


def report_alone(settings: MixSettings, inputs: Inputs, held_out: HeldOut, watcher: Watcher) -> int:
    """Write the report of a mix, and nothing else; return how many documents share tokens.

    Raises:
        VerifyError: an input is damaged.
        StorageError: the report cannot be written.
    """
    with TemporaryDirectory(prefix="tokmill-mix-") as folder:
        place = open_place(folder)
        make_folder(place.local, MIX)
        write_drop_lists(settings.drop, inputs, place.local / MIX)
        job = Job(place, Temporary(place.local), inputs, settings)
        keep_held_out(job, held_out, watcher)
        job.chunks, job.has_reasons = tuple(inputs.chunks()), True
        watcher.begin(inputs.n_tokens * inputs.dtype.itemsize)
        checks = InputFiles(inputs, settings)
        checks.watch(job.temporary)
        checks.check_first()
        job.files = checks.files
        n_documents = sum(map(len, job.chunks))
        make_reasons(job.temporary, n_documents)
        make_flags(job.temporary, n_documents)
        _do_checked(job, watcher, "survey", [(i,) for i in range(len(job.chunks))], checks)
        checks.finish()
        write_report(settings.report, job.chunks, settings, job.temporary)
        n = int(np.count_nonzero(open_flags(job.temporary)))
        watcher.noted(contaminated_line(job, n))
        return n


def _begin(job: Job, watcher: Watcher) -> InputFiles:
    """Begin the bar, and check what says where; return the files of the inputs."""
    settings, inputs = job.settings, job.inputs
    is_on_disk = job.place.mapped is not None
    job.has_hashes = bool(settings.dedup) or (is_on_disk and overlaps(inputs))
    job.has_reasons = job.has_hashes or settings.has_filters or bool(settings.against)
    n_passes = job.has_reasons + (0 if job.is_linked else 1 + settings.is_shuffled)
    watcher.begin(inputs.n_tokens * n_passes * inputs.dtype.itemsize)
    checks = InputFiles(inputs, settings)
    checks.watch(job.temporary)
    checks.check_linked(job.output.checksum, has_shards=job.is_linked)
    if job.is_linked:
        checks.check_packed()
    if n_passes:
        checks.check_first()
        job.chunks = tuple(inputs.chunks())
    job.files = checks.files
    return checks


def _do(job: Job, watcher: Watcher, tasks: Sequence[Task], n_workers: int) -> dict[Task, Any]:
    """Do tasks, and return their outcomes."""
    item = job.inputs.dtype.itemsize
    is_last = any(name == PART for name, _ in tasks)

    def report(n_tokens: int) -> None:
        n_bytes = n_tokens * item
        tokens = n_tokens if is_last else 0
        watcher.progressed(Increments(n_bytes, n_bytes, tokens=tokens))

    return do_tasks(job, tasks, n_workers, report)


def _do_with_hashes(job: Job, watcher: Watcher, name: str, n: int) -> list[Any]:
    """Do the tasks 0 to n - 1 of a name, which read hashes alone; return their outcomes in order.

    There is a worker for each bucket, at most: a small mix is done before one has started.
    """
    tasks = [(name, number) for number in range(n)]
    n_workers = min(job.n_buckets, n_workers_of(job.inputs, job.settings))
    outcomes = _do(job, watcher, tasks, n_workers)
    return [outcomes[task] for task in tasks]


def _do_checked(
    job: Job,
    watcher: Watcher,
    name: str,
    chunks: Sequence[Sequence[int]],
    checks: InputFiles,
    wanted: Container[int] | None = None,
) -> None:
    """Do the tasks of a name, with the checks of each shard behind the last that reads it.

    `chunks`: the numbers of the chunks that each task reads. A worker that reads a whole shard in
    order has summed it: checks wait until each worker has probably done what it does. `wanted`: the
    numbers of tasks; of the others, only the checks are done. None: all.
    """
    n_workers = n_workers_of(job.inputs, job.settings)
    tasks: list[Task] = []
    waiting: deque[list[Task]] = deque()
    open_chunk: Chunk | None = None
    for number, of_task in enumerate(chunks):
        if wanted is None or number in wanted:
            tasks.append((name, number))
        waiting.append([])
        for chunk in (job.chunks[i] for i in of_task):
            if open_chunk is not None and open_chunk.entry is not chunk.entry:
                waiting[-1] += checks.tasks(open_chunk)
            open_chunk = chunk
        if len(waiting) > n_workers:
            tasks += waiting.popleft()
    tasks += chain.from_iterable(waiting)
    if open_chunk is not None:
        tasks += checks.tasks(open_chunk)
    _do(job, watcher, tasks, n_workers)


def _look(job: Job, watcher: Watcher, checks: InputFiles) -> dict[str, int]:
    """Look at each document if a setting asks for it; return how many are left out, and why."""
    if not job.has_reasons:
        return {}
    n_documents = sum(map(len, job.chunks))
    make_reasons(job.temporary, n_documents)
    found: dict[str, int] = {}
    if job.settings.against:
        make_flags(job.temporary, n_documents)
    _do_checked(job, watcher, "survey", [(i,) for i in range(len(job.chunks))], checks)
    if job.settings.drop_contaminated:
        found["contaminated"] = int(np.count_nonzero(open_flags(job.temporary)))
        watcher.noted(f"{contaminated_line(job, found['contaminated'])}: left out")
    job.n_buckets = -(-n_documents // BUCKET_DOCUMENTS)
    if job.settings.dedup != DROP:
        return found
    counts = _do_with_hashes(job, watcher, "duplicates", job.n_buckets)
    n_equal, overlap = (sum(of_bucket[i] for of_bucket in counts) for i in (0, 1))
    watcher.noted(f"{plural(n_equal, 'document')} equal one before, and are left out")
    return {**found, "duplicates": n_equal, "overlap": overlap}


def _mark(job: Job, watcher: Watcher) -> dict[str, int]:
    """Mark the documents of the mix that equal one before; return how many, and the overlap."""
    n_documents = sum(piece.documents for piece in job.pieces)
    make_marks(job.temporary, n_documents)
    if not n_documents:
        return {"duplicates": 0, "overlap": 0}
    _do_with_hashes(job, watcher, "places", len(job.chunks))
    overlap = sum(_do_with_hashes(job, watcher, "marks", job.n_buckets))
    n_marked = sum(map(np.count_nonzero, _marks_of(job, open_marks(job.temporary), SPLITS)))
    if overlap and not job.settings.dedup:
        watcher.warned(
            f"train and val share {plural(overlap, 'document')}: the datasets "
            "have other validation fractions; --dedup keeps those of val alone"
        )
    if job.settings.dedup:
        watcher.noted(f"{plural(n_marked, 'document')} of the mix equal one before")
    return {"duplicates": int(n_marked), "overlap": overlap}


def _mark_contaminated(job: Job, watcher: Watcher) -> dict[str, int]:
    """Mark the documents of the mix that share tokens with held-out texts; return how many."""
    make_contaminated_marks(job.temporary, sum(piece.documents for piece in job.pieces))
    _do_with_hashes(job, watcher, "contaminated", len(job.chunks))
    marks = open_contaminated_marks(job.temporary)
    n_marked = sum(map(np.count_nonzero, _marks_of(job, marks, SPLITS)))
    watcher.noted(f"{contaminated_line(job, n_marked)}: marked")
    return {"contaminated": int(n_marked)}


def _link_shards(inputs: Inputs, place: Place) -> tuple[list[FileEntry], list[ShardRow]]:
    """Link the shards of all inputs; return their files, and their rows of the manifest.

    Raises:
        VerifyError: a file of an input is missing, or has another size than its manifest says.
        StorageError: a file can be neither linked nor copied.
    """
    files: list[FileEntry] = []
    rows: list[ShardRow] = []
    for split in SPLITS:
        for dataset in inputs.datasets:
            listed: dict[str, list[FileEntry]] = {}
            for file in dataset.manifest.files:
                listed.setdefault(file.name.partition(".")[0], []).append(file)
            for entry in dataset.entries(split):
                _, part, number = entry.name.split("-")
                stem = shard_stem(split, dataset.first_part + int(part), int(number))
                for file in listed[entry.name]:
                    name = stem + file.name.removeprefix(entry.name)
                    files.append(_taken(place, dataset, file, name))
                first = entry.first_slice
                if first is not None:
                    first += dataset.first_slice
                rows.append(entry._replace(name=stem, first_slice=first))
    return files, rows


def _link_rejects(job: Job) -> list[FileEntry]:
    """Link the files of rejects of all inputs, and return them; raises as `_link_shards`.

    A file whose sum is of another algorithm than those of the mix gets another sum: it was checked.
    """
    files = []
    for dataset in job.inputs.datasets:
        for file in dataset.manifest.files:
            folder, _, name = file.name.partition("/")
            if folder == REJECTS:
                part = dataset.first_part + int(name.removesuffix(".jsonl"))
                entry = _taken(job.place, dataset, file, f"{REJECTS}/{rejects_name(part)}")
                if entry.algorithm != job.output.checksum:
                    chunks = job.place.chunks(entry.name)
                    entry = digest_of_chunks(chunks, job.output.checksum).entry(entry.name)
                files.append(entry)
    return files


def _taken(place: Place, dataset: Input, entry: FileEntry, name: str) -> FileEntry:
    """Make a file of an input stand in the output, too; return its entry there."""
    place.take(open_place(dataset.place), entry, name)
    return replace(entry, name=name)


def _marks_of(
    job: Job, marks: npt.NDArray[np.uint8], splits: Iterable[str]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the marks of splits, some at a time; `marks`: of all documents, val first."""
    for split in splits:
        start = job.first_place(split)
        stop = start + amounts_of(job.pieces, split)[0]
        for at in range(start, stop, _MARKS_AT_ONCE):
            yield marks[at : min(at + _MARKS_AT_ONCE, stop)]


def _write_marks(
    job: Job, name_of: Callable[[str], str], marks: npt.NDArray[np.uint8]
) -> list[FileEntry]:
    """Write the files of marks: a byte for each document of a split, in order."""
    files, local = [], job.place.local
    for split in SPLITS:
        if amounts_of(job.pieces, split)[0]:
            name = name_of(split)
            job.place.remove(name)
            chunks = (some.data for some in _marks_of(job, marks, [split]))
            files.append(write_hashed_chunks(local, name, chunks, job.output.checksum))
    return files


def _entry(job: Job, asked: Asked) -> dict[str, Any]:
    """Return the key `mix` of plan and manifest: what was asked, and what is taken."""
    inputs = []
    for dataset, named in zip(job.inputs.datasets, asked.inputs, strict=True):
        first = {"first_part": dataset.first_part, "first_slice": dataset.first_slice}
        inner = {"mix": to_json(dataset.manifest.mix)} if dataset.manifest.mix else {}
        inputs.append({**named, **first, **inner})
    return {
        "fingerprint": asked.fingerprint,
        "settings": asked.settings,
        "inputs": inputs,
        "sources": [of_source.as_json() for of_source in job.taken],
        "val_fractions": job.inputs.val_fractions,
        **({"against": to_json(asked.against)} if asked.against else {}),
    }
