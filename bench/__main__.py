"""Times tokmill and its peers in turn, in one run, on the same files and cores.

    make bench
    make bench BENCH_DATA="en=docs_en.jsonl zh=docs_zh.jsonl" BENCH_TOKENIZERS="gpt2:<|endoftext|>"
    python -m bench --input en=docs_en.jsonl --tokenizer 'gpt2:<|endoftext|>' --other OTHER_CHECKOUT

All figures but one are of processor time, with all child processes: a busy machine changes it
little. tokmill's is that of the whole command, its peers' that of their work alone, without imports
and loading. Its first run has an empty cache:
it compares the engines with the reference, and later runs know the result. No text comes twice, if
it does not in the files. The samples of the repository, which are used where no file is named, only
show that everything runs: they are far too small for a comparison.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.pages import with_block
from bench.peers import Corpus, NotMeasured, Task, Timing, make_corpus
from bench.tables import figure, table

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data_samples"
ENGINES = ("gigatoken", "fastokens")
PEERS = ("reference", "datatrove", *ENGINES)
LIMIT_S = 3600
OURS, OTHER = "tokmill", "other version"
PACKAGES = (
    "tokmill", "gigatoken", "fastokens", "tokenizers", "sentencepiece", "datatrove", "orjson",
    "pyarrow", "numpy", "awkward",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contender:
    """One thing to time. `is_warm`: run once before the rounds; otherwise once in all."""

    name: str
    peer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_warm: bool = False


def contenders(options: argparse.Namespace) -> list[Contender]:
    """Return who runs, in the order in which a round runs them."""
    found = [Contender(OURS, "tokmill", is_warm=True)]
    if options.other:
        checkout = {"checkout": str(options.other.resolve())}
        found.append(Contender(OTHER, "tokmill", checkout, is_warm=True))
    for engine in ENGINES:
        if engine in options.peers:
            forced = {"arguments": ["--engine", engine]}
            found.append(Contender(f"{engine} forced", "tokmill", forced, is_warm=True))
            for mode in ("inside", "beside"):
                alone = {"engine": engine, "mode": mode}
                found.append(Contender(f"{engine} alone, threads {mode}", "engine", alone))
    return found + [Contender(p, p) for p in ("reference", "datatrove") if p in options.peers]


def measure(
    corpus: Corpus, tokenizer: Path, eos: str, options: argparse.Namespace
) -> tuple[dict[str, list[Timing]], float]:
    """Run every contender in rounds; return their timings, and the cores that others took before.

    Round 0 is the very first run, before anything is remembered.
    """
    found: dict[str, list[Timing]] = {}
    busy = busy_cores()
    cache = Path(tempfile.mkdtemp(dir=corpus.text.parent, prefix="cache-"))
    left_out = set()
    for number in range(options.rounds + 1):
        for contender in contenders(options):
            name = contender.name
            if name in left_out or (number != 1 and not contender.is_warm):
                continue
            try:
                timing = run_once(corpus, tokenizer, eos, contender, cache / name)
            except NotMeasured as reason:
                left_out.add(name)
                print(f"{name}: left out: {reason}", file=sys.stderr, flush=True)
                continue
            found.setdefault(name, []).append(timing)
            print(
                f"round {number}: {name}: {timing.cpu_s:.2f} s, {timing.mb_per_cpu_s:.1f} MB/s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    return found, busy


def run_once(
    corpus: Corpus, tokenizer: Path, eos: str, contender: Contender, cache: Path
) -> Timing:
    """Run one contender in a fresh process and an empty directory.

    Raises:
        NotMeasured: it cannot run here, died, or did not finish within the limit.
    """
    with tempfile.TemporaryDirectory(dir=corpus.text.parent, prefix="run-") as directory:
        work = Path(directory)
        places = (tokenizer, corpus.path, corpus.text, corpus.split, work, cache)
        settings = dict(contender.settings)
        task = Task(contender.peer, eos, cores(), settings, *map(str, places))
        task_file, result_file = work / "task.json", work / "result.json"
        task_file.write_text(json.dumps(asdict(task)), encoding="utf-8")
        command = [sys.executable, "-m", "bench.peers", str(task_file), str(result_file)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"did not finish within {LIMIT_S} s") from None
        if not result_file.exists():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise NotMeasured(f"died with status {done.returncode}: {last[:200]}")
        result = json.loads(result_file.read_bytes())
    if "refused" in result:
        raise NotMeasured(result["refused"])
    return Timing(**result)


HEAD = (
    "corpus, tokenizer", "text, MB", "first run", "later", "start-up", "MB/s a core",
    "of engine alone", "× reference", "× datatrove", "core-hours", "auto", "× other version",
    "on the clock",
)  # fmt: skip


def row(name: str, found: Mapping[str, Sequence[Timing]]) -> list[str]:
    """Return the figures of a corpus and a tokenizer, as `HEAD`: of the fastest later run."""
    if OURS not in found:
        return [name, *"-" * (len(HEAD) - 1)]
    first, *later = found[OURS]
    best = _fastest(later)
    core_hours = best.text_cpu_s / best.tokens * 1e12 / 3600

    def ratio(names: Sequence[str], skipped: int = 0, *, is_whole: bool = False) -> str:
        """Compare with the best of some contenders that made the same tokens."""
        others = [_fastest(found[n][skipped:]) for n in names if same_tokens(first, found.get(n))]
        if not others:
            return "-"
        if is_whole:
            return figure(min(other.cpu_s for other in others) / best.cpu_s)
        return figure(best.mb_per_cpu_s / max(other.mb_per_cpu_s for other in others))

    alone = [n for n in found if " alone, " in n]
    forced = [n for n in found if n.endswith(" forced")]
    seconds = (first.cpu_s, best.cpu_s, best.start_cpu_s, best.mb_per_cpu_s)
    return [
        name, f"{first.text_bytes / 1e6:.0f}", *map(figure, seconds), ratio(alone),
        ratio(["reference"]), ratio(["datatrove"]), f"{core_hours:,.0f}",
        ratio(forced, 1, is_whole=True), ratio([OTHER], 1, is_whole=True), figure(best.seconds),
    ]  # fmt: skip


def _fastest(timings: Sequence[Timing]) -> Timing:
    """Return the timing with the least processor time: what other processes do adds to it."""
    return min(timings, key=lambda timing: timing.cpu_s)


def same_tokens(ours: Timing, theirs: Sequence[Timing] | None) -> bool:
    """Return whether a contender did our work: its tokens differ by at most a thousandth."""
    return theirs is not None and abs(theirs[0].tokens / ours.tokens - 1) <= 0.001


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; BENCH_DATA and BENCH_TOKENIZERS serve where options are missing."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    data, tokenizers = (os.environ.get(f"BENCH_{name}", "") for name in ("DATA", "TOKENIZERS"))
    add("--input", nargs="+", default=data.split(), metavar="NAME=PATH", help="JSON Lines")
    add("--tokenizer", nargs="+", default=tokenizers.split(), metavar="PATH[:EOS]")
    add("--peers", nargs="*", default=PEERS, choices=PEERS, help="default: all")
    add("--other", type=Path, help="a checkout of another version to compare with")
    add("--rounds", type=int, default=3, help="peers run in the first one only")
    add("--readme", type=Path, help="rewrite the table between its two comments")
    options = parser.parse_args(arguments)
    if options.readme and not options.readme.is_file():  # not after the measurement
        parser.error(f"--readme: no such file: {options.readme}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write; return 1 if tokmill itself failed."""
    options = read_options(arguments)
    inputs = options.input or [f"samples={SAMPLES / 'records.jsonl'}"]
    tokenizers = [value.partition(":")[::2] for value in options.tokenizer]
    rows, others = [], []
    with tempfile.TemporaryDirectory(prefix="tokmill-bench-") as directory:
        for name, _, path in (value.partition("=") for value in inputs):
            corpus = make_corpus(name, Path(path).resolve(), Path(directory) / name, cores())
            for name_of, eos in tokenizers or [(str(SAMPLES / "tokenizer"), "")]:
                tokenizer = Path(name_of).resolve()
                found, busy = measure(corpus, tokenizer, eos, options)
                rows.append(row(f"{name}, {tokenizer.name}", found))
                others.append(busy)
    report = described(rows, sum(others) / len(others), options.rounds)
    print(report)
    if options.readme:
        page = options.readme.read_text(encoding="utf-8")
        options.readme.write_text(with_block(page, "bench", report), encoding="utf-8")
    return 1 if any(cells[1] == "-" for cells in rows) else 0


def described(rows: Sequence[Sequence[str]], others: float, rounds: int) -> str:
    """Return the table, without columns that nobody has, and how it was made."""
    columns = [i for i in range(len(HEAD)) if any(cells[i] != "-" for cells in rows)]
    head, *body = ([cells[i] for i in columns] for cells in (HEAD, *rows))
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    memory, python = psutil.virtual_memory().total >> 30, platform.python_version()
    how = (
        f"`make bench`, {today}, {_cpu()}, {cores()} cores, {others:.2f} of them busy before, "
        f"{memory} GiB, Python {python}; the fastest of {rounds} later runs, peers once. Seconds "
        "are of processors, of the whole command, JSON Lines to committed shards; start-up is all "
        "of them but those for the text. MB/s are of text, without start-up; so are the ratios to "
        "the better engine alone, the reference and datatrove, which are their work alone, and the "
        "core-hours, which are for 1,000,000,000,000 tokens. auto is compared with the better "
        f"engine forced. {versions}."
    )
    return f"{table(head, body)}\n\n{how}"


def cores() -> int:
    """Return the number of processors that this process and its children may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_cores() -> float:
    """Return how many processors are busy now, over two seconds."""
    return psutil.cpu_percent(2.0) / 100 * (psutil.cpu_count() or 1)


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
