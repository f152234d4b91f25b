"""Compares every engine with the reference on every code point, and makes the shipped table.

    python -m bench.character_scan --tokenizer DIR [--eos TOKEN] --tokenizer DIR … [--planted]
    python -m bench.character_scan --tokenizer DIR … --table

Prints a row for each tokenizer and engine: characters on which it differs, what refuses it,
seconds. With `--planted`, a corpus whose documents hold differing characters is made into a dataset
by the command line, with an empty cache, and compared with the reference's ids, both read without
tokmill. With `--table` the results of all tokenizers, and of the steps of common ones
(`bench.tokenizer_steps`), are written to `src/tokmill/engines/differences.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bench.corpus import load_reference
from bench.tokenizer_steps import common_tokenizers
from tokmill.engines import comparison
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.comparison import compare_engines, structure
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, engine_version
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer

TABLE = Path(comparison.__file__).with_name("differences.json")
HEAD = "| tokenizer | engine | characters that differ | sequences | seconds | planted documents |"
N_PLANTED = 2000

Results = dict[str, CharacterComparison]


def main() -> None:
    """Compare, print a table of rows, and write the shipped table if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tokenizer", action="append", default=[], metavar="DIR")
    parser.add_argument("--eos", default="", help="the string of the eos, where a file says none")
    parser.add_argument("--engine", action="append", choices=FAST_ENGINES)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--table", action="store_true", help="write the shipped table")
    args = parser.parse_args()
    threads, engines = os.cpu_count() or 1, args.engine or FAST_ENGINES
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    print(HEAD, "|---|---|--:|---|--:|---|", sep="\n", flush=True)
    found: list[tuple[str, Tokenizer, Results]] = []
    for label, tokenizer in _tokenizers(args.tokenizer, args.eos, table=args.table):
        known = {structure(one): results for _, one, results in found}
        start = time.perf_counter()
        results = known.get(structure(tokenizer)) or _compare(tokenizer, engines, threads)
        seconds = time.perf_counter() - start
        found.append((label, tokenizer, results))
        for name in engines:
            cells = [f"`{label}`", name, *_cells(results[name]), f"{seconds:.1f}"]
            is_tried = args.planted and not results[name].refused
            cells.append(end_to_end(tokenizer, name, results[name]) if is_tried else "")
            print(f"| {' | '.join(cells)} |", flush=True)
        if args.table:
            write_table(found)


def _compare(tokenizer: Tokenizer, engines: Sequence[str], threads: int) -> Results:
    return compare_engines(tokenizer, engines, threads, every=True)


def _tokenizers(paths: Sequence[str], eos: str, *, table: bool) -> Iterator[tuple[str, Tokenizer]]:
    """Yield the named tokenizers; for the table also their variants, and common steps."""
    for path in paths:
        tokenizer = load_tokenizer(TokenizerSettings(path=path, eos_token=eos or _some_token(path)))
        yield Path(path).name, tokenizer
        variant = continuation_tokenizer(tokenizer) if table else None
        if variant is not None and variant is not tokenizer:
            yield f"{Path(path).name}, continued", variant
        if table and tokenizer.kind == "json":
            yield from common_tokenizers(tokenizer)


def _cells(found: CharacterComparison) -> tuple[str, str]:
    equal = f"{found.n_sequences:,} equal"
    return f"{len(found.differs):,}", found.refused[:90] or equal


def write_table(found: Sequence[tuple[str, Tokenizer, Results]]) -> None:
    """Write the results as the shipped table; a set of characters that several have, once."""
    table: dict[str, Any] = {}
    for label, tokenizer, results in found:
        rows = table.setdefault(engine_version(REFERENCE, tokenizer), {})
        one = next(iter(results.values()))
        row = rows.setdefault(structure(tokenizer), {"names": [], "engines": {}})
        row["names"] = sorted({*row["names"], label})
        row["compared"] = {
            "n_characters": one.n_characters, "n_sequences": one.n_sequences, "uncompared": [],
        }  # fmt: skip
        for name, result in results.items():
            version = f"{name} {engine_version(name, tokenizer)}"
            row["engines"][version] = {
                "differs": result.differs.as_json(), "refused": result.refused,
            }  # fmt: skip
    TABLE.write_text(_lines(table), encoding="utf-8")


def _lines(table: dict[str, Any]) -> str:
    """Return JSON with one line for each structure."""
    references = []
    for reference, rows in sorted(table.items()):
        lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items())]
        references.append(f"{json.dumps(reference)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(references) + "}\n"


def end_to_end(tokenizer: Tokenizer, engine: str, found: CharacterComparison) -> str:
    """Make a dataset of documents that hold differing characters, and compare it."""
    dice = random.Random(7)
    codes = list(found.differs.codes()) or [0x323B0, 0x180E, 0x105D2]
    behind = ["'s", "'RE", " ", "  ", "123", "\n", "a\u0301", "\u0323\u0301", ""]
    before = ["", " ", "a", "1", "\n", "中", "e\u0301", "'"]
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        corpus, out = Path(directory, "planted.jsonl"), Path(directory, "out")
        with corpus.open("w", encoding="utf-8") as lines:
            for i in range(N_PLANTED):
                words = ["the", "cat's", "中文", "1234", "it’s", "ﬁn"] * 5
                if i % 3:
                    planted = chr(dice.choice(codes))
                    words.insert(dice.randrange(30), dice.choice(before) + planted)
                    words.insert(dice.randrange(30), planted + dice.choice(behind) + "x")
                texts.append(" ".join(words))
                lines.write(json.dumps({"text": texts[-1]}, ensure_ascii=False) + "\n")
        command = [sys.executable, "-m", "tokmill", "pretrain", str(corpus), "-o", str(out), "-q"]
        command += ["-t", tokenizer.name, "--eos-token", tokenizer.eos.content]
        made = subprocess.run(
            [*command, "--engine", engine],
            capture_output=True,
            text=True,
            env=os.environ | {"TOKMILL_CACHE_DIR": directory},
        )
        if made.returncode:
            return made.stderr.strip()[:120]
        expected = load_reference(Path(tokenizer.name))(texts)
        n_different = sum(a != b for a, b in zip_longest(_stored(out), expected))
        totals = json.loads((out / "manifest.json").read_text())["totals"]
        routed = totals.get("checks", {}).get("routed", 0)
        return f"{n_different} differences in {N_PLANTED:,}, {routed:,} by the reference"


def _stored(dataset: Path) -> Iterator[list[int]]:
    """Yield the documents of a dataset without their eos, in order."""
    manifest = json.loads((dataset / "manifest.json").read_text())
    for shard in manifest["shards"]:
        tokens = np.fromfile(dataset / f"{shard['name']}.bin", manifest["dtype"])
        index = (dataset / f"{shard['name']}.idx").read_bytes()
        ends = np.cumsum(np.frombuffer(index, "<i4", shard["documents"], offset=34))
        for start, end in pairwise([0, *ends.tolist()]):
            yield tokens[start : end - 1].tolist()


def _some_token(path: str) -> str:
    """Return a token of a tokenizer as an eos, which nothing here looks at; '' for a model."""
    from tokenizers import Tokenizer as Library

    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    if not file.exists() or file.suffix == ".model":
        return ""
    library = Library.from_file(str(file))
    ids = library.get_vocab()
    special = [t.content for t in library.get_added_tokens_decoder().values() if t.special]
    return special[0] if special else max(ids, key=lambda token: ids[token])


if __name__ == "__main__":
    main()
