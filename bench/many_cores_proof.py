"""The proof of 64 calls in flight: the command with an engine that sleeps, on any cores.

Each worker has one part. A run of two threads with the engine as it is gives the files, and the
processor time of a MB from its first call to its last, with the engine's part of it. k is the least
factor with which the work of `threads` threads fits in `--cores`. Then the engine takes k times its
time for each byte, asleep outside the GIL. Calls in flight and throughput are averages over the
time in which every process has work for all its threads: from the fifth call of a thread, as the
first ones begin and end together and load the reference, to the last call of the first process that
comes to its end. `whole` counts from the first call of all to the end of the last, starts of
processes and ends of parts included.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.padded_engine import read_calls
from bench.scaling import repeat
from tokmill.settings.quantity import parse_quantity

Row = dict[str, Any]

SKIPPED_CALLS = 4
"""First calls of each thread that do not count."""

SMALL_BYTES = 64 << 10
"""Calls of less prove the engine, before the run."""

ROOT = Path(__file__).parents[1]


def proof(args: argparse.Namespace) -> list[Row]:
    """Show calls in flight, throughput, memory and files of runs whose engine sleeps."""
    with tempfile.TemporaryDirectory(prefix="proof-", dir=args.directory) as name:
        bench = _Bench(args, Path(name))
        plain = {workers: bench.run(1, 2, ns=0.0, parts=workers) for workers in args.workers}
        cpu_ns, engine_ns = _costs(plain[args.workers[0]].calls)
        k = math.ceil(args.threads * cpu_ns / (args.cores * engine_ns))
        print(f"k = {k}: a MB takes {cpu_ns:.1f} ms of processor time", end=" ")
        print(f"({engine_ns:.1f} in the engine)\n")
        rows = []
        for workers in args.workers:
            ns = k * engine_ns
            found = bench.run(workers, args.threads // workers, ns=ns, parts=workers)
            same = found.files == plain[workers].files
            rows.append(_row(found, workers, args.threads, ns, same=same))
        return rows


@dataclass(frozen=True, slots=True)
class _Found:
    """A run: its calls, a sum of its files, its memory and that of its plan."""

    calls: np.ndarray
    files: str
    peak_bytes: int
    planned_bytes: int


class _Bench:
    """A corpus, and an environment in which the padded engine is installed."""

    def __init__(self, args: argparse.Namespace, directory: Path) -> None:
        self._args = args
        self._directory = directory
        self._corpus = directory / "corpus.jsonl"
        repeat(args.input, self._corpus, parse_quantity(args.bytes, "bytes", "--bytes"))
        information = directory / "site" / "padded-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: padded\nVersion: 1.0\n")
        points = "[tokmill.engines]\npadded = bench.padded_engine:ENGINE\n"
        (information / "entry_points.txt").write_text(points)

    def run(self, workers: int, threads: int, *, ns: float, parts: int) -> _Found:
        """Run the command with `ns` for each byte, after a plan that chooses the engine."""
        out, calls = self._directory / "out", self._directory / "calls"
        for path in (out, calls):
            shutil.rmtree(path, ignore_errors=True)
        calls.mkdir()
        args = self._args
        part_bytes = self._corpus.stat().st_size // parts + 1
        options = [
            *(str(self._corpus), "-o", str(out), "-t", str(args.tokenizer), "--json"),
            *("--engine", "padded", "--part-bytes", str(part_bytes)),
            *("--batch-bytes", args.batch_bytes),
            *("--workers", str(workers), "--threads", str(threads)),
            *(("--eos-token", args.eos_token) if args.eos_token else ()),
        ]
        planned = self._tokmill("plan", options, 0.0)
        with suppress(FileNotFoundError):
            shutil.rmtree(calls)
            calls.mkdir()
        found = self._tokmill("pretrain", options, ns)
        made = _of_run(read_calls(calls), SKIPPED_CALLS * threads)
        return _Found(
            made,
            _sum_of_files(out),
            found["run"]["peak_memory_bytes"],
            planned["memory_bytes"],
        )

    def _tokmill(self, command: str, options: list[str], ns: float) -> dict[str, Any]:
        paths = (str(ROOT / "src"), str(ROOT), str(self._directory / "site"))
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "TOKMILL_CACHE_DIR": str(self._directory / "cache"),
            "PADDED_ENGINE": self._args.engine,
            "PADDED_NS": str(ns),
            "PADDED_CALLS": str(self._directory / "calls"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tokmill", command, *options],
            check=True, stdout=subprocess.PIPE, env=variables,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def _of_run(calls: np.ndarray, most_others: int) -> np.ndarray:
    """Return the calls of processes that made more than so many: others only prove the engine."""
    ids, n_calls = np.unique(calls["process"], return_counts=True)
    found: np.ndarray = calls[np.isin(calls["process"], ids[n_calls > most_others])]
    return found[found["n_bytes"] > SMALL_BYTES]


def _sum_of_files(out: Path) -> str:
    """Return a sum over all that a run writes, but what names threads or seconds."""
    total = hashlib.sha256()
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name not in ("manifest.json", "plan.json", ".lock"):
            total.update(f"{path.relative_to(out)}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _costs(calls: np.ndarray) -> tuple[float, float]:
    """Return the ns for a byte of text of one process, and its engine's: from the first call on."""
    later = calls[1:]
    n_bytes = later["n_bytes"].sum()
    process_s = calls["process_s"].max() - calls["process_s"].min()
    return float(process_s / n_bytes * 1e9), float(later["cpu_s"].sum() / n_bytes * 1e9)


def _row(found: _Found, workers: int, threads: int, ns: float, *, same: bool) -> Row:
    calls = found.calls
    starts, stops = calls["start_s"], calls["stop_s"]
    steady = steady_span(calls, threads // workers)
    whole = (float(starts[0]), float(stops.max()))
    ideal = threads / ns * 1e3
    return {
        "workers x threads": f"{workers} x {threads // workers}",
        "calls": len(calls),
        "seconds": steady[1] - steady[0],
        "calls in flight": in_flight(calls, *steady),
        "MB/s": (speed := speed_of(calls, *steady)),
        "of the ideal": speed / ideal,
        "whole: calls in flight": in_flight(calls, *whole),
        "whole: of the ideal": speed_of(calls, *whole) / ideal,
        "peak MiB": found.peak_bytes >> 20,
        "plan MiB": found.planned_bytes >> 20,
        "same files": "yes" if same else "NO",
    }


def steady_span(calls: np.ndarray, threads: int) -> tuple[float, float]:
    """Return when all processes, of `threads` each, had begun, and when the first of them ended."""
    by_process = [calls[calls["process"] == process] for process in np.unique(calls["process"])]
    begun = [found["start_s"][SKIPPED_CALLS * threads] for found in by_process]
    return float(max(begun)), float(min(found["start_s"][-1] for found in by_process))


def _overlaps(calls: np.ndarray, start_s: float, stop_s: float) -> np.ndarray:
    """Return the seconds of each call that are in a span of time: (n,)."""
    inside = np.minimum(calls["stop_s"], stop_s) - np.maximum(calls["start_s"], start_s)
    overlaps: np.ndarray = np.maximum(inside, 0.0)
    return overlaps


def in_flight(calls: np.ndarray, start_s: float, stop_s: float) -> float:
    """Return the average number of calls in a span of time."""
    return float(_overlaps(calls, start_s, stop_s).sum()) / (stop_s - start_s)


def speed_of(calls: np.ndarray, start_s: float, stop_s: float) -> float:
    """Return the MB of text a second; of a call that crosses an end, its share."""
    shares = _overlaps(calls, start_s, stop_s) / (calls["stop_s"] - calls["start_s"])
    return float((shares * calls["n_bytes"]).sum()) / (stop_s - start_s) / 1e6
