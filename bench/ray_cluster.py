"""Runs on a Ray cluster of three raylets on this machine: losing one, losing the driver, overhead.

    python -m bench.ray_cluster losses --tokenizer T --directory DIR COMMAND…
    python -m bench.ray_cluster memory --tokenizer T --directory DIR INPUT
    python -m bench.ray_cluster overhead --tokenizer T --directory DIR --rounds 5 INPUT

`losses` runs `tokmill COMMAND…` (`pretrain INPUT` or `sft INPUT --packing 2048`, with more options)
serially, then on the cluster: a raylet is killed when a part is done, the driver after that, and
the same command is run again. All files of both datasets must have the same sha256. `memory` lets
Ray's memory monitor kill every task: the run must end in one clear error. `overhead` alternates
runs on two processes with runs on two raylets, and divides the difference by the number of parts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ray.cluster_utils import Cluster

NODE_MEMORY = 2 << 30
OBJECT_STORE = 80 << 20
SECONDS = 300.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the three checks."""
    parser = argparse.ArgumentParser(prog="python -m bench.ray_cluster")
    parser.add_argument("check", choices=("losses", "memory", "overhead"))
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part-bytes", default="250kB")
    chosen, command = parser.parse_known_args(arguments)
    directory: Path = chosen.directory / chosen.check
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    options = ["-t", chosen.tokenizer, "--part-bytes", chosen.part_bytes, "--threads", "1"]
    if chosen.check == "losses":
        losses(directory, [*command, *options])
    elif chosen.check == "memory":
        memory(directory, ["pretrain", *command, *options])
    else:
        overhead(directory, ["pretrain", *command, *options], chosen.rounds)


@contextmanager
def cluster(n_nodes: int, directory: Path) -> Iterator[Cluster]:
    """Yield a cluster of raylets with a processor each, the first of them with the driver."""
    one = {
        "num_cpus": 1,
        "memory": NODE_MEMORY,
        "object_store_memory": OBJECT_STORE,
        "include_dashboard": False,
    }
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    made = Cluster(initialize_head=True, head_node_args={**one, "temp_dir": str(directory / "ray")})
    try:
        for _ in range(n_nodes - 1):
            made.add_node(**one)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


def start(command: Sequence[str], out: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start a command of tokmill."""
    every = [sys.executable, "-m", "tokmill", *command, "-o", str(out), "--quiet", *more]
    return subprocess.Popen(every)


def finish(command: Sequence[str], out: Path, *more: str) -> float:
    """Run a command of tokmill; return its seconds."""
    since = time.perf_counter()
    status = start(command, out, *more).wait(SECONDS)
    if status:
        raise SystemExit(f"{out.name}: tokmill ended with {status}")
    return time.perf_counter() - since


def done(out: Path) -> int:
    """Return how many parts are committed."""
    return len(list(out.glob("parts/???????.json")))


def wait_for(process: subprocess.Popen[bytes], out: Path, n_parts: int) -> None:
    """Wait until a run has committed so many parts."""
    deadline = time.monotonic() + SECONDS
    while done(out) < n_parts:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{out.name}: ended or stalled with {done(out)} of {n_parts} parts")
        time.sleep(0.02)


def sums(out: Path) -> dict[str, str]:
    """Return the sha256 of every file of tokens, masks, indexes and packs."""
    endings = (".bin", ".idx", ".mask")
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and (path.suffix in endings or "pack" in path.name)
    }


def losses(directory: Path, command: Sequence[str]) -> None:
    """Lose a raylet and the driver in the middle of a run; the dataset must be the serial one."""
    finish(command, directory / "serial", "--workers", "1")
    n_parts, out = done(directory / "serial"), directory / "out"
    with cluster(3, directory) as made:
        ray = ("--executor", f"ray:{made.address}")
        driver = start(command, out, *ray)
        wait_for(driver, out, 1)
        nodes = list(made.worker_nodes)
        made.remove_node(nodes[0], allow_graceful=False)
        print(f"a raylet of 3 was killed with {done(out)} of {n_parts} parts done", flush=True)
        wait_for(driver, out, max(n_parts // 2, done(out) + 1))
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        before = done(out)
        print(f"the driver was killed with {before} of {n_parts} parts done", flush=True)
        finish(command, out, *ray)
    subprocess.run([sys.executable, "-m", "tokmill", "verify", str(out)], check=True)
    want, got = sums(directory / "serial"), sums(out)
    if want != got:
        raise SystemExit(f"differs: {sorted(k for k in want | got if want.get(k) != got.get(k))}")
    print(f"{len(want)} files of tokens, masks, indexes and packs: same sha256 as the serial run")


def memory(directory: Path, command: Sequence[str]) -> None:
    """Let Ray's memory monitor kill every task; the run must end, and say why."""
    variables = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "50"}
    os.environ.update(variables)
    with cluster(1, directory) as made:
        since = time.perf_counter()
        every = [*command, "-o", str(directory / "out"), "--quiet"]
        found = subprocess.run(
            [sys.executable, "-m", "tokmill", *every, "--executor", f"ray:{made.address}"],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    print(f"exit code {found.returncode} after {time.perf_counter() - since:.1f} s:", found.stderr)
    if found.returncode != 7 or "was short of memory" not in found.stderr:
        raise SystemExit("expected one error about memory, with exit code 7")


def overhead(directory: Path, command: Sequence[str], rounds: int) -> None:
    """Alternate two processes and two raylets; print the difference for each part."""
    seconds: dict[str, list[float]] = {"processes": [], "ray": []}
    with cluster(2, directory) as made:
        ways = {
            "processes": ("--workers", "2"),
            "ray": ("--executor", f"ray:{made.address}"),
        }
        for number in range(rounds):
            for name, options in sorted(ways.items(), reverse=bool(number % 2)):
                out = directory / f"{name}-{number}"
                seconds[name].append(finish(command, out, *options))
                n_parts = done(out)
                shutil.rmtree(out)
    for name, each in seconds.items():
        print(f"{name}: median {statistics.median(each):.2f} s of {sorted(map(_round, each))}")
    pairs = [ray - own for own, ray in zip(*seconds.values(), strict=True)]
    per_part = statistics.median(pairs) / n_parts
    print(f"{n_parts} parts: {1000 * per_part:.0f} ms for each part, median of {rounds} pairs")


def _round(seconds: float) -> float:
    return round(seconds, 2)


if __name__ == "__main__":
    main()
