"""The time of a run by stage and the choice of its engine, as (label, text) rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.page.engine_text import describe_engine
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Mapping

STAGES = {
    "prepare": "tokenizer, plan and choice of engine, before the first block",
    "read": "blocks of records from files",
    "parse": "records to columns",
    "render": "columns to documents",
    "wait": "waiting for an engine that encodes one block at a time",
    "load engine": "loading the engine in each process",
    "encode": "documents to ids",
    "mask": "SFT: samples to texts, their tokens to ids and mask",
    "narrow": "adding eos, converting ids to the output type, counting",
    "spot check": "encoding sampled documents again with the reference",
    "hash": "checksums of the shards",
    "write": "writing shards and making them durable",
}
"""The stages in the order in which a record passes them, and their work."""


def profile_rows(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return one row per stage (seconds of all threads, share, speed), a total, and the engine.

    Stages overlap, and a thread that waits for a processor counts in its stage: so their sum
    exceeds the elapsed time.
    """
    run, text_bytes = manifest["run"], manifest["totals"]["text_bytes"]
    stage_s = run["stage_s"]
    total_s = sum(stage_s.values()) or 1.0
    rows = []
    for stage, what in STAGES.items():
        if stage == "mask" and stage not in stage_s:
            continue
        taken = stage_s.get(stage, 0.0)
        speed = f"{size(text_bytes / taken)}/s" if taken >= 0.001 and text_bytes else ""
        rows.append((stage, f"{taken:8.2f} s {taken / total_s:4.0%}  {speed:>11}  {what}".rstrip()))
    overlap = f"{sum(stage_s.values()):.2f} s in all threads, {run['wall_s']:.2f} s elapsed"
    rows.append(("total", f"{overlap}, {run['cpu_s']:.2f} s of CPU time"))
    checks = manifest["totals"].get("checks")
    return [*rows, ("engine", describe_engine(manifest["engine"], checks))]
