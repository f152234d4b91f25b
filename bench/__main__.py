"""Times tokmill and its peers in turn, in one run, on the same files and cores.

    make bench
    make bench BENCH_DATA="en=docs_en.jsonl zh=docs_zh.jsonl" BENCH_TOKENIZERS="gpt2:<|endoftext|>"
    python -m bench --input en=docs_en.jsonl --tokenizer 'gpt2:<|endoftext|>' --pairs 1

Throughput is bytes of rendered UTF-8 text per second. tokmill's time is that of the whole command,
its peers' that of their work alone, without imports and loading; both also without start-up. No
text comes twice, if it does not in the files. The samples of the repository, which are used where
no file is named, only show that everything runs: they are far too small for a comparison.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import machine
from bench.contenders import JSONL, PARQUET, Contender, contenders_of, goals, sections
from bench.corpus import Corpus, make_corpus
from bench.libraries import family
from bench.options import Options, read_options
from bench.ratios import Ratio, by_contender, bytes_per_s, compare, others_cores
from bench.rounds import ROOT, Pairing, measure
from bench.stages import COLUMNS, stage_cells, stage_table
from bench.tables import (
    ratio_table,
    readme_block,
    rewrite_readme,
    same_work,
    start_line,
    summary_row,
    throughput_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.values import Sample, Timing

SAMPLES = ROOT / "data_samples"
TRUSTED_CORES = 0.1
"""What other processes may take before the figures say more about them than about us."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write; 1 if tokmill itself failed."""
    options = read_options(arguments)
    if options.readme and not options.readme.is_file():
        raise SystemExit(f"--readme: no such file: {options.readme}")  # not after the measurement
    if options.cores:
        machine.keep_to(options.cores)
    report: dict[str, Any] = {
        "schema": 2,
        "machine": machine.described(),
        "load_average": {"start": machine.load_average()},
        "options": json.loads(json.dumps(asdict(options), default=str)),
        "runs": [],
    }
    with tempfile.TemporaryDirectory(prefix="tokmill-bench-", dir=options.work) as directory:
        report["runs"] = _all_runs(options, Path(directory))
    report["load_average"]["end"] = machine.load_average()
    _finish(report, options)
    return 1 if any("tokmill" in run["left_out"] for run in report["runs"]) else 0


def _all_runs(options: Options, directory: Path) -> list[dict[str, Any]]:
    tokenizers = options.tokenizers or ((SAMPLES / "tokenizer", ""),)
    runs: list[dict[str, Any]] = []
    for corpus in _corpora(options, directory):
        for tokenizer, eos in tokenizers:
            cache = directory / f"cache-{corpus.name}-{len(runs)}"
            pairing = Pairing(corpus, str(tokenizer), eos, cache, machine.cores())
            runs.append(_one_run(pairing, options))
    return runs


def _corpora(options: Options, directory: Path) -> list[Corpus]:
    inputs = options.inputs or (("samples", SAMPLES / "records.jsonl"),)
    return [
        make_corpus(name, path, directory / f"{i}-{name}") for i, (name, path) in enumerate(inputs)
    ]


def _one_run(pairing: Pairing, options: Options) -> dict[str, Any]:
    """Measure one corpus with one tokenizer, and print what came of it."""
    corpus, kind = pairing.corpus, family(Path(pairing.tokenizer))
    asked = goals(pairing.tokenizer_name, kind, is_chinese=corpus.is_chinese)
    n_bytes = corpus.path.stat().st_size
    chosen = sections(options.sections, options.peers, options.arguments, n_bytes, asked)
    print(f"\n## {corpus.name}, {pairing.tokenizer_name} ({kind})\n", flush=True)
    samples, left_out = measure(pairing, contenders_of(chosen), options.pairs, _tell)
    found = [compare(c, samples) for section in chosen for c in section.comparisons]
    ratios = [ratio for ratio in found if ratio is not None]
    unequal = [ratio for ratio in ratios if not same_work(samples, ratio)]
    ratios = [ratio for ratio in ratios if ratio not in unequal]
    _show(samples, ratios, unequal, left_out)
    ours = by_contender(samples).get(JSONL, {})
    return {
        "corpus": corpus.name,
        "tokenizer": pairing.tokenizer_name,
        "family": kind,
        "samples": [asdict(sample) for sample in samples],
        "ratios": [asdict(ratio) | {"holds": ratio.holds} for ratio in ratios],
        "other_work": [ratio.comparison.label for ratio in unequal],
        "left_out": left_out,
        "others_cores": round(others_cores(samples), 2),
        "summary": summary_row(corpus.name, pairing.tokenizer_name, kind, samples, ratios),
        "stages": [f"{corpus.name}, {pairing.tokenizer_name}", *stage_cells(list(ours.values()))],
    }


def _tell(contender: Contender, number: int, found: Timing | str) -> None:
    """Print to stderr what has just been timed."""
    what = found if isinstance(found, str) else f"{bytes_per_s(found) / 1e6:.1f} MB/s"
    print(f"round {number}: {contender.name}: {what}", file=sys.stderr, flush=True)


def _show(
    samples: Sequence[Sample],
    ratios: Sequence[Ratio],
    unequal: Sequence[Ratio],
    left_out: dict[str, str],
) -> None:
    print(throughput_table(samples))
    print(f"\n{stage_table(samples, [JSONL, PARQUET])}")
    if ratios:
        print(f"\n{ratio_table(ratios)}")
    line = start_line(samples)
    print(f"\n{line}" if line else "")
    others = others_cores(samples)
    is_busy = others > TRUSTED_CORES
    doubt = f": more than {TRUSTED_CORES}, so do not trust these figures" if is_busy else ""
    print(f"other processes used {others:.2f} cores during the measurement{doubt}")
    for ratio in unequal:
        print(f"no ratio, the tokens differ: {ratio.comparison.label}")
    for reason in dict.fromkeys(left_out.values()):
        names = [name for name, why in left_out.items() if why == reason]
        print(f"left out: {'; '.join(names)}: {reason}")


def _finish(report: dict[str, Any], options: Options) -> None:
    rows = [run["summary"] for run in report["runs"]]
    others = statistics.fmean(run["others_cores"] for run in report["runs"])
    stages = [
        ["corpus, tokenizer", *COLUMNS],
        *(run["stages"] for run in report["runs"]),
    ]
    block = readme_block(rows, stages, report["machine"], others, options.pairs)
    print(f"\n## All\n\n{block}")
    about, load = report["machine"], report["load_average"]
    print(f"\n{about['date']}, {about['cpu']}, {about['cores']} cores, load {load}")
    print(", ".join(f"{name} {version}" for name, version in about["versions"].items()))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.readme:
        rewrite_readme(options.readme, block)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
