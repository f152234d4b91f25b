"""The end of a run: every part's record into one manifest, written last."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill import __version__
from tokmill.pipeline.plan import resolved_settings
from tokmill.shards.layout import FORMAT_VERSION, MANIFEST, PARTS, PLAN, part_name
from tokmill.shards.record import Counts, file_as_json, manifest_sha256, sha256_hex
from tokmill.shards.writer import FileEntry
from tokmill.storage import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.pipeline.plan import Plan
    from tokmill.shards.record import PartRecord

PROBE_TEXT = "Hello, 世界! 123\n\tx = {}"
"""Encoded into the manifest, so that another tokenizer of the same name is noticed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run took.

    Seconds of wall clock, and of CPU over all processes; peak memory as the sum of PSS over the
    process tree; `text_bytes` rendered by this attempt, `resumed_parts` done by earlier ones.
    """

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    resumed_parts: int
    text_bytes: int
    workers: int


def finish(
    plan: Plan, records: Sequence[PartRecord], probe_ids: Sequence[int], usage: Usage
) -> dict[str, Any]:
    """Write the manifest and give it as plain values.

    Args:
        plan: the plan that the run followed.
        records: the commit record of every part, in order.
        probe_ids: ids of `PROBE_TEXT` by the reference.
        usage: what the run took.
    """
    directory = Path(plan.spec.config.output.dir)
    shards = [shard for record in records for step in record.steps for shard in step.shards]
    totals = Counts()
    for record in records:
        totals.add(record.counts())
    tokenizer = plan.spec.tokenizer
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "tokmill_version": __version__,
        "config": resolved_settings(plan),
        "tokenizer": {
            "name": tokenizer.name,
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            "eos": {"id": tokenizer.eos.id, "token": tokenizer.eos.content},
            "bos": None
            if tokenizer.bos is None
            else {"id": tokenizer.bos.id, "token": tokenizer.bos.content},
            "probe": {"text": PROBE_TEXT, "ids": list(probe_ids)},
        },
        "engine": plan.spec.engine.as_json(),
        "dtype": plan.spec.config.output.dtype,
        "totals": totals.as_json(),
        "length_histogram": _histogram(records),
        "sources": _sources(plan, records),
        "shards": [
            {
                "name": shard.files[0].name.removesuffix(".bin"),
                "split": shard.split,
                "documents": shard.n_documents,
                "tokens": shard.n_tokens,
            }
            for shard in shards
        ],
        "files": [file_as_json(entry) for entry in _files(directory, records)],
        "run": {
            "wall_s": round(usage.wall_s, 3),
            "cpu_s": round(usage.cpu_s, 3),
            "text_bytes_per_s": round(usage.text_bytes / max(usage.wall_s, 1e-9)),
            "peak_memory_bytes": usage.peak_memory_bytes,
            "resumed_parts": usage.resumed_parts,
            "workers": usage.workers,
            "threads": plan.spec.n_threads,
        },
    }
    manifest["sha256"] = manifest_sha256(manifest)
    # ASCII: a file name that is not UTF-8 stands in it as lone surrogates.
    write_whole(directory / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return manifest


def _files(directory: Path, records: Sequence[PartRecord]) -> list[FileEntry]:
    """Give every file of the dataset but the manifest, in the order of the dataset."""
    plan = (directory / PLAN).read_bytes()
    files = [FileEntry(PLAN, len(plan), sha256_hex(plan))]
    for record in records:
        files += record.files()
        data = record.as_bytes()
        name = f"{PARTS}/{part_name(record.part)}"
        files.append(FileEntry(name, len(data), sha256_hex(data)))
    return files


def _histogram(records: Sequence[PartRecord]) -> list[int]:
    total: Counter[int] = Counter()
    for record in records:
        for step in record.steps:
            for i, n in enumerate(step.length_histogram):
                total[i] += n
    return [total[i] for i in range(max(total, default=-1) + 1)]


def _sources(plan: Plan, records: Sequence[PartRecord]) -> list[dict[str, Any]]:
    by_path: dict[str, Counts] = {}
    for part, record in zip(plan.parts, records, strict=True):
        for piece in part.slices:
            by_path.setdefault(piece.file.path, Counts())
        for step in record.steps:
            for i, counts in step.counts.items():
                by_path[part.slices[i].file.path].add(counts)
    return [{"path": path, **counts.as_json()} for path, counts in by_path.items()]
