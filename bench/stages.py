"""The processor's time of tokmill by stage: share, and milliseconds for a megabyte of text.

Start-up is interpreter, imports, settings, tokenizer, choice and loading of the engine, and its
comparison with the reference, which may go on beside the first blocks. The engine has the threads
that libraries start: nearly all of their work is encoding. The rest is what no stage has, such as
the end of the process.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench.ratios import by_contender
from bench.tables import figure, table
from tokmill.timing import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.values import Sample, Timing

STAGES = {
    "engine": ("encode", LIBRARIES),
    "parse": ("parse",),
    "render": ("render",),
    "narrow": ("narrow",),
    "spot check": ("spot check",),
    "read": ("read",),
    "hash": ("hash",),
    "write": ("write", "checkpoint"),
}
"""The columns, and the stages of the manifest that they add up."""

START, REST = "start-up", "rest"
COLUMNS = (*STAGES, REST, START)


def stage_seconds(timing: Timing) -> dict[str, float]:
    """Return the processor's seconds of a whole command by column."""
    run, total_s = timing.notes["run"], timing.notes["command_cpu_s"]
    taken = run["stage_cpu_s"]
    found = {name: sum(taken.get(one, 0.0) for one in parts) for name, parts in STAGES.items()}
    prepared_s = sum(taken.get(one, 0.0) for one in ("prepare", "compare", "load engine"))
    found[START] = max(0.0, total_s - run["cpu_s"]) + prepared_s
    found[REST] = max(0.0, total_s - sum(found.values()))
    return found


def stage_shares(timings: Sequence[Timing]) -> dict[str, float]:
    """Return the median share of each column in the processor's time of several runs."""
    runs = [stage_seconds(timing) for timing in timings]
    shares = [{name: s / sum(found.values()) for name, s in found.items()} for found in runs]
    return {name: statistics.median(share[name] for share in shares) for name in COLUMNS}


def stage_table(samples: Sequence[Sample], contenders: Sequence[str]) -> str:
    """Return a table of the stages, shares and ms per MB of text, of some tokmill contenders."""
    found = by_contender(samples)
    measured = {name: list(found[name].values()) for name in contenders if name in found}
    head, rows = ["processor time by stage"], [[name] for name in (*COLUMNS, "all")]
    for name, timings in measured.items():
        head += [name, "ms/MB"]
        shares = stage_shares(timings)
        total_s = statistics.median(timing.notes["command_cpu_s"] for timing in timings)
        per_mb = total_s / timings[0].text_bytes * 1e9
        for row, share in zip(rows, [*(shares[name] for name in COLUMNS), 1.0], strict=True):
            row += [f"{share:.0%}", figure(share * per_mb)]
    return table(head, rows)


def stage_cells(timings: Sequence[Timing]) -> list[str]:
    """Return the shares of the columns as cells; a dash for each if nothing was measured."""
    if not timings:
        return ["-"] * len(COLUMNS)
    shares: Mapping[str, float] = stage_shares(timings)
    return [f"{shares[name]:.0%}" for name in COLUMNS]
