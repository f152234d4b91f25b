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
import itertools
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

from bench.tables import table
from tokmill.settings.declare import parse_quantity

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
    """What the processes of a run held at one moment."""

    seconds: float
    rss: int
    open_files: int
    threads: int


def sentences(seed: int) -> list[bytes]:
    """Return a pool of sentences of the samples with words exchanged, as the inside of JSON."""
    chance = random.Random(seed)
    words = " ".join(path.read_text("utf-8") for path in sorted(SAMPLES.glob("b_*.txt"))).split()
    texts = (" ".join(chance.choices(words, k=chance.randint(5, 40))) for _ in range(POOL))
    return [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts]


def make(kind: str, directory: Path, amount: int, seed: int) -> int:
    """Write the input, a line at a time; return its bytes.

    `files`: so many text files of a few kB, a thousand per directory. `one-file`: a JSONL file of
    at least so many bytes. `records`: a JSONL file of so many records of one short text.
    """
    chance, pool, total = random.Random(seed), sentences(seed), 0
    if kind == "files":
        for number in range(amount):
            place = directory / f"{number // 1000:05}"
            place.mkdir(exist_ok=True)
            text = b" ".join(chance.choices(pool, k=chance.randint(5, 30)))
            data = b"%d %s\n" % (number, text)
            (place / f"{number:09}.txt").write_bytes(data)
            total += len(data)
        return total
    with (directory / "one.jsonl").open("wb") as file:
        for number in itertools.count(1):
            if kind == "records":
                short = chance.choice(pool)[:SHORT_TEXT].decode("utf-8", "ignore").rstrip("\\")
                text = short.encode()
            else:
                text = b" ".join(chance.choices(pool, k=30))
            total += file.write(b'{"text": "%d %s"}\n' % (number, text))
            if (number if kind == "records" else total) >= amount:
                return total
    raise AssertionError


def sample(process: psutil.Process, seconds: float) -> Sample:
    """Return what a process and its descendants hold now; one that has ended counts as nothing."""
    rss = n_files = n_threads = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            with one.oneshot():
                rss += one.memory_info().rss
                n_files += one.num_fds()
                n_threads += one.num_threads()
        except psutil.Error:
            continue
    return Sample(seconds, rss, n_files, n_threads)


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


def summary(samples: list[Sample], n_bytes: int) -> dict[str, float]:
    """Print the table; return its figures: memory in MiB, and its slope in MiB per GB of input.

    Raises:
        ValueError: there are fewer than five samples after the start.
    """
    seconds = samples[-1].seconds
    after = [one for one in samples if one.seconds >= START_SHARE * seconds]
    fifth = len(after) // 5
    if not fifth:
        raise ValueError(f"{len(samples)} samples are too few; give it a larger input")
    middle = (len(after) - fifth) // 2
    parts = {"start": after[:fifth], "middle": after[middle:][:fifth], "end": after[-fifth:]}
    found, rows = {"bytes": float(n_bytes), "seconds": seconds}, []
    for what, unit in (("rss", MIB), ("open_files", 1), ("threads", 1)):
        means = {f"{what}_{at}": mean(getattr(one, what) for one in parts[at]) for at in parts}
        means[f"{what}_peak"] = max(getattr(one, what) for one in samples)
        found |= {name: value / unit for name, value in means.items()}
        rows.append([what, *(f"{value / unit:,.0f}" for value in means.values())])
    slope = linear_regression([one.seconds for one in after], [one.rss / MIB for one in after])
    found["rss_slope_per_minute"] = slope.slope * 60
    found["rss_slope_per_gb"] = slope.slope * seconds / (n_bytes / 1e9)
    print(f"{n_bytes / 1e9:.2f} GB in {seconds:,.0f} s; RSS in MiB")
    print(table(["", *parts, "peak"], rows))
    print(f"RSS changes by {found['rss_slope_per_minute']:+.1f} MiB per minute, ", end="")
    print(f"{found['rss_slope_per_gb']:+.1f} MiB per GB of input")
    return found


def measure(directory: Path, options: argparse.Namespace, rest: list[str]) -> dict[str, float]:
    """Generate the input, run, verify; return the figures."""
    source, out = directory / "in", directory / "out"
    source.mkdir()
    is_size = options.kind == "one-file"
    amount = parse_quantity(options.size, "bytes", "--size") if is_size else options.count
    n_bytes = make(options.kind, source, amount, options.seed)
    command = [sys.executable, "-m", "tokmill"]
    words = ["pretrain", str(source), "-t", str(options.tokenizer), "-o", str(out), *rest]
    samples, code = run([*command, *words], 60 * options.minutes)
    found = summary(samples, n_bytes) | {"exit": float(code)}
    if not code:
        shutil.rmtree(source)
        found["verify_exit"] = subprocess.run([*command, "verify", str(out)]).returncode
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
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))
    sys.exit(1 if found["exit"] or found.get("verify_exit") else 0)


if __name__ == "__main__":
    main()
