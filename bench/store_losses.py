"""Runs that read from an object store and write to it, while requests fail and the run is killed.

    python -m bench.store_losses --tokenizer T --directory DIR --rounds 6 --share 0.01 COMMAND…

A server that speaks S3 (moto) runs on this machine and fails the share `--share` of all requests:
errors before and after the work is done, cut connections, late answers. Each round runs
`tokmill COMMAND…` (`pretrain INPUT` or `sft INPUT --packing 2048`, with more options) with input
and output in the store. It kills the run (SIGKILL) once to three times at random moments, begins
two others while it goes on (one of the same plan, which is killed with it, and one of another plan,
which must end with exit code 6), and starts the command again until it is done; every other round
as if on another machine. All objects must be those of an unbroken run to a directory, and `tokmill
verify` must find nothing.

Name the engine (`--engine gigatoken`): otherwise, on short texts, the faster one may be another in
the next run, and `plan.json` names it.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import boto3

from tokmill.dataset.place import Place
from tokmill.place import open_place

PORT, LATE_S = 5077, 10.0
BUCKET = "s3://corpus"
SECONDS = 900.0
_REFUSED = 6
_ENVIRONMENT = {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the rounds, and print what they came to; the last line is JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_losses")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part-bytes", default="2MB")
    chosen, command = parser.parse_known_args(arguments)
    if len(command) < 2:
        parser.error("expected a command at the end: pretrain INPUT, or sft INPUT --packing 2048")
    recipe, source, *more = command
    shutil.rmtree(chosen.directory, ignore_errors=True)
    chosen.directory.mkdir(parents=True)
    os.environ |= _ENVIRONMENT
    with server(chosen.share):
        name = f"in/{Path(source).name}"
        address = _ENVIRONMENT["AWS_ENDPOINT_URL"]
        boto3.client("s3", endpoint_url=address).create_bucket(Bucket="corpus")
        open_place(f"{BUCKET}/in").write(Path(source).name, Path(source).read_bytes())
        options = ["-t", chosen.tokenizer, "--part-bytes", chosen.part_bytes, *more, "--quiet"]
        losses = Losses(chosen.directory, [recipe, f"{BUCKET}/{name}", *options], chosen.seed)
        for number in range(chosen.rounds):
            losses.round(number)
        losses.counts |= faults()
    print(json.dumps({"differing": 0, "problems": 0, **losses.counts}))
    raise SystemExit(bool(losses.counts["differing"] or losses.counts["problems"]))


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
    with urllib.request.urlopen(f"{_ENVIRONMENT['AWS_ENDPOINT_URL']}/-faults") as answer:
        return Counter({kind: n for kind, n in json.load(answer).items() if kind})


class Losses:
    """The rounds of one command, and their counts."""

    def __init__(self, directory: Path, command: Sequence[str], seed: int) -> None:
        self.directory, self.command = directory, command
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        since = time.monotonic()
        self._finish(directory / "unbroken", directory)
        self._seconds = time.monotonic() - since
        self._expected = {
            path.relative_to(directory / "unbroken").as_posix(): _sum(path.read_bytes())
            for path in (directory / "unbroken").rglob("*")
            if path.is_file() and path.name not in ("manifest.json", ".lock")
        }

    def round(self, number: int) -> None:
        """Kill a run, start it again, compare its objects."""
        out = f"{BUCKET}/out-{number}"
        staging = self._staging()
        for _ in range(self._random.randint(1, 3)):
            process = self._start(out, staging)
            time.sleep(self._random.uniform(0.5, max(2.0, 1.5 * self._seconds)))
            second = self._start(out, self._staging())
            self._begin_other_plan(out)
            was_running = process.poll() is None
            for running in (process, second):
                running.send_signal(signal.SIGKILL)
                running.communicate()
            self.counts["kills"] += was_running
            if number % 2:
                staging = self._staging()
        self._finish(out, staging)
        self._compare(open_place(out))
        self.counts["rounds"] += 1
        print(f"round {number}: {dict(self.counts)}", file=sys.stderr, flush=True)

    def _staging(self) -> Path:
        """Return a new directory for temporary files: another one is another machine."""
        return Path(tempfile.mkdtemp(dir=self.directory))

    def _start(self, out: object, staging: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tokmill", *self.command, "-o", str(out), *more]
        return subprocess.Popen(
            command, env={**os.environ, "TMPDIR": str(staging)}, stderr=subprocess.PIPE
        )

    def _begin_other_plan(self, out: str) -> None:
        """Begin a run of another plan where parts are done; it must be refused."""
        if not any(name.startswith("parts/") for name in open_place(out).entries()):
            return
        other = self._start(out, self._staging(), "--min-tokens", "3")
        _, error = other.communicate(timeout=SECONDS)
        self.counts["other plans"] += 1
        self._note(other.returncode != _REFUSED, f"another plan: {error.decode()}")

    def _finish(self, out: object, staging: Path) -> None:
        """Start the command until it is done."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            process = self._start(out, staging)
            _, error = process.communicate(timeout=SECONDS)
            if process.returncode == 0:
                return
            self._note(True, f"{process.returncode}: {error.decode()}")
        raise SystemExit(f"{out}: not done in {SECONDS:.0f} s")

    def _compare(self, place: Place) -> None:
        names = [name for name in place.entries() if name != "manifest.json"]
        found = {name: _sum(place.read(name)) for name in names}
        self.counts["objects"] += len(found)
        every = found.keys() | self._expected.keys()
        different = [name for name in sorted(every) if found.get(name) != self._expected.get(name)]
        self.counts["differing"] += len(different)
        self._note(bool(different), f"{place.where}: differing: {different[:5]}")
        command = [sys.executable, "-m", "tokmill", "verify", place.where]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        self._note(verified.returncode != 0, f"verify: {verified.stdout}{verified.stderr}")

    def _note(self, is_wrong: bool, what: str) -> None:
        if is_wrong:
            self.counts["problems"] += 1
            print(what, file=sys.stderr, flush=True)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
