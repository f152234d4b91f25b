"""Train from an object store on loopback: speed, bytes that are fetched, readers that are killed.

    python -m bench.loader_store                   speed against a directory, bytes of k nodes
    python -m bench.loader_store --kills 40        kill one of four readers that share a cache

The store is a small server that speaks as much of S3 as is read: each answer takes 30 ms longer,
and a share of them are errors or break off. The speed is that of the first epoch, once the first
blocks are there, and of the later ones; bytes are shares of those of the dataset. A reader that was
killed goes on from the last batch that it wrote down; each batch must be that of a run in a
directory that nothing disturbed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

import tokmill
from bench.tables import figure, table
from tokmill.loader import Loader, windows

TOKENIZER = Path(__file__).parents[1] / "data_samples" / "tokenizer"
EOS = 2
LENGTH = 1024
WORLD = 4
EPOCHS = 3
STEP_S = 0.001
"""Of a training step between two batches, in which no reader of it works."""
COUNT = "/-sent"
"""Where the server says how many bytes of objects it has sent."""


@dataclass
class Faults:
    """What the server does wrong, and what it counts.

    Attributes:
        latency_s: of each answer.
        share: of the answers, those that are errors or break off.
        n_requests: so far.
        n_bytes: of objects, that were sent.
    """

    latency_s: float = 0.0
    share: float = 0.0
    n_requests: int = 0
    n_bytes: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(1))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> str:
        """Return the fault of an answer: `error`, `cut`, or '' for none."""
        time.sleep(self.latency_s)
        with self.lock:
            self.n_requests += 1
            is_wrong = self.random.random() < self.share
            return self.random.choice(("error", "cut")) if is_wrong else ""

    def sent(self, n_bytes: int) -> None:
        """Count bytes that were sent."""
        with self.lock:
            self.n_bytes += n_bytes


@contextmanager
def serving(directory: Path, faults: Faults) -> Iterator[str]:
    """Serve the files of a directory as the objects of a bucket; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path == COUNT:
                count = str(faults.n_bytes).encode()
                self.answer(200, count, len(count))
                return
            fault = faults.next()
            path = directory / self.path.partition("?")[0].split("/", 2)[-1]
            if fault == "error" or not path.is_file():
                self.answer(500 if fault else 404, b"", 0)
                return
            n_bytes = path.stat().st_size
            first, last = 0, n_bytes - 1
            asked = self.headers.get("Range", "")
            if asked:
                start, _, end = asked.removeprefix("bytes=").partition("-")
                first, last = int(start), int(end or last)
                self.content_range = f"bytes {first}-{last}/{n_bytes}"
            with path.open("rb") as file:
                file.seek(first)
                body = b"" if self.command == "HEAD" else file.read(last - first + 1)
            if fault == "cut":
                body = body[: len(body) // 2]
                self.close_connection = True
            self.answer(206 if asked else 200, body, last - first + 1)
            faults.sent(len(body))

        content_range = ""

        def answer(self, status: int, body: bytes, n_bytes: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(n_bytes))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
            if status == 206:
                self.send_header("Content-Range", self.content_range)
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # a reader was killed

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(directory: Path, latency_s: float) -> Iterator[str]:
    """Serve from a process of its own, which takes no time of this one's; yield the address."""
    arguments = ["--serve", str(directory), str(latency_s)]
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.loader_store", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert server.stdout is not None
    try:
        yield server.stdout.readline().decode().strip()
    finally:
        server.kill()
        server.wait()


def sent_bytes(address: str) -> int:
    """Return the bytes that the server has sent."""
    with urllib.request.urlopen(f"{address}{COUNT}") as answer:
        return int(answer.read())


def make_dataset(folder: Path, n_tokens: int, shard_tokens: int) -> Path:
    """Write a dataset of random ids; documents have about 1,000 tokens."""
    chance = np.random.default_rng(0)
    files = []
    for number in range(n_tokens // shard_tokens):
        ids = chance.integers(100, 20_000, shard_tokens).astype("<u2")
        ids[999::1000] = ids[-1] = EOS
        files.append(folder / f"{number:05d}.bin")
        files[-1].write_bytes(ids.tobytes())
    output = folder / "bucket" / "data"
    tokmill.import_dataset(
        files, trainer="nanogpt", tokenizer=TOKENIZER, output=output, progress=False
    )
    for file in files:
        file.unlink()
    return output


def environment(address: str) -> dict[str, str]:
    """Return the variables with which a process reads the server."""
    return {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip


def digest_of(batch: dict[str, Any]) -> str:
    """Return a sum of all arrays of a batch."""
    state = hashlib.blake2b(digest_size=8)
    for name in sorted(batch):
        state.update(np.ascontiguousarray(batch[name]).data)
    return state.hexdigest()


def loader_of(source: Any, rank: int, world: int, seen: int = 0) -> Loader:
    """Return the loader of a reader; `seen`: samples that all ranks have received."""
    loader = Loader(source, 8, rank=rank, world=world, seed=3, shuffle="blocks", blocks=4, epochs=2)
    state = loader.state_dict()
    epoch, seen = divmod(seen, loader.n_samples)
    loader.load_state_dict({**state, "epoch": epoch, "samples_seen": seen})
    return loader


def read(url: str, cache: str, cache_bytes: int, rank: int, done: Path) -> None:
    """Read the batches of a rank, from the last that is written down, and write each down."""
    lines = done.read_text().split("\n")[:-1] if done.exists() else []
    with done.open("w") as file:  # the last line may be half of one
        file.writelines(f"{line}\n" for line in lines)
    source = windows(url, LENGTH, shift=True, cache=cache, cache_bytes=cache_bytes)
    seen = json.loads(lines[-1])[1] if lines else 0
    loader = loader_of(source, rank, WORLD, seen)
    with done.open("a") as file:
        for batch in loader:
            seen = loader.epoch * loader.n_samples + loader.samples_seen
            file.write(json.dumps([digest_of(batch), seen]) + "\n")
            file.flush()


@dataclass
class Outcome:
    """What the readers that were killed have read. `n_wrong`: batches that are not as expected."""

    n_kills: int
    n_batches: int
    n_wrong: int
    most_bytes: int
    cache_bytes: int
    left: list[str]


def kill_readers(folder: Path, n_kills: int, *, share: float = 0.01, seed: int = 0) -> Outcome:
    """Kill one of four readers that share a cache, again and again, and compare what they read."""
    output = make_dataset(folder, 1_500_000, 100_000)
    cache, cache_bytes = folder / "cache", 1_200_000
    chance, n_done, most = random.Random(seed), 0, 0
    with serving(folder / "bucket", Faults(0.005, share)) as address:

        def start(rank: int) -> subprocess.Popen[bytes]:
            arguments = [cache, cache_bytes, rank, folder / f"rank-{rank}"]
            return subprocess.Popen(
                [sys.executable, "-m", "bench.loader_store", "--read", "s3://bucket/data",
                 *map(str, arguments)],
                env={**os.environ, **environment(address)}, cwd=Path(__file__).parents[1],
            )  # fmt: skip

        readers = [start(rank) for rank in range(WORLD)]
        while True:
            time.sleep(chance.uniform(0.3, 1.2))
            most = max(most, _finished_bytes(cache))
            running = [rank for rank, reader in enumerate(readers) if reader.poll() is None]
            if n_done < n_kills:
                rank = chance.choice(running or range(WORLD))
                if not running:  # all were faster: they read it once more
                    (folder / f"rank-{rank}").unlink()
                readers[rank].send_signal(signal.SIGKILL)
                readers[rank].wait()
                readers[rank] = start(rank)
                n_done += 1
            elif not running:
                break
    n_batches = n_wrong = 0
    source = windows(output, LENGTH, shift=True)
    for rank in range(WORLD):
        expected = [digest_of(batch) for batch in loader_of(source, rank, WORLD)]
        lines = (folder / f"rank-{rank}").read_text().splitlines()
        found = [json.loads(line)[0] for line in lines]
        n_batches += len(found)
        n_wrong += sum(one != other for one, other in zip(found, expected, strict=False))
        n_wrong += abs(len(found) - len(expected))
    left = [path.name for path in cache.glob(".blake3-*.part")]
    return Outcome(n_done, n_batches, n_wrong, most, cache_bytes, left)


def _finished_bytes(cache: Path) -> int:
    """Return the bytes of the files that are in a cache now."""
    n_bytes = 0
    for path in list(cache.glob("blake3-*")):
        with suppress(FileNotFoundError):  # it has just been evicted
            n_bytes += path.stat().st_size
    return n_bytes


def speeds(folder: Path, n_tokens: int) -> dict[str, Any]:
    """Return rows a second from the store and the directory, and what was fetched."""
    output = make_dataset(folder, n_tokens, n_tokens // 32)
    shard_bytes = sum(path.stat().st_size for path in output.glob("train-*.bin"))
    found: dict[str, Any] = {}
    rows = []
    with served(folder / "bucket", 0.03) as address:
        os.environ.update(environment(address))
        for shuffle, share in (("blocks", 0.5), ("blocks", 1.2), (True, 1.2)):
            stored = windows(
                "s3://bucket/data", LENGTH, shift=True, cache=folder / f"cache-{shuffle}-{share}",
                cache_bytes=int(shard_bytes * share),
            )  # fmt: skip
            local = windows(output, LENGTH, shift=True)
            before = sent_bytes(address)
            rates = [_rates(source, shuffle) for source in (local, stored)]
            fetched = (sent_bytes(address) - before) / shard_bytes / EPOCHS
            ratios = [there / here for here, there in zip(*rates, strict=True)]
            name = f"{shuffle}, cache of {share:.0%}"
            rows.append([name, figure(rates[0][1]), *map(figure, [*ratios, fetched])])
            found[name] = {"ratios": ratios, "fetched": fetched}
    heads = ("directory, rows/s", "store: first epoch", "later", "bytes an epoch")
    print(table(["order", *heads], rows))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"speeds": found, "peak_bytes": peak, "dataset_bytes": shard_bytes}


def _rates(source: Any, shuffle: Any) -> list[float]:
    """Return rows a second of the first epoch, without its first eighth, and of those after it.

    Each batch is followed by `STEP_S` of another's work, as that of a GPU.
    """
    loader = Loader(source, 32, seed=1, shuffle=shuffle, blocks=4, epochs=EPOCHS, workers=2)
    n_batches = len(loader)
    begin, second = n_batches // EPOCHS // 8, n_batches // EPOCHS
    times = []
    for number, _ in enumerate(loader):
        if number in (begin, second):
            times.append(time.perf_counter())
        time.sleep(STEP_S)
    times.append(time.perf_counter())
    counts = [second - begin, n_batches - second]
    return [32 * n / (times[i + 1] - times[i]) for i, n in enumerate(counts)]


def main() -> None:
    """Run what the arguments name, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--tokens", type=int, default=64_000_000)
    parser.add_argument("--read", nargs=5, metavar="VALUE", help="a reader; not for people")
    parser.add_argument("--serve", nargs=2, metavar="VALUE", help="the server; not for people")
    given = parser.parse_args()
    if given.serve:
        with serving(Path(given.serve[0]), Faults(float(given.serve[1]))) as address:
            print(address, flush=True)
            sys.stdin.read()
        return
    if given.read:
        url, cache, cache_bytes, rank, done = given.read
        read(url, cache, int(cache_bytes), int(rank), Path(done))
        return
    with tempfile.TemporaryDirectory(prefix="tokmill-store-") as folder:
        if given.kills:
            outcome = kill_readers(Path(folder), given.kills, share=given.share)
            print(json.dumps(outcome.__dict__))
            sys.exit(1 if outcome.n_wrong or outcome.most_bytes > outcome.cache_bytes else 0)
        print(json.dumps(speeds(Path(folder), given.tokens)))


if __name__ == "__main__":
    main()
