"""Times `--engine auto` against each engine forced: tokenizers, corpora and sizes.

    python -m bench.auto --input en=docs_en.jsonl zh=docs_zh.jsonl --sizes 50 150 500 \
        --tokenizer gpt2 'qwen2.5:<|endoftext|>' llama3

Each has a cache directory of its own: round 0 is its very first run with the tokenizer, later
rounds find what it remembered. A corpus that is smaller than a size is repeated, which the table
says; text that repeats flatters caches.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench import machine
from bench.contenders import ENGINES, Contender
from bench.corpus import Corpus
from bench.options import named_input, tokenizer_with_eos
from bench.ratios import Spread, bytes_per_s
from bench.rounds import Pairing, run_once
from bench.tables import spread, table
from bench.values import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.values import Timing

AUTO = "auto"
GOAL = 0.95
NAMES = (AUTO, *ENGINES)
HEAD = ("MB/s", "runs", *NAMES, "auto : better", "by CPU time", "auto took", "")

Rounds = dict[str, list["Timing"]]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table.

    `pairs`: ratios of `auto` to the engine with the best median. `cpu`: the ratio of CPU seconds,
    of which a busy machine changes less.
    """

    label: str
    runs: str
    mb_per_s: Mapping[str, float]
    pairs: Sequence[float]
    cpu: float
    took: str

    def cells(self) -> list[str]:
        """Return the line as text."""
        found = Spread.of(self.pairs)
        speeds = [f"{self.mb_per_s[one]:.1f}" if one in self.mb_per_s else "-" for one in NAMES]
        verdict = "holds" if found.median >= GOAL else "MISSED"
        cpu = f"{self.cpu:.2f}"
        return [self.label, self.runs, *speeds, spread(found), cpu, self.took, verdict]


def main(arguments: Sequence[str]) -> int:
    """Measure and print the table; 1 if a ratio is below the goal."""
    args = _parser().parse_args(arguments)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="tokmill-auto-", dir=args.work) as directory:
        for name, path in map(named_input, args.input):
            for size in args.sizes:
                corpus = cut(name, path, size, Path(directory))
                for tokenizer, eos in map(tokenizer_with_eos, args.tokenizer):
                    cache = Path(directory) / f"cache-{len(rows)}"
                    pairing = Pairing(corpus, str(tokenizer), eos, cache, machine.cores())
                    label = f"{corpus.name}, {pairing.tokenizer_name}"
                    for row in compare(label, measure(pairing, args.pairs)):
                        rows.append(row.cells())
                        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
                corpus.path.unlink()
    print(table(HEAD, rows))
    return 1 if any(row[-1] == "MISSED" for row in rows) else 0


def cut(name: str, path: Path, size: int, directory: Path) -> Corpus:
    """Write `size` MB of whole lines of a file, repeated if it is smaller."""
    lines, out = path.read_bytes().splitlines(keepends=True), directory / f"{name}-{size}.jsonl"
    n_bytes = 0
    with out.open("wb") as file:
        while n_bytes < size * 10**6:
            for line in lines:
                n_bytes += file.write(line)
                if n_bytes >= size * 10**6:
                    break
    times = n_bytes / sum(map(len, lines))
    label = f"{name} {size}" + (f" ({times:.1f} times)" if times > 1 else "")
    return Corpus(label, out, directory, 0, is_chinese=False)


def measure(pairing: Pairing, n_pairs: int) -> Rounds:
    """Run `auto` and each engine in turn, `n_pairs` rounds after the very first one."""
    found: Rounds = {}
    for _ in range(n_pairs + 1):
        for name in NAMES:
            arguments = {"arguments": ["--engine", name]}
            own = replace(pairing, cache=pairing.cache / name)
            try:
                timing = run_once(own, Contender(name, "tokmill", "lines", arguments))
            except NotMeasured as reason:
                print(f"{name}: {reason}", file=sys.stderr)
                continue
            found.setdefault(name, []).append(timing)
    return found


def compare(label: str, rounds: Rounds) -> list[Row]:
    """Return a row for the very first runs and one for the later ones; none without engines."""
    rows = []
    for runs, part in (("very first", slice(0, 1)), ("later", slice(1, None))):
        speeds = {name: [bytes_per_s(one) for one in found[part]] for name, found in rounds.items()}
        medians = {name: Spread.of(some).median for name, some in speeds.items() if some}
        forced = [name for name in ENGINES if name in medians]
        if AUTO not in medians or not forced:
            continue
        better = max(forced, key=lambda name: medians[name])
        pairs = [a / b for a, b in zip(speeds[AUTO], speeds[better], strict=True)]
        cpu_s = {one: _cpu_s(found[part]) for one, found in rounds.items() if found[part]}
        cpu = min(cpu_s[one] for one in forced) / cpu_s[AUTO]
        took = rounds[AUTO][part][-1].notes["engine"]["name"]
        mb_per_s = {name: median / 1e6 for name, median in medians.items()}
        rows.append(Row(label, runs, mb_per_s, pairs, cpu, took))
    return rows


def _cpu_s(timings: Sequence[Timing]) -> float:
    """Return the least CPU seconds of a command: others can only add to them."""
    return min(float(timing.notes["command_cpu_s"]) for timing in timings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.auto",
        description="Times `--engine auto` against each engine forced, whole command.",
    )
    add = parser.add_argument
    add("--input", nargs="+", metavar="NAME=PATH", required=True, help="JSON Lines")
    add("--tokenizer", nargs="+", metavar="PATH[:EOS]", required=True, help="as `python -m bench`")
    add("--sizes", nargs="+", type=int, default=[50, 150, 500], help="MB of input")
    add("--pairs", type=int, default=3, help="rounds after the very first run")
    add("--work", type=Path, help="directory for files; default: a temporary one")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
