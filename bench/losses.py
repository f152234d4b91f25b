"""Runs that lose what they stand on: requests to an object store, a node of Ray, its memory.

    python -m bench.losses store  --tokenizer T --directory DIR [--rounds 6] [--share 0.01] COMMAND…
    python -m bench.losses ray    --tokenizer T --directory DIR COMMAND…
    python -m bench.losses memory --tokenizer T --directory DIR COMMAND…

COMMAND is `pretrain INPUT` or `sft INPUT --packing 2048`, with more options. A serial run to a
directory that nothing stops says which bytes are right.

`store`: a server that speaks S3 (moto) runs on this machine and fails the share `--share` of all
requests: errors before and after the work is done, cut connections, late answers. Input and output
are in the store. Each round kills the run (SIGKILL) once to three times at random moments, begins
two others while it goes on (one of the same plan, which is killed with it, and one of another plan,
which must end with exit code 6), and starts the command again until it is done; every other round
as if on another machine. Name the engine (`--engine gigatoken`): otherwise, on short texts, the
faster one may be another in the next run, and `plan.json` names it. `ray`: on a cluster of three
raylets, one is killed when a part is done, the driver after that, and the command is run again.
`memory`: Ray's memory monitor kills every task; the run must end in one clear error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tokmill.place import open_place

PORT, LATE_S = 5077, 10.0
BUCKET = "s3://corpus"
STORE = {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
}
NODE = {"num_cpus": 1, "memory": 2 << 30, "object_store_memory": 80 << 20}
SHORT_OF_MEMORY = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "50"}
LIMIT_S = 900.0
_REFUSED, _WORKER = 6, 7


class Run:
    """A command of tokmill that is started again and again, and the problems that it had."""

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        self.directory, self.command = directory, [*command, "--quiet"]
        self.counts: Counter[str] = Counter()
        self.expected: Mapping[str, str] = {}
        self.seconds = 0.0

    def start(
        self, out: object, *more: str, staging: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the command; `staging`: its temporary files, another directory is a new machine."""
        words = [sys.executable, "-m", "tokmill", *self.command, "-o", str(out), *more]
        variables = {**os.environ, "TMPDIR": str(staging or self.new_machine())}
        return subprocess.Popen(words, env=variables, stderr=subprocess.PIPE)

    def new_machine(self) -> Path:
        """Return a new directory for temporary files."""
        return Path(tempfile.mkdtemp(dir=self.directory))

    def finish(self, out: object, *more: str, staging: Path | None = None) -> None:
        """Start the command until it is done; an end with an error is a problem."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            process = self.start(out, *more, staging=staging)
            _, error = process.communicate(timeout=LIMIT_S)
            if process.returncode == 0:
                return
            self.note(True, f"{process.returncode}: {error.decode()}")
        raise SystemExit(f"{out}: not done in {LIMIT_S:.0f} s")

    def unbroken(self) -> None:
        """Make the dataset that all others must be equal to."""
        since = time.monotonic()
        self.finish(self.directory / "unbroken", "--workers", "1")
        self.seconds = time.monotonic() - since
        self.expected = sums(self.directory / "unbroken")

    def compare(self, out: object) -> None:
        """Compare all files with those of the unbroken run, and verify the dataset."""
        found = sums(out)
        self.counts["files"] += len(found)
        every = found.keys() | self.expected.keys()
        different = [name for name in sorted(every) if found.get(name) != self.expected.get(name)]
        self.counts["differing"] += len(different)
        self.note(bool(different), f"{out}: differing: {different[:5]}")
        command = [sys.executable, "-m", "tokmill", "verify", str(out)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        self.note(verified.returncode != 0, f"verify: {verified.stdout}{verified.stderr}")

    def note(self, is_wrong: bool, what: str) -> None:
        """Count and show a problem."""
        if is_wrong:
            self.counts["problems"] += 1
            print(what, file=sys.stderr, flush=True)


def sums(out: object) -> dict[str, str]:
    """Return the sha256 of every file that must be the same in each run."""
    place = open_place(str(out))
    names = [name for name in place.entries() if name not in ("manifest.json", ".lock")]
    return {name: hashlib.sha256(place.read(name)).hexdigest() for name in names}


# An object store


@contextmanager
def server(share: float) -> Iterator[None]:
    """Run the server that fails in a process of its own."""
    command = [sys.executable, "-m", "tests.place.faulty_s3", str(PORT), str(share), str(LATE_S)]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError):
                faults()
                break
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def faults() -> Counter[str]:
    """Return the faults that the server has injected, by kind, and the number of requests."""
    with urllib.request.urlopen(f"{STORE['AWS_ENDPOINT_URL']}/-faults") as answer:
        return Counter({kind: n for kind, n in json.load(answer).items() if kind})


def store(run: Run, rounds: int, share: float, seed: int) -> None:
    """Kill runs whose input and output are in a store, and continue them."""
    import boto3

    os.environ |= STORE
    chance = random.Random(seed)
    source = Path(run.command[1])
    with server(share):
        client = boto3.client("s3", endpoint_url=STORE["AWS_ENDPOINT_URL"])
        client.create_bucket(Bucket="corpus")
        open_place(f"{BUCKET}/in").write(source.name, source.read_bytes())
        run.command[1] = f"{BUCKET}/in/{source.name}"
        run.unbroken()
        for number in range(rounds):
            out, staging = f"{BUCKET}/out-{number}", run.new_machine()
            for _ in range(chance.randint(1, 3)):
                processes = [run.start(out, staging=staging)]
                time.sleep(chance.uniform(0.5, max(2.0, 1.5 * run.seconds)))
                processes.append(run.start(out))
                _begin_other_plan(run, out)
                run.counts["kills"] += processes[0].poll() is None
                for process in processes:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()
                staging = run.new_machine() if number % 2 else staging
            run.finish(out, staging=staging)
            run.compare(out)
            run.counts["rounds"] += 1
            print(f"round {number}: {dict(run.counts)}", file=sys.stderr, flush=True)
        run.counts |= faults()


def _begin_other_plan(run: Run, out: str) -> None:
    """Begin a run of another plan where parts are done; it must be refused."""
    if any(name.startswith("parts/") for name in open_place(out).entries()):
        other = run.start(out, "--min-tokens", "3")
        _, error = other.communicate(timeout=LIMIT_S)
        run.counts["other plans"] += 1
        run.note(other.returncode != _REFUSED, f"another plan: {error.decode()}")


# Ray


@contextmanager
def cluster(n_nodes: int, directory: Path) -> Iterator[Any]:
    """Yield a cluster of raylets with a processor each, the first of them with the driver."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    one: dict[str, Any] = {**NODE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**one, "temp_dir": str(directory / "ray")})
    try:
        for _ in range(n_nodes - 1):
            made.add_node(**one)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


def ray(run: Run) -> None:
    """Lose a raylet and the driver in the middle of a run."""
    run.unbroken()
    n_parts, out = n_done(run.directory / "unbroken"), run.directory / "out"
    with cluster(3, run.directory) as made:
        options = ("--executor", f"ray:{made.address}")
        driver = run.start(out, *options)
        wait_for(driver, out, 1)
        made.remove_node(next(iter(made.worker_nodes)), allow_graceful=False)
        print(f"a raylet of 3 was killed with {n_done(out)} of {n_parts} parts done", flush=True)
        wait_for(driver, out, max(n_parts // 2, n_done(out) + 1))
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        print(f"the driver was killed with {n_done(out)} of {n_parts} parts done", flush=True)
        run.finish(out, *options)
    run.compare(out)


def n_done(out: Path) -> int:
    """Return how many parts are committed."""
    return len(list(out.glob("parts/???????.json")))


def wait_for(process: subprocess.Popen[bytes], out: Path, n_parts: int) -> None:
    """Wait until a run has committed so many parts."""
    deadline = time.monotonic() + LIMIT_S
    while n_done(out) < n_parts:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{out.name}: ended or stalled with {n_done(out)} of {n_parts} parts")
        time.sleep(0.02)


def memory(run: Run) -> None:
    """Let Ray's memory monitor kill every task; the run must end, and say why."""
    os.environ |= SHORT_OF_MEMORY
    with cluster(1, run.directory) as made:
        process = run.start(run.directory / "out", "--executor", f"ray:{made.address}")
        error = process.communicate(timeout=LIMIT_S)[1].decode()
    print(f"exit code {process.returncode}: {error}")
    is_wrong = process.returncode != _WORKER or "was short of memory" not in error
    run.note(is_wrong, f"expected one error about memory, with exit code {_WORKER}")


def main() -> None:
    """Run one of the three checks; the last line is JSON; exit with 1 if there was a problem."""
    parser = argparse.ArgumentParser(prog="python -m bench.losses", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("check", choices=("store", "ray", "memory"))
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part-bytes", default="250kB")
    chosen, command = parser.parse_known_args()
    if len(command) < 2:
        parser.error("expected a command at the end: pretrain INPUT, or sft INPUT --packing 2048")
    directory: Path = chosen.directory / chosen.check
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    options = ["-t", chosen.tokenizer, "--part-bytes", chosen.part_bytes, "--threads", "1"]
    run = Run(directory, [*command, *options])
    if chosen.check == "store":
        store(run, chosen.rounds, chosen.share, chosen.seed)
    elif chosen.check == "ray":
        ray(run)
    else:
        memory(run)
    print(json.dumps({"differing": 0, "problems": 0, **run.counts}))
    sys.exit(bool(run.counts["problems"]))


if __name__ == "__main__":
    main()
