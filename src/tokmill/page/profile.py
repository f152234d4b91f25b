"""Where the time of a run went, from its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Mapping

STAGES = {
    "prepare": "tokenizer, plan and choice of engine, before the first block",
    "read": "blocks of whole records from files",
    "parse": "records to columns",
    "render": "columns to documents",
    "wait": "for an engine that takes one batch at a time",
    "load engine": "",
    "encode": "documents to ids",
    "mask": "of SFT: samples cut into texts, tokens put together, what is trained",
    "narrow": "eos placed, ids narrowed, documents counted",
    "spot check": "some documents encoded again by the reference",
    "hash": "sums of the shards",
    "checkpoint": "making an open shard durable",
    "write": "shards written and made durable",
}
"""The stages in the order of a record's way, and what each does."""


def profile_rows(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Give one row a stage: seconds of all threads, share, and speed; then the clock.

    Stages overlap, and a thread that waits for a processor is in its stage: the sum of their
    seconds is more than the clock's.
    """
    run, text_bytes = manifest["run"], manifest["totals"]["text_bytes"]
    stage_s = run["stage_s"]
    total_s = sum(stage_s.values()) or 1.0
    rows = []
    for stage, what in STAGES.items():
        if stage in ("mask", "checkpoint") and stage not in stage_s:
            continue
        taken = stage_s.get(stage, 0.0)
        speed = f"{size(text_bytes / taken)}/s" if taken >= 0.001 and text_bytes else ""
        rows.append((stage, f"{taken:8.2f} s {taken / total_s:4.0%}  {speed:>11}  {what}".rstrip()))
    overlap = f"{sum(stage_s.values()):.2f} s of threads in {run['wall_s']:.2f} s on the clock"
    rows.append(("together", f"{overlap}, {run['cpu_s']:.2f} s of processors"))
    return rows
