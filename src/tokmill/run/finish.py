"""Finish a run: sum up the records of its parts, pack samples, and write the manifest, last."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import json_chunks, manifest_sha256
from tokmill.dataset.checksum import Digest
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import (
    FORMAT_VERSION,
    MANIFEST,
    PLAN,
    REJECTS,
    SIDECARS,
)
from tokmill.dataset.sums import Sums
from tokmill.errors import StateError
from tokmill.masks.truncation import CUT_SAMPLES
from tokmill.recipes.left_out import check_read_fields
from tokmill.run.part import check_plan
from tokmill.run.reject_limits import check_outcome, check_read, sum_unread
from tokmill.settings.plain import plain
from tokmill.timing import LIBRARIES
from tokmill.tokenizer.manifest_entry import tokenizer_entry
from tokmill.urls import shown
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.run.plan import Plan
    from tokmill.settings.sft import SftSettings
    from tokmill.timing import StageSeconds


_MOST_REJECTS = 20
"""Files of rejects that are read for examples in a message."""


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


def check_all_read(plan: Plan, records: Iterable[PartRecord]) -> None:
    """Check that all input was read to its end; raises `UnreadInputError`."""
    found = Sums(plan.spec.config.output.checksum)
    for part, record in zip(plan.parts, records, strict=True):
        found.add(record, [(piece.file.path, piece.start == 0) for piece in part.slices])
    check_read(plan.spec.config.limits, list(found.sources.values()))


def finish(
    plan: Plan,
    place: Place,
    records: Iterable[PartRecord],
    probe_ids: Sequence[int],
    usage: Usage,
    mask: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write packs and manifest, which is the last file, and return it as plain values.

    `records`: of every part, in order. `probe_ids`: ids of `PROBE_TEXT` by the reference. `mask`:
    the entry about masks; None for pretraining.

    Raises:
        RecordError: see `check_outcome`; no manifest is written.
        StorageError: a file cannot be read or written.
    """
    config = plan.spec.config
    check = partial(check_plan, place, plan.spec.plan_stamp)
    sums = Sums(config.output.checksum)
    for part, record in zip(plan.parts, records, strict=True):
        sums.add(record, [(piece.file.path, piece.start == 0) for piece in part.slices])
    sources = list(sums.sources.values())
    rejects = [name for name in _names(sums.files) if name.startswith(f"{REJECTS}/")]
    place.fetch(rejects[:_MOST_REJECTS])
    paths = [place.local / name for name in rejects[:_MOST_REJECTS]]
    check_outcome(config.limits, sums.totals, sources, paths)
    used = check_read_fields(plan.spec, plan.parts, sources)
    readings = _readings(plan, used, sources)
    output = replace(config.output, dir=shown(config.output.dir))  # a URL may hold a password
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "tokmill_version": __version__,
        "kind": plan.spec.kind,
        "config": plain(replace(config, output=output)),
        "tokenizer": tokenizer_entry(plan.spec.tokenizer, probe_ids),
        **({} if mask is None else {"mask": {**mask, "cut": sums.totals.counters[CUT_SAMPLES]}}),
        **({"fields_read": sorted(used[0])} if used[0] and not readings else {}),
        **({"readings": readings} if readings else {}),
        "engine": plan.spec.engine.as_json(),
        **plan.spec.outside(),
        "dtype": config.output.dtype,
        "totals": _totals(sums.totals, sources),
        "length_histogram": sums.length_histogram(),
        "sources": sources,
        "shards": sums.shards,
        "files": [_plan_file(place, config.output.checksum), *sums.files],
        "run": _run_entry(usage, plan.spec.n_threads),
    }
    if config.sft is not None and config.sft.packing:
        endings = ("idx", *(("bin", *SIDECARS) if config.sft.packed_rows else ()))
        place.fetch(name for name in _names(sums.files) if name.endswith(endings))
        _pack(place, manifest, config.sft, config.output.checksum, check)
    manifest["sha256"] = manifest_sha256(manifest)
    check()  # packing may have taken long
    if not place.create(MANIFEST, json_chunks(manifest)):
        raise StateError(
            f"{place.where}/{MANIFEST}: another run has just written it: run the same command again"
        )
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


def _pack(
    place: Place,
    manifest: dict[str, Any],
    settings: SftSettings,
    algorithm: str,
    check: Callable[[], None],
) -> None:
    """Write the packs, which need all parts, and add them to the manifest."""
    from tokmill.dataset.packed_rows import write_packed_rows
    from tokmill.dataset.packing import write_packs

    files, manifest["packs"] = write_packs(
        place.local, manifest["shards"], settings.packing, algorithm
    )
    if settings.packed_rows:
        rows, listed = write_packed_rows(place.local, manifest, algorithm)
        files += rows
        for split, shards in listed.items():
            manifest["packs"][split]["shards"] = shards
    for entry in files:
        place.keep(entry, check)
    manifest["files"] += [entry.as_json() for entry in files]


def _plan_file(place: Place, algorithm: str) -> dict[str, Any]:
    digest = Digest(algorithm)
    for chunk in place.chunks(PLAN):
        digest.update(chunk)
    return digest.entry(PLAN).as_json()


def _names(files: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (str(entry["name"]) for entry in files)


def _totals(totals: Counts, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of the run; the places of breaks are in the rows of their files."""
    unread = sum_unread(sources)
    return {**totals.as_json(), **({"unread": unread} if unread else {})}
