"""Make a mix: look at documents, choose, write, finish; a call that was stopped goes on.

`plan_mix` says beforehand what it takes. A mix that keeps all documents in their order links the
shards of its inputs, with numbers of parts behind those before.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import deque
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokmill.dataset.checksum import (
    FileEntry,
    canonical_json,
    digest_of_chunks,
    sha256_hex,
)
from tokmill.dataset.contents import (
    contents_of,
    foreign_message,
    is_hidden,
    remove_contents,
    remove_leftovers,
)
from tokmill.dataset.counts import Increments
from tokmill.dataset.finish import usage, write_manifest
from tokmill.dataset.identity import identity_of
from tokmill.dataset.layout import (
    KEPT_TOKENIZER,
    MANIFEST,
    MIX,
    MIX_REQUEST,
    ORIGIN,
    REJECTS,
    SIDECARS,
    SPLITS,
    duplicates_name,
    rejects_name,
    shard_stem,
)
from tokmill.dataset.made_by import MIX as MADE_BY_MIX
from tokmill.dataset.made_by import maker_in
from tokmill.dataset.manifest_shape import files_of_shards
from tokmill.dataset.reader import intact_manifest_in, surrounding_dataset
from tokmill.dataset.sidecars import METADATA
from tokmill.dataset.typed_json import from_json
from tokmill.dataset.writer import ShardEntry, write_hashed_chunks
from tokmill.errors import RecordError, StateError, StorageError, UsageError, VerifyError
from tokmill.extensions import find_path
from tokmill.interrupts import CONTINUES
from tokmill.machine.limits import usable_cores
from tokmill.mixing.batch import bounds, read_chunk
from tokmill.mixing.checks import InputFiles
from tokmill.mixing.drop_list import keep_drop_lists, write_drop_lists
from tokmill.mixing.duplicates import BUCKET_DOCUMENTS, hashes_of, make_marks, open_marks
from tokmill.mixing.finish import count, linked_histogram, statement_of
from tokmill.mixing.inputs import (
    described,
    open_inputs,
    overlaps,
    slice_of_part,
    warn_of_copies,
    warn_of_rules,
)
from tokmill.mixing.output import amounts_of, parts_of, pieces_of, runs_of
from tokmill.mixing.selection import Selection, choose, everything
from tokmill.mixing.settings import DROP, MARK, requests
from tokmill.mixing.survey import make_reasons
from tokmill.mixing.tasks import Job, do_tasks
from tokmill.mixing.temporary import Temporary
from tokmill.place import open_place
from tokmill.run.begin import Observer
from tokmill.storage import make_folder
from tokmill.tokenizer.kept import packed_in
from tokmill.urls import refuse_store, store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.dataset.place import Place
    from tokmill.mixing.inputs import Chunk, Input, Inputs
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.tasks import Task


_MARKS_AT_ONCE = 16 << 20
"""Bytes of marks that are copied at a time."""


class Watcher(Observer, Protocol):
    """Follows a mix."""

    def begin(self, total_bytes: int) -> None:
        """Receive the bytes that will be read, before the first is."""


def mix(settings: MixSettings, watcher: Watcher, *, overwrite: bool = False) -> dict[str, Any]:
    """Write a dataset of the documents of others, and return its manifest.

    The same call continues one that was stopped, and returns at once if the dataset is complete.

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
    with TemporaryDirectory(prefix="tokmill-mix-") as folder:
        sums = write_drop_lists(settings.drop, inputs, Path(folder))
        fingerprint = sha256_hex(canonical_json(_identity(settings, inputs, sums)))
        with place.held():
            n_parts = sum(dataset.n_parts for dataset in inputs.datasets)  # of links, of rejects
            complete = _prepare(place, fingerprint, n_parts, overwrite=overwrite)
            if complete is not None:
                return complete
            linked = is_linked(settings, inputs)
            job = Job(place, Temporary(place.local), inputs, settings, is_linked=linked)
            if InputFiles(inputs, settings).were_written_to(job.temporary):
                _begin_again(place, fingerprint, n_parts)
            keep_drop_lists(Path(folder), job.temporary)
            watcher.noted(described(inputs))
            warn_of_rules(inputs, watcher.warned)
            warn_of_copies(inputs, settings, watcher.warned)
            try:
                return _make(job, watcher, fingerprint)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(CONTINUES) from None
            except VerifyError:
                remove_contents(place)  # tasks that are done may have read damaged bytes
                raise


def _identity(settings: MixSettings, inputs: Inputs, lists: Sequence[str]) -> dict[str, Any]:
    """Return what decides the bytes of a mix, and nothing of how its inputs were made.

    `lists`: the sums of the drop lists.
    """
    code = ""
    if settings.where and (extension := find_path("where", settings.where).extension):
        code = extension.sha256
    return {
        "settings": settings.identity(),
        "inputs": [_input_identity(dataset) for dataset in inputs.datasets],
        # Which documents each request takes: a source is named by the paths of its dataset.
        "request_of_source": inputs.request_of_row.tolist(),
        "slices_of_sources": [len(row.get("slices", (0,))) for row in inputs.rows],
        "keep": list(inputs.keep),
        "packing": [inputs.packing, inputs.has_packed_rows],
        "drop": list(lists),
        "where": code,
    }


def _input_identity(dataset: Input) -> list[Any]:
    """Return the identity of an input with all that a mix carries, and the slices of its shards.

    What is carried: origins, kept fields and rejects.
    """
    manifest = dataset.manifest
    beside = [
        name
        for name, _ in files_of_shards(manifest["shards"], manifest)
        if name.endswith((ORIGIN, METADATA))
    ]
    rejects = (file["name"] for file in manifest["files"])
    beside += sorted(name for name in rejects if name.startswith(f"{REJECTS}/"))
    slices = []
    for shard in manifest["shards"]:
        part = int(shard["name"].split("-")[1])
        first = shard.get("first_slice", slice_of_part(manifest.get("mix", {}), part))
        slices.append([shard["name"], first])
    return [identity_of(manifest, dataset.place, beside), slices]


def check_output(place: Place, inputs: Inputs, settings: MixSettings) -> None:
    """Check that the inputs can be read, and that none of them stands in the output.

    Raises:
        StateError: one does, or the output is inside a dataset.
        UsageError: the output or an input is in a store, and this is more than a merge.
    """
    output = Path(settings.output).resolve()
    if outer := surrounding_dataset(output):
        raise StateError(f"{place.where}: is inside the dataset {outer}: name another output")
    for dataset in inputs.datasets:
        if store_url(dataset.directory):
            if place.mapped is not None or not is_linked(settings, inputs) or settings.dedup:
                refuse_store(dataset.directory)
        elif output in ((source := dataset.directory.resolve()), *source.parents):
            raise StateError(
                f"{place.where}: {dataset.place} would be replaced: name another output"
            )
        elif place.mapped is None:
            raise UsageError(
                f"{dataset.place}: is on a disk and the output in a store: write the mix to a "
                "disk, and copy it"
            )


def _prepare(
    place: Place, fingerprint: str, n_parts: int, *, overwrite: bool
) -> dict[str, Any] | None:
    """Check what stands at the output; return the manifest of this very mix if it is complete.

    Raises:
        StateError: it is something else, which is not to be replaced.
    """
    contents, stopped = contents_of(place), _stopped(place)
    goes_on = not overwrite and stopped == [fingerprint, _boot()]
    if not overwrite:
        if MANIFEST in contents.ours:
            return _complete(place, fingerprint)
        if contents.in_the_way:
            raise StateError(foreign_message(place.where, contents.what, contents.in_the_way))
        if stopped[0] != fingerprint and not all(map(is_hidden, contents.ours)):
            raise StateError(
                f"{place.where}: holds {contents.what} that is not this mix: name another output, "
                "or --overwrite removes it"
            )
    # What tasks write for each other is not synced: after a crash of the machine all is made again.
    if goes_on:
        make_folder(place.local, MIX)
    else:
        _begin_again(place, fingerprint, n_parts)
    return None


def _begin_again(place: Place, fingerprint: str, n_parts: int) -> None:
    """Remove what an earlier mix has left, and ask for this one."""
    remove_contents(place)
    make_folder(place.local, MIX)
    _request(place, fingerprint, n_parts)


def _complete(place: Place, fingerprint: str) -> dict[str, Any]:
    """Return the manifest of a mix that is complete.

    Raises:
        StateError: it is of another mix or no mix, or a file is missing.
    """
    manifest, entries = intact_manifest_in(place), place.entries()
    if manifest.get("mix", {}).get("fingerprint") != fingerprint:
        maker = maker_in(place)
        kind = "a mix of other inputs or settings" if maker == MADE_BY_MIX else maker
        raise StateError(
            f"{place.where}: holds {kind}: name another output, or --overwrite removes it"
        )
    _remove_temporary(place)
    for file in manifest["files"]:
        if entries.get(file["name"]) != file["bytes"]:
            name = f"{place.where}/{file['name']}"
            raise StateError(f"{name}: was removed or cut: --overwrite makes the mix again")
    return manifest


def _request(place: Place, fingerprint: str, n_parts: int) -> None:
    """Write what is made, and how many parts it can have: the names of their files are its own."""
    request = {"boot": _boot(), "fingerprint": fingerprint, "parts": n_parts}
    place.write(MIX_REQUEST, json.dumps(request).encode())


def _stopped(place: Place) -> list[str]:
    """Return the fingerprint of a mix that was stopped, and what `_boot` was then."""
    try:
        request = json.loads(place.read(MIX_REQUEST))
        return [request["fingerprint"], request["boot"]]
    except (FileNotFoundError, StorageError, ValueError, LookupError, TypeError, RecursionError):
        return ["", ""]


def _remove_temporary(place: Place) -> None:
    """Remove what tasks have written for each other."""
    place.remove(MIX_REQUEST)
    shutil.rmtree(place.local / MIX, ignore_errors=True)


def _boot() -> str:
    """Return what is another one after the machine was started again; '' where nobody says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _make(job: Job, watcher: Watcher, fingerprint: str) -> dict[str, Any]:
    """Make what is missing, and return the manifest."""
    started_s = time.perf_counter()
    settings, inputs, place = job.settings, job.inputs, job.place
    place.make_folders()
    remove_leftovers(place)
    # Before the inputs are watched: a new link changes the time of its file's last change.
    files, shards = _link_shards(inputs, place) if job.is_linked else ([], [])
    files += _link_rejects(inputs, place)
    checks = _begin(job, watcher)
    found = _look(job, watcher, checks)
    job.taken = everything(inputs)
    if not job.is_linked:
        job.taken = choose(inputs, settings, job.chunks, job.selection(), watcher.warned)
    job.pieces = pieces_of(job.chunks, job.selection())
    if job.has_hashes and settings.dedup != DROP:
        found = _mark(job, watcher)
    if job.is_linked:
        written, length_histogram = None, linked_histogram(inputs)
    else:
        entries, length_histogram = _write(job, watcher, checks, fingerprint)
        written = count(job)
        files += [file for entry in entries for file in entry.files]
        shards = [entry.as_row() for entry in entries]
    if not shards:
        raise RecordError(f"{place.where}: no document is left: filters or shares leave all out")
    if settings.dedup == MARK:
        files += _write_marks(job)
    files += _keep_tokenizer(job)
    checks.finish()
    run = usage(time.perf_counter() - started_s, watcher.peak_memory_bytes())
    mix_entry = _entry(job, fingerprint, found)
    statement = statement_of(job, files, shards, length_histogram, written, mix_entry, run)
    manifest = write_manifest(place, statement)
    _remove_temporary(place)
    return manifest


def _begin(job: Job, watcher: Watcher) -> InputFiles:
    """Begin the bar, and check what says where; return the files of the inputs."""
    settings, inputs = job.settings, job.inputs
    is_on_disk = job.place.mapped is not None
    job.has_hashes = bool(settings.dedup) or (is_on_disk and overlaps(inputs))
    job.has_reasons = job.has_hashes or settings.has_filters
    n_passes = job.has_reasons + (0 if job.is_linked else 1 + settings.is_shuffled)
    watcher.begin(inputs.n_tokens * n_passes * inputs.dtype.itemsize)
    checks = InputFiles(inputs, settings)
    checks.watch(job.temporary)
    checks.check_linked(has_shards=job.is_linked)
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
    is_last = any(name == "part" for name, _ in tasks)

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
    n_workers = min(job.n_buckets, _n_workers(job.inputs, job.settings))
    outcomes = _do(job, watcher, tasks, n_workers)
    return [outcomes[task] for task in tasks]


def _do_checked(
    job: Job, watcher: Watcher, name: str, chunks: Sequence[Sequence[int]], checks: InputFiles
) -> list[Any]:
    """Do the tasks of a name, with the checks of each shard behind the last that reads it.

    `chunks`: the numbers of the chunks that each task reads. A worker that reads a whole shard in
    order has summed it: checks wait until each worker has probably done what it does.
    """
    n_workers = _n_workers(job.inputs, job.settings)
    tasks: list[Task] = []
    waiting: deque[list[Task]] = deque()
    open_chunk: Chunk | None = None
    for number, of_task in enumerate(chunks):
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
    outcomes = _do(job, watcher, tasks, n_workers)
    return [outcomes[name, number] for number in range(len(chunks))]


_TOKENS_OF_A_WORKER = 16 << 20
"""A worker takes about 0.4 s to start, and 0.1 to 0.3 s for so many tokens."""


def _n_workers(inputs: Inputs, settings: MixSettings) -> int:
    """Return the workers; by default a core has one if that has more to do than to start."""
    return settings.workers or min(usable_cores(), 1 + inputs.n_tokens // _TOKENS_OF_A_WORKER)


def _look(job: Job, watcher: Watcher, checks: InputFiles) -> dict[str, int]:
    """Look at each document if a setting asks for it; return how many equal ones are left out."""
    if not job.has_reasons:
        return {}
    n_documents = sum(map(len, job.chunks))
    make_reasons(job.temporary, n_documents)
    _do_checked(job, watcher, "survey", [(i,) for i in range(len(job.chunks))], checks)
    job.n_buckets = -(-n_documents // BUCKET_DOCUMENTS)
    if job.settings.dedup != DROP:
        return {}
    counts = _do_with_hashes(job, watcher, "duplicates", job.n_buckets)
    n_equal, overlap = (sum(of_bucket[i] for of_bucket in counts) for i in (0, 1))
    watcher.noted(f"{plural(n_equal, 'document')} equal one before, and are left out")
    return {"duplicates": n_equal, "overlap": overlap}


def _mark(job: Job, watcher: Watcher) -> dict[str, int]:
    """Mark the documents of the mix that equal one before; return how many, and the overlap."""
    n_documents = sum(piece.documents for piece in job.pieces)
    make_marks(job.temporary, n_documents)
    if not n_documents:
        return {"duplicates": 0, "overlap": 0}
    _do_with_hashes(job, watcher, "places", len(job.chunks))
    overlap = sum(_do_with_hashes(job, watcher, "marks", job.n_buckets))
    n_marked = sum(map(np.count_nonzero, _marks_of(job, SPLITS)))
    if overlap and not job.settings.dedup:
        watcher.warned(
            f"train and val share {plural(overlap, 'document')}: the datasets "
            "have other validation fractions; --dedup keeps those of val alone"
        )
    if job.settings.dedup:
        watcher.noted(f"{plural(n_marked, 'document')} of the mix equal one before")
    return {"duplicates": int(n_marked), "overlap": overlap}


def _link_shards(inputs: Inputs, place: Place) -> tuple[list[FileEntry], list[dict[str, Any]]]:
    """Link the shards of all inputs; return their files, and their rows of the manifest.

    Raises:
        VerifyError: a file of an input is missing, or has another size than its manifest says.
        StorageError: a file can be neither linked nor copied.
    """
    files: list[FileEntry] = []
    rows: list[dict[str, Any]] = []
    for split in SPLITS:
        for dataset in inputs.datasets:
            listed: dict[str, list[Mapping[str, Any]]] = {}
            for file in dataset.manifest["files"]:
                listed.setdefault(file["name"].partition(".")[0], []).append(file)
            for entry in dataset.entries(split):
                _, part, number = entry["name"].split("-")
                stem = shard_stem(split, dataset.first_part + int(part), int(number))
                for file in listed[entry["name"]]:
                    name = stem + file["name"].removeprefix(entry["name"])
                    files.append(_taken(place, dataset, file, name))
                row = {**entry, "name": stem}
                if "first_slice" in entry:
                    row["first_slice"] = entry["first_slice"] + dataset.first_slice
                rows.append(row)
    return files, rows


def _link_rejects(inputs: Inputs, place: Place) -> list[FileEntry]:
    """Link the files of rejects of all inputs, and return them; raises as `_link_shards`."""
    files = []
    for dataset in inputs.datasets:
        for file in dataset.manifest["files"]:
            folder, _, name = file["name"].partition("/")
            if folder == REJECTS:
                part = dataset.first_part + int(name.removesuffix(".jsonl"))
                files.append(_taken(place, dataset, file, f"{REJECTS}/{rejects_name(part)}"))
    return files


def _taken(place: Place, dataset: Input, file: Mapping[str, Any], name: str) -> FileEntry:
    """Make a file of an input stand in the output, too; return its entry there."""
    entry = FileEntry.from_json(file)
    place.take(open_place(dataset.place), entry, name)
    return replace(entry, name=name)


def _write(
    job: Job, watcher: Watcher, checks: InputFiles, fingerprint: str
) -> tuple[list[ShardEntry], list[int]]:
    """Write all parts, and return their shards, and their documents by length."""
    is_shuffled = job.settings.is_shuffled
    if is_shuffled:
        job.runs = runs_of(job.pieces, job.inputs.chunk_tokens)
    job.parts = parts_of(job.pieces, job.output.shard_tokens, is_shuffled=is_shuffled)
    n_parts = sum(dataset.n_parts for dataset in job.inputs.datasets)
    _request(job.place, fingerprint, max(n_parts, len(job.parts)))
    chunks_of_runs, chunks_of_parts = (
        [[job.pieces[piece].chunk for piece in pieces] for pieces in of_tasks]
        for of_tasks in (job.runs, [part.pieces for part in job.parts])
    )
    _do_checked(job, watcher, "run", chunks_of_runs, checks)
    parts = _do_checked(job, watcher, "part", chunks_of_parts, checks)
    entries = [from_json(ShardEntry, shard) for part in parts for shard in part["shards"]]
    for file in (file for entry in entries for file in entry.files):
        if job.place.differs(file):
            name = f"{job.place.where}/{file.name}"
            raise StateError(f"{name}: was removed or cut: --overwrite makes the mix again")
    by_length = np.array([part["length_histogram"] for part in parts], np.int64).sum(axis=0)
    return entries, np.trim_zeros(by_length, "b").tolist()


def _marks_of(job: Job, splits: Iterable[str]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the marks of splits, some at a time."""
    marks = open_marks(job.temporary)
    for split in splits:
        start = job.first_place(split)
        stop = start + amounts_of(job.pieces, split)[0]
        for at in range(start, stop, _MARKS_AT_ONCE):
            yield marks[at : min(at + _MARKS_AT_ONCE, stop)]


def _keep_tokenizer(job: Job) -> list[FileEntry]:
    """Keep the tokenizer of the first input that keeps one; all have the same ids."""
    for dataset in job.inputs.datasets:
        packed = packed_in(open_place(dataset.place))
        if packed is not None:
            job.place.remove(KEPT_TOKENIZER)
            job.place.create(KEPT_TOKENIZER, [packed])
            return [digest_of_chunks([packed], job.output.checksum).entry(KEPT_TOKENIZER)]
    return []


def _write_marks(job: Job) -> list[FileEntry]:
    """Write the files of marks: a byte for each document of a split, in order."""
    files, local = [], job.place.local
    for split in SPLITS:
        if amounts_of(job.pieces, split)[0]:
            name = duplicates_name(split)
            job.place.remove(name)
            chunks = (marks.data for marks in _marks_of(job, [split]))
            files.append(write_hashed_chunks(local, name, chunks, job.output.checksum))
    return files


def _entry(job: Job, fingerprint: str, found: Mapping[str, int]) -> dict[str, Any]:
    """Return the manifest's entry `mix`: what was asked, and what was got."""
    return {
        "fingerprint": fingerprint,
        "settings": job.settings.identity(),
        "inputs": [
            {
                "directory": dataset.place,
                "identity": identity_of(dataset.manifest, dataset.place),
                "first_part": dataset.first_part,
                "first_slice": dataset.first_slice,
                **({"mix": dataset.manifest["mix"]} if "mix" in dataset.manifest else {}),
            }
            for dataset in job.inputs.datasets
        ],
        "sources": [of_source.as_json() for of_source in job.taken],
        "val_fractions": job.inputs.val_fractions,
        **found,
    }


def is_linked(settings: MixSettings, inputs: Inputs) -> bool:
    """Return whether all shards stay as they are."""
    is_whole = all(r.epochs == 1 and not r.source for r in inputs.requests)
    changes = settings.is_shuffled or settings.has_filters or settings.shard_tokens
    is_widened = any(d.manifest["dtype"] != inputs.dtype.name for d in inputs.datasets)
    has_others = any(dataset.keep != inputs.keep for dataset in inputs.datasets)
    is_same = not (changes or is_widened or has_others)
    return is_whole and is_same and settings.dedup in ("", MARK)


_SAMPLE_TOKENS = 4 << 20
_BYTES_OF_DOCUMENT = 25
"""Of the index and the origin."""

_PASSES = 4
"""Times that a document is copied in a shuffle, each about as long as a read with its hash."""

_CHECK_PASSES = 0.3
"""A checksum of a whole file takes a third of the time of hashes of its documents."""


def plan_mix(settings: MixSettings, warn: Callable[[str], None]) -> dict[str, Any]:
    """Return what a mix would write; raises what `mix` raises before it writes.

    Returns:
        `sources`, as in the manifest of a mix; `tokens` of train and val together; `disk_bytes` at
        the end, and `peak_disk_bytes` while it is made; `checked_bytes` of the inputs, which are
        compared with their manifests before they are read; `time_s`, a lower and an upper value;
        `before_filters`: whether filters or duplicates will leave documents out of these amounts.
    """
    inputs = open_inputs(requests(settings), settings)
    check_output(open_place(settings.output), inputs, settings)
    with TemporaryDirectory(prefix="tokmill-mix-") as folder:
        write_drop_lists(settings.drop, inputs, Path(folder))
    warn_of_rules(inputs, warn)
    warn_of_copies(inputs, settings, warn)
    linked, checks = is_linked(settings, inputs), InputFiles(inputs, settings)
    looks = bool(settings.dedup or settings.has_filters)
    if looks or not linked:
        checks.check_first()
    chunks = tuple(inputs.chunks()) if looks or not linked else ()
    taken = everything(inputs)
    if not linked:
        taken = choose(inputs, settings, chunks, Selection(inputs, settings, None), warn)
    of_val = sum(dataset.n_tokens("val") for dataset in inputs.datasets)
    tokens = sum(of_source.tokens for of_source in taken) + of_val
    written, time_s = 0, 0.5
    if not linked:
        share = tokens / max(1, inputs.n_tokens)
        item = inputs.dtype.itemsize + sum(SIDECARS[ending].itemsize for ending in inputs.sidecars)
        written = tokens * item + round(share * sum(map(len, chunks))) * _BYTES_OF_DOCUMENT
        time_s = _seconds(inputs, chunks[0], settings) * share
    return {
        "sources": [of_source.as_json() for of_source in taken],
        "tokens": tokens,
        "disk_bytes": written,
        "peak_disk_bytes": written * (1 + settings.is_shuffled),
        "checked_bytes": checks.bytes_to_check(chunks, is_linked=linked),
        "time_s": [0.5 * time_s, 2 * time_s],
        "before_filters": looks,
    }


def _seconds(inputs: Inputs, chunk: Chunk, settings: MixSettings) -> float:
    """Return the seconds that all documents take, from reading and hashing a few of them."""
    batch = read_chunk(inputs, chunk)
    ends = bounds(batch, inputs.dtype)
    sample = batch.slice(0, max(1, int(np.searchsorted(ends - ends[0], _SAMPLE_TOKENS))))
    start = time.perf_counter()
    hashes_of(sample)
    of_token = (time.perf_counter() - start) / int(np.ptp(bounds(sample, inputs.dtype)))
    looks = bool(settings.dedup or settings.has_filters)
    passes = looks + (_PASSES if settings.is_shuffled else 2) + _CHECK_PASSES
    return of_token * passes * inputs.n_tokens / _n_workers(inputs, settings)
