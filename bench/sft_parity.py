"""Compares token ids and loss masks with the frameworks whose rules the presets follow.

    python -m bench.sft_parity --data FILE… --tokenizers DIR[:EOS]… [--presets trl,…]

Sample by sample: the record as tokmill's recipe makes it, and the conversation that its schema sees
as the framework's own code does. A difference counts as explained where a test finds one of the
listed causes; see docs/sft-parity.md. Prints a table in Markdown; exits 1 if a sample differs.

trl needs transformers and trl. The others are read from the sources that the options name, and are
left out where these are missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.machine import described
from bench.options import tokenizer_with_eos
from bench.sft_cases import PRESETS, cases
from bench.sft_compare import Comparison
from bench.sft_ours import Ours, read_data, written
from bench.sft_tables import markdown
from bench.sft_values import Case, Sample
from bench.values import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.sft_values import DataSet, Row


def main() -> None:
    """Compare, print, exit 1 at a difference."""
    args = _parser().parse_args()
    sources = {name: getattr(args, name) for name in ("minimind", "nanochat", "torchtune")}
    sources |= {"llamafactory": args.llamafactory, "baby-llama2": args.baby_llama2}
    data = [read_data(path, args.limit) for path in args.data]
    tokenizers = [tokenizer_with_eos(value) for value in args.tokenizers]
    rows: list[Row] = []
    skipped: list[str] = []
    recipes: list[str] = []
    start = time.perf_counter()
    with TemporaryDirectory() as directory:
        for preset in args.presets.split(","):
            source = sources.get(preset)
            for tokenizer, eos in tokenizers:
                try:
                    found = cases(preset, tokenizer, eos, source, args.templates, Path(directory))
                    for number, (case, reference) in enumerate(found):
                        rows += _rows(Comparison(case, reference), data)
                        if number < args.recipe:
                            recipes.append(_recipe(case, args.data, Path(directory)))
                except NotMeasured as reason:
                    skipped.append(f"{preset}, {tokenizer.name}: {reason}")
    seconds = time.perf_counter() - start
    print(markdown(rows, each=args.each))
    for line in (*recipes, *skipped):
        print(f"- {line}")
    if args.json:
        _write_json(args.json, rows, skipped, recipes, seconds)
    sys.exit(1 if any(row.different for row in rows) or any("differ" in r for r in recipes) else 0)


def _rows(comparison: Comparison, data: Sequence[DataSet]) -> list[Row]:
    rows = []
    for one in data:
        row = comparison.row(one)
        said = f"{row.preset} {row.template} {row.tokenizer} {row.data}: {row.samples} samples"
        counts = f"equal {row.equal}, explained {dict(row.explained)}, refused {row.refused}"
        print(f"{said}, {counts}, different {row.different} {row.first}", file=sys.stderr)
        rows.append(row)
    return rows


def _recipe(case: Case, paths: Sequence[Path], directory: Path) -> str:
    """Compare the samples in the files of a run with those made in this process."""
    name = f"a run of tokmill, {case.settings.preset}, {case.template}, {case.tokenizer.name}"
    ours = Ours(case, parse=False)
    made = [outcome for path in paths for outcome in ours.outcomes(read_data(path, 0).texts)]
    kept = [sample for sample in made if isinstance(sample, Sample) and any(sample.mask)]
    found = written(case, paths, directory / "recipe")
    if found == kept:
        return f"{name}: {len(found)} samples read back from shards, the same"
    return f"{name}: {len(found)} samples read back from shards, {len(kept)} expected: they differ"


def _write_json(
    path: Path, rows: Sequence[Row], skipped: list[str], recipes: list[str], seconds: float
) -> None:
    content: dict[str, Any] = {
        "machine": described(),
        "seconds": round(seconds, 1),
        "rows": [row.as_json() for row in rows],
        "recipes": recipes,
        "skipped": skipped,
    }
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m bench.sft_parity", description=summary)
    add = parser.add_argument
    add("--data", nargs="+", type=Path, required=True, help="JSON Lines of conversations")
    add("--tokenizers", nargs="+", required=True, metavar="DIR[:EOS]")
    add("--presets", default=",".join(PRESETS), help=f"of {','.join(PRESETS)}")
    add(
        "--templates",
        default="*.jinja",
        metavar="GLOB",
        help="of those with generation tags in trl, or files",
    )
    add("--limit", type=int, default=0, help="records of each file at most, spread; 0: all")
    add(
        "--recipe",
        type=int,
        default=0,
        help="also write datasets for the first N templates of each",
    )
    add("--each", action="store_true", help="a row for each data set, not for all together")
    add("--json", type=Path, help="write every row there")
    add("--minimind", type=Path, help="source tree of jingyaogong/minimind")
    add("--nanochat", type=Path, help="source tree of karpathy/nanochat")
    add("--torchtune", type=Path, help="folder that holds the package torchtune 0.6")
    add("--llamafactory", type=Path, help="source tree of hiyouga/LLaMA-Factory")
    add("--baby-llama2", type=Path, help="source tree of DLLXW/baby-llama2-chinese")
    return parser


if __name__ == "__main__":
    main()
