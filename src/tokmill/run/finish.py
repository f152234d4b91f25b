"""Finish a run: sum up the commit records, pack samples, and write the manifest, last."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import json_chunks, manifest_sha256
from tokmill.dataset.checksum import digest_of
from tokmill.dataset.commit_record import read_record, size_of_file
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import (
    FORMAT_VERSION,
    MANIFEST,
    PARTS,
    PLAN,
    REJECTS,
    SIDECARS,
    part_name,
)
from tokmill.dataset.sums import Sums
from tokmill.errors import StateError, StorageError
from tokmill.masks.truncation import CUT_SAMPLES
from tokmill.recipes.left_out import check_read_fields
from tokmill.run.reject_limits import check_outcome
from tokmill.run.unread_input import check_read, sum_unread
from tokmill.settings.plain import plain
from tokmill.storage import storage_errors, write_chunks
from tokmill.timing import LIBRARIES
from tokmill.tokenizer.manifest_entry import tokenizer_entry
from tokmill.version import __version__
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.run.plan import Plan
    from tokmill.settings.sft import SftSettings
    from tokmill.timing import StageSeconds


@dataclass(frozen=True, slots=True)
class Usage:
    """Time and memory of a run.

    Seconds of wall clock, and of CPU of all processes; peak memory is what the process tree had
    committed (anonymous and shared memory). `text_bytes`: rendered by this attempt.
    `resumed_parts`: written by earlier ones. `stage_s`: seconds of all threads by stage; stages
    overlap. Of these, `prepare` is the first, and CPU seconds are those of the threads that call:
    threads that an engine starts are a stage of their own.
    """

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    resumed_parts: int
    text_bytes: int
    workers: int
    stage_s: Mapping[str, StageSeconds] = field(default_factory=dict)

    @property
    def start_s(self) -> float:
        """Return the seconds before the first text was encoded: until then, no engine was loaded.

        Of a run without texts, those before the first block.
        """
        first = self.stage_s.get("prepare")
        if first is None:
            return 0.0
        encode = self.stage_s.get("encode")
        return first.wall_s if encode is None else encode.since_s - first.since_s


def _nothing(names: Iterable[str]) -> None:
    """Fetch no file: all are in the directory."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a run that is finished: those of a store must be fetched into `directory`.

    `check` raises `StorageError` if a file of a record is missing or has another size.
    `most_rejects`: files of rejects that are worth fetching; the first have examples enough.
    """

    directory: Path
    check: Callable[[PartRecord], None]
    fetch: Callable[[Iterable[str]], None] = _nothing
    most_rejects: int | None = None


def committed(plan: Plan) -> Iterator[PartRecord]:
    """Yield the record of every part of a dataset, in order.

    Raises:
        StateError: one is missing, or belongs to another run.
    """
    directory = Path(plan.spec.config.output.dir) / PARTS
    for part in plan.parts:
        path = directory / part_name(part.index)
        record = read_record(path, part.fingerprint(plan.spec))
        if record is None:
            raise StateError(f"{path}: missing: run the same command again to make it again")
        yield record


def check_all_read(plan: Plan, records: Iterable[PartRecord]) -> None:
    """Check that all input was read to its end; raises `UnreadInputError`."""
    found = Sums(plan.spec.config.output.checksum)
    for part, record in zip(plan.parts, records, strict=True):
        found.add(record, [(piece.file.path, piece.start == 0) for piece in part.slices])
    check_read(plan.spec.config.limits, list(found.sources.values()))


def finish(
    plan: Plan,
    records: Iterable[PartRecord],
    probe_ids: Sequence[int],
    usage: Usage,
    mask: Mapping[str, Any] | None = None,
    files: Files | None = None,
) -> dict[str, Any]:
    """Write the manifest, and return it as plain values.

    `records`: of every part, in order; one at a time is in memory. `probe_ids`: ids of `PROBE_TEXT`
    by the reference. `mask`: the entry about masks; None for pretraining. `files`: where they are;
    None for the output directory. Packs and manifest are written to their directory.

    Raises:
        RecordError: see `check_outcome`; no manifest is written.
        StorageError: a file of a record is missing or has another size.
    """
    config = plan.spec.config
    if files is None:
        output = Path(config.output.dir)
        files = Files(output, partial(_check_files, directory=output))
    directory = files.directory
    found = Sums(config.output.checksum)
    for part, record in zip(plan.parts, records, strict=True):
        files.check(record)
        found.add(record, [(piece.file.path, piece.start == 0) for piece in part.slices])
    sources = list(found.sources.values())
    rejects = [name for name in _names(found.files) if name.startswith(f"{REJECTS}/")]
    rejects = rejects[: files.most_rejects]
    files.fetch(rejects)
    check_outcome(config.limits, found.totals, sources, [directory / name for name in rejects])
    used = check_read_fields(plan.spec, plan.parts, sources)
    readings = _readings(plan, used, sources)
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "tokmill_version": __version__,
        "kind": plan.spec.kind,
        "config": plain(config),
        "tokenizer": tokenizer_entry(plan.spec.tokenizer, probe_ids),
        **({} if mask is None else {"mask": {**mask, "cut": found.totals.counters[CUT_SAMPLES]}}),
        **({"fields_read": sorted(used[0])} if used[0] and not readings else {}),
        **({"readings": readings} if readings else {}),
        "engine": plan.spec.engine.as_json(),
        **plan.spec.outside(),
        "dtype": config.output.dtype,
        "totals": _totals(found.totals, sources),
        "length_histogram": found.length_histogram(),
        "sources": sources,
        "shards": found.shards,
        "files": [_plan_file(directory, config.output.checksum), *found.files],
        "run": _run_entry(usage, plan.spec.n_threads),
    }
    if config.sft is not None and config.sft.packing:
        endings = ("idx", *(("bin", *SIDECARS) if config.sft.packed_rows else ()))
        files.fetch(name for name in _names(found.files) if name.endswith(endings))
        _pack(directory, manifest, config.sft, config.output.checksum)
    manifest["sha256"] = manifest_sha256(manifest)
    write_chunks(directory / MANIFEST, json_chunks(manifest))
    return manifest


def _readings(
    plan: Plan, used: Sequence[frozenset[str]], sources: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return how each group of files was read, and put its number into the rows of its files.

    Nothing if all files are read by the settings of the run.
    """
    readings = plan.spec.readings
    if readings:
        of_path = {s.file.path: part.reading for part in plan.parts for s in part.slices}
        for row in sources:
            row["reading"] = of_path[row["path"]]
            if name := readings[row["reading"]].source:
                row["name"] = name
    return [
        {**one.as_json(), **({"fields_read": sorted(paths)} if paths else {})}
        for one, paths in zip(readings, used, strict=False)
    ]


def _run_entry(usage: Usage, n_threads: int) -> dict[str, Any]:
    return {
        "wall_s": round(usage.wall_s, 3),
        "cpu_s": round(usage.cpu_s, 3),
        "start_s": round(usage.start_s, 3),
        "stage_s": {
            stage: round(found.wall_s, 3)
            for stage, found in usage.stage_s.items()
            if stage != LIBRARIES
        },
        "stage_cpu_s": {stage: round(found.cpu_s, 3) for stage, found in usage.stage_s.items()},
        "text_bytes_per_s": round(usage.text_bytes / max(usage.wall_s, 1e-9)),
        "peak_memory_bytes": usage.peak_memory_bytes,
        "resumed_parts": usage.resumed_parts,
        "workers": usage.workers,
        "threads": n_threads,
    }


def _check_files(record: PartRecord, directory: Path) -> None:
    check_sizes(record, partial(size_of_file, directory), str(directory))


def check_sizes(record: PartRecord, size: Callable[[str], int | None], place: str) -> None:
    """Check that a record and its files were neither removed nor truncated during the run.

    `size`: returns the bytes of a file or object by name, None without one. `place`: of all names.

    Raises:
        StorageError: one was.
    """
    name = f"{PARTS}/{part_name(record.part)}"
    if size(name) is None:
        raise StorageError(
            f"{place}/{name}: removed while the run went on: run the same command again to make it "
            "again"
        )
    for entry in record.files():
        n_bytes = size(entry.name)
        if n_bytes != entry.n_bytes:
            found = "it is gone" if n_bytes is None else f"found {n_bytes:,}"
            raise StorageError(
                f"{place}/{entry.name}: changed while the run went on: expected "
                f"{plural(entry.n_bytes, 'byte')}, {found}: run the same command again to make it "
                "again"
            )


def _pack(directory: Path, manifest: dict[str, Any], settings: SftSettings, algorithm: str) -> None:
    """Write the packs, which need all parts, and add them to the manifest."""
    from tokmill.dataset.packed_rows import write_packed_rows
    from tokmill.dataset.packing import write_packs

    files, manifest["packs"] = write_packs(
        directory, manifest["shards"], settings.packing, algorithm
    )
    if settings.packed_rows:
        rows, listed = write_packed_rows(directory, manifest, algorithm)
        files += rows
        for split, shards in listed.items():
            manifest["packs"][split]["shards"] = shards
    manifest["files"] += [entry.as_json() for entry in files]


def _plan_file(directory: Path, algorithm: str) -> dict[str, Any]:
    with storage_errors(directory / PLAN), (directory / PLAN).open("rb") as file:
        return digest_of(file, algorithm).entry(PLAN).as_json()


def _names(files: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (str(entry["name"]) for entry in files)


def _totals(totals: Counts, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of the run; the places of breaks are in the rows of their files."""
    unread = sum_unread(sources)
    return {**totals.as_json(), **({"unread": unread} if unread else {})}
