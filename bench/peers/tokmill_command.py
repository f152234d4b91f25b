"""`tokmill pretrain`, as a user runs it: start, plan, read, parse, render, encode, hash, fsync.

Settings: `arguments`, further options of the command.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.values import NotMeasured, Task, Timing


def run(task: Task) -> Timing:
    """Time the whole command, and read what its manifest says."""
    output = Path(task.work) / "dataset"
    command = [sys.executable, "-m", "tokmill", "pretrain", *task.inputs]
    command += ["-t", task.tokenizer, "-o", str(output), "-q", *task.settings["arguments"]]
    command += ["--eos-token", task.eos] if task.eos else []
    environment = os.environ | {"TOKMILL_CACHE_DIR": task.cache}
    start, start_cpu_s = time.perf_counter(), _children_cpu_s()
    child = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    seconds = time.perf_counter() - start
    if child.returncode:
        raise NotMeasured((child.stderr.strip().splitlines() or ["no message"])[-1][:200])
    manifest = json.loads((output / "manifest.json").read_bytes())
    totals = manifest["totals"]
    notes = {"run": manifest["run"], "engine": manifest["engine"], "rejects": totals["rejects"]}
    notes["command_cpu_s"] = _children_cpu_s() - start_cpu_s
    own_s = manifest["run"]["wall_s"] - manifest["run"]["start_s"]
    return Timing(
        seconds,
        own_s,
        totals["text_bytes"],
        totals["tokens"],
        totals["documents"],
        seconds - own_s,
        notes,
    )


def _children_cpu_s() -> float:
    """Return the CPU seconds of processes that have ended, the command's and its workers'."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime
