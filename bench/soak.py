"""Crash runs, imports and mixes and continue them, many times; count what is lost.

    python -m bench.soak --rounds 1000 --minutes 60      random faults at random steps and moments
    python -m bench.soak --every-step [--sample 60]      each kind of fault at each step
    python -m bench.soak --first 17 --rounds 1           one round again

A round stops a run one to three times, continues it to its end, and compares every file with those
of a run that nothing stopped. After each fault it looks for half a file under a final name, for a
traceback, and for another exit code than the documented one; at the end `tokmill verify` must find
nothing, and no temporary file may be left. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import faults
from bench.faults import KILL, KINDS, SIGNALS, Ended, Fault

SAMPLES = Path(__file__).parents[1] / "data_samples"
MOMENT = "SIGKILL at a moment"
MOST_CRASHES = 3
_MOMENT_SHARE = 0.2
_EXIT_STORAGE, _EXIT_INTERRUPTED = 5, 130

READ = ("--engine", "reference", "--max-reject-fraction", "1", "--workers", "1", "--threads", "1")
CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "pretrain, 5 parts": (
        "pretrain", "{samples}/documents.jsonl", "-t", "{tokenizer}", "--part-bytes", "4kB",
        "--val-fraction", "0.2", *READ,
    ),
    "pretrain, many shards, rejects": (
        "pretrain", "{samples}/records.jsonl", "-t", "{tokenizer}", "--shard-tokens", "20k", *READ,
    ),
    "pretrain, compressed": (
        "pretrain", "{samples}/records.jsonl.zst", "-t", "{tokenizer}", "--shard-tokens", "30k",
        *READ,
    ),
    "sft, packed": (
        "sft", "{samples}/sft/chats.jsonl", "-t", "{tokenizer}", "--part-bytes", "8kB",
        "--max-tokens", "2000", "--packing", "2000", *READ,
    ),
    "sft, packed rows": (
        "sft", "{samples}/sft/mixed.jsonl", "-t", "{tokenizer}", "--part-bytes", "4kB",
        "--max-tokens", "1000", "--packing", "1000", "--packed-rows", *READ,
    ),
    "import": (
        "import", "{inputs}/exported", "--from", "nanogpt", "-t", "{tokenizer}",
        "--workers", "1",
    ),
    "mix, shuffled": (
        "mix", "{inputs}/documents=2x", "{inputs}/records", "--shuffle", "7", "--dedup",
        "--shard-tokens", "30k", "--workers", "1",
    ),
    "mix, of chats": ("mix", "{inputs}/chats=2x", "--shuffle", "3", "--workers", "1"),
    "mix, linked": ("mix", "{inputs}/documents", "{inputs}/records", "--workers", "1"),
}  # fmt: skip
"""The words of each command, but where it writes to."""

INPUTS = (
    ("pretrain", "{samples}/documents.jsonl", "-t", "{tokenizer}", "-o", "{inputs}/documents"),
    ("pretrain", "{samples}/records.jsonl", "-t", "{tokenizer}", "-o", "{inputs}/records", *READ),
    ("sft", "{samples}/sft/chats.jsonl", "-t", "{tokenizer}", "-o", "{inputs}/chats", *READ),
    ("export", "{inputs}/documents", "--to", "nanogpt", "-o", "{inputs}/exported"),
)
"""What makes the datasets that mixes and imports read."""


@dataclass
class Found:
    """What the rounds came to."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    differing: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, where: str, problems: list[str]) -> None:
        """Keep problems, and show them at once."""
        for problem in problems:
            self.problems.append(f"{where}: {problem}")
            print(self.problems[-1], file=sys.stderr, flush=True)


class Soak:
    """Runs below a directory, with the files that each configuration makes without a fault."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.names = names
        self.out = directory / "out"
        self.places = {
            "samples": SAMPLES,
            "tokenizer": SAMPLES / "tokenizer",
            "inputs": directory / "inputs",
        }
        self.expected: dict[str, dict[str, str]] = {}
        self.n_steps: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        for words in INPUTS:
            ended = faults.run([self.placed(words)], self.places["inputs"])
            if ended.status:
                raise RuntimeError(f"{words}: {ended.errors}")
        outside = directory / "warm"
        faults.warm(*(self.command(name, outside / str(i)) for i, name in enumerate(names)))
        faults.warm(*(("verify", str(outside / str(i))) for i in range(len(names))))
        for name in names:
            began = time.monotonic()
            ended = faults.run([self.command(name)], self.out)
            self.seconds[name] = time.monotonic() - began
            if ended.status:
                raise RuntimeError(f"{name}: {ended.errors}")
            self.expected[name] = faults.sums(self.out)
            self.n_steps[name] = len(ended.steps)
            shutil.rmtree(self.out)

    def placed(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command with the places of its files."""
        return tuple(word.format_map(self.places) for word in words)

    def command(self, name: str, out: Path | None = None) -> tuple[str, ...]:
        """Return the words of a configuration's command."""
        return (*self.placed(CONFIGURATIONS[name]), "-o", str(out or self.out), "-q")

    def crash(self, name: str, fault: Fault, kill_after_s: float = 0.0) -> tuple[Ended, list[str]]:
        """Run with a fault; return how it ended, and what is wrong with that."""
        ended = faults.run([self.command(name)], self.out, fault, kill_after_s=kill_after_s)
        problems = _wrong_end(ended, KILL if kill_after_s else fault.kind)
        half = faults.half_written(self.out, self.expected[name])
        problems += [f"{one} is half written" for one in half]
        return ended, problems

    def finish(self, name: str) -> tuple[list[str], bool]:
        """Continue to the end, and verify; return what is wrong, and whether a byte is."""
        ended = faults.run([self.command(name), ("verify", str(self.out))], self.out)
        if ended.status:
            return [f"the next run or verify ended with {ended.status}: {ended.errors}"], True
        found = faults.sums(self.out)
        expected = self.expected[name]
        other = [one for one in found | expected if found.get(one) != expected.get(one)]
        left = faults.hidden(self.out)
        shutil.rmtree(self.out)
        problems = [f"other bytes: {', '.join(other)}"] if other else []
        return problems + ([f"left behind: {', '.join(left)}"] if left else []), bool(other)

    def one_round(self, name: str, crashes: list[tuple[Fault, float]], found: Found) -> None:
        """Stop a run at each of some faults, and continue it to its end."""
        where = f"{name}, {', '.join(f'{f.kind} at step {f.step}' for f, _ in crashes)}"
        for fault, kill_after_s in crashes:
            ended, problems = self.crash(name, fault, kill_after_s)
            found.add(where, problems)
            if ended.status:  # 0: the fault came after the end
                found.faults[MOMENT if kill_after_s else fault.kind] += 1
        problems, is_other = self.finish(name)
        found.add(where, problems)
        found.differing += is_other
        found.rounds += 1
        if self.out.exists():
            shutil.rmtree(self.out)


def _wrong_end(ended: Ended, kind: str) -> list[str]:
    """Return what is wrong with the end of a run with a fault; it may also have come too late."""
    right = -9 if kind == KILL else _EXIT_INTERRUPTED if kind in SIGNALS else _EXIT_STORAGE
    problems = []
    if ended.status not in (0, right):
        problems.append(f"exit status {ended.status}: {ended.errors.strip()}")
    if ended.has_traceback:
        problems.append(f"a traceback: {ended.errors.strip()}")
    if ended.status > 0 and not ended.errors.strip().startswith(("error: ", "warning: ")):
        problems.append(f"no clear line: {ended.errors.strip()!r}")
    return problems


def random_crashes(chance: random.Random, soak: Soak, name: str) -> list[tuple[Fault, float]]:
    """Return one to three faults for a round."""
    crashes = []
    for i in range(chance.randint(1, MOST_CRASHES)):
        step = chance.randint(1, soak.n_steps[name] >> i)  # what is done comes no second time
        fault = Fault(chance.choice(KINDS), step)
        if chance.random() < _MOMENT_SHARE:
            crashes.append((Fault(KILL, 0), chance.uniform(0.01, soak.seconds[name])))
        else:
            crashes.append((fault, 0.0))
    return crashes


def every_step(soak: Soak, n_sample: int, seed: int) -> Iterator[tuple[str, Fault]]:
    """Yield each kind of fault at each step of each configuration; or a sample of them."""
    rounds = [
        (name, Fault(kind, step))
        for name in soak.names
        for kind in KINDS
        for step in range(1, soak.n_steps[name] + 1)
    ]
    yield from random.Random(seed).sample(rounds, n_sample) if n_sample else rounds


def main() -> None:
    """Run the rounds; exit with 1 if there was a problem."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--only", action="append", choices=CONFIGURATIONS)
    parser.add_argument("--every-step", action="store_true")
    parser.add_argument("--sample", type=int, default=0, help="of --every-step: this many rounds")
    options = parser.parse_args()
    found, began = Found(), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(Path(directory), options.only or list(CONFIGURATIONS))
        if options.every_step:
            for name, fault in every_step(soak, options.sample, options.seed):
                soak.one_round(name, [(fault, 0.0)], found)
        else:
            for number in range(options.first, options.first + options.rounds):
                if time.monotonic() - began > 60 * options.minutes:
                    break
                chance = random.Random(f"{options.seed}-{number}")
                name = chance.choice(soak.names)
                soak.one_round(name, random_crashes(chance, soak, name), found)
                if not found.rounds % 100:
                    print(f"{found.rounds:,} rounds", file=sys.stderr, flush=True)
    for kind, n in sorted(found.faults.items()):
        print(f"{n:6,} {kind}")
    print(json.dumps(vars(found)))
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    main()
