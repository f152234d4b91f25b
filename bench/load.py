"""Run `tokmill pretrain` on very many files, on one very large file, on very many records.

    python -m bench.load files    --count 100000 --tokenizer DIR
    python -m bench.load one-file --size 20GB --tokenizer DIR --minutes 60
    python -m bench.load records  --count 10000000 --tokenizer DIR

The input is generated below --directory and removed afterwards with the output. While the run
works, its memory (RSS, summed over its processes), open files and threads are sampled; the table
shows their means over the first, middle and last fifth of the time after the start. Memory
that grows with the input shows as a slope. Other options are those of
pretrain. `tokmill verify` follows. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean

import psutil

from tokmill.settings.quantity import parse_quantity

SAMPLES = Path(__file__).parents[1] / "data_samples" / "text"
EVERY_S = 1.0
SHOWN_EVERY = 60
START_SHARE = 0.1
"""Share of the time in which the run starts and its buffers fill; slopes leave it out."""
MIB = 1 << 20
POOL = 5_000
SHORT_TEXT = 40


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes of a run held at one moment; `done` counts the bytes they had read."""

    seconds: float
    rss: int
    open_files: int
    threads: int
    done: int


def sentences(seed: int) -> list[bytes]:
    """Return a pool of sentences of the samples with words exchanged, as the inside of JSON."""
    chance = random.Random(seed)
    words = " ".join(path.read_text("utf-8") for path in sorted(SAMPLES.glob("b_*.txt"))).split()
    texts = (" ".join(chance.choices(words, k=chance.randint(5, 40))) for _ in range(POOL))
    return [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts]


def make_files(directory: Path, count: int, seed: int) -> int:
    """Write `count` text files of a few kB, a thousand per directory; return their bytes."""
    chance, pool, total = random.Random(seed), sentences(seed), 0
    for number in range(count):
        place = directory / f"{number // 1000:05}"
        if number % 1000 == 0:
            place.mkdir(parents=True)
        data = b"%d %s\n" % (number, b" ".join(chance.choices(pool, k=chance.randint(5, 30))))
        (place / f"{number:09}.txt").write_bytes(data)
        total += len(data)
    return total


def make_one_file(directory: Path, size: int, seed: int) -> int:
    """Write one JSONL file of at least `size` bytes, block by block; return its bytes."""
    chance, pool, total, number = random.Random(seed), sentences(seed), 0, 0
    with (directory / "one.jsonl").open("wb") as file:
        while total < size:
            lines = []
            for _ in range(500):
                number += 1
                text = b" ".join(chance.choices(pool, k=30))
                lines.append(b'{"text": "%d %s"}\n' % (number, text))
            total += file.write(b"".join(lines))
    return total


def make_records(directory: Path, count: int, seed: int) -> int:
    """Write `count` records of one short text each; return their bytes."""
    pool, total = sentences(seed), 0
    short = [text[:SHORT_TEXT].decode("utf-8", "ignore").rstrip("\\").encode() for text in pool]
    with (directory / "records.jsonl").open("wb") as file:
        for start in range(0, count, POOL):
            numbers = range(start, min(start + POOL, count))
            lines = (
                b'{"text": "%d %s"}\n' % (n, text) for n, text in zip(numbers, short, strict=False)
            )
            total += file.write(b"".join(lines))
    return total


def sample(process: psutil.Process, seconds: float) -> Sample:
    """Return what a process and its descendants hold now; one that has ended counts as nothing."""
    rss = n_files = n_threads = done = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            with one.oneshot():
                rss += one.memory_info().rss
                n_files += one.num_fds()
                n_threads += one.num_threads()
                done += one.io_counters().read_chars
        except psutil.Error:
            continue
    return Sample(seconds, rss, n_files, n_threads, done)


def run(words: list[str], limit_s: float) -> tuple[list[Sample], int]:
    """Run a command and sample it; return the samples and the exit code. SIGTERM at the limit."""
    began, samples = time.monotonic(), []
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            seconds = time.monotonic() - began
            try:
                samples.append(sample(process, seconds))
            except psutil.Error:
                break
            if len(samples) % SHOWN_EVERY == 0:
                print(f"{seconds:,.0f} s: {samples[-1]}", file=sys.stderr, flush=True)
            if seconds > limit_s:
                child.send_signal(signal.SIGTERM)
                break
            time.sleep(EVERY_S)
        return samples, child.wait()


def summary(samples: list[Sample]) -> dict[str, float]:
    """Return the figures of a run: memory in MiB, the slope in MiB per GB that was read.

    Raises:
        ValueError: there are fewer than five samples after the start.
    """
    after = [one for one in samples if one.seconds >= START_SHARE * samples[-1].seconds]
    fifth = len(after) // 5
    if not fifth:
        raise ValueError(f"{len(samples)} samples are too few; give it a larger input")
    middle = (len(after) - fifth) // 2
    parts = {"start": after[:fifth], "middle": after[middle:][:fifth], "end": after[-fifth:]}
    found: dict[str, float] = {"seconds": samples[-1].seconds}
    for name, ones in parts.items():
        found[f"rss_{name}"] = mean(one.rss for one in ones) / MIB
        found[f"open_files_{name}"] = mean(one.open_files for one in ones)
        found[f"threads_{name}"] = mean(one.threads for one in ones)
    found["rss_peak"] = max(one.rss for one in samples) / MIB
    found["open_files_peak"] = max(one.open_files for one in samples)
    slope = linear_regression(
        [one.seconds for one in after], [one.rss / MIB for one in after]
    ).slope
    found["rss_slope_per_minute"] = slope * 60
    return found


def show(found: dict[str, float]) -> None:
    """Print the table, then the JSON."""
    print(f"{found['bytes'] / 1e9:.2f} GB in {found['seconds']:,.0f} s")
    print("| | start | middle | end | peak |\n|---|---:|---:|---:|---:|")
    for name, label in (("rss", "RSS, MiB"), ("open_files", "open files"), ("threads", "threads")):
        cells = (found.get(f"{name}_{when}") for when in ("start", "middle", "end", "peak"))
        print(f"| {label} | " + " | ".join("" if c is None else f"{c:,.0f}" for c in cells) + " |")
    print(f"RSS changes by {found['rss_slope_per_minute']:+.1f} MiB per minute, ", end="")
    print(f"{found['rss_slope_per_gb']:+.1f} MiB per GB of input")
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


def measure(directory: Path, options: argparse.Namespace, rest: list[str]) -> dict[str, float]:
    """Generate the input, run, verify; return the figures."""
    source, out = directory / "in", directory / "out"
    source.mkdir()
    make = {"files": make_files, "one-file": make_one_file, "records": make_records}[options.kind]
    size = (
        parse_quantity(options.size, "bytes", "--size")
        if options.kind == "one-file"
        else options.count
    )
    n_bytes = make(source, size, options.seed)
    command = [sys.executable, "-m", "tokmill"]
    words = ["pretrain", str(source), "-t", str(options.tokenizer), "-o", str(out), *rest]
    samples, code = run([*command, *words], 60 * options.minutes)
    found = {"bytes": float(n_bytes), "exit": float(code), **summary(samples)}
    share = found["rss_slope_per_minute"] * found["seconds"] / 60
    found["rss_slope_per_gb"] = share / (n_bytes / 1e9)
    if not code:
        shutil.rmtree(source)
        found["verify_exit"] = subprocess.run(
            [*command, "verify", str(out)], check=False
        ).returncode
    return found


def main() -> None:
    """Measure one kind of load; exit with 1 if the run or the check of its output failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("kind", choices=("files", "one-file", "records"))
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", default="20GB")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop the run after this")
    parser.add_argument("--tokenizer", type=Path, default=SAMPLES.parent / "tokenizer")
    parser.add_argument("--directory", type=Path, help="where the files are made")
    parser.add_argument("--seed", type=int, default=1)
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        found = measure(Path(directory), options, rest)
    show(found)
    sys.exit(1 if found["exit"] or found.get("verify_exit") else 0)


if __name__ == "__main__":
    main()
