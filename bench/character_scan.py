"""Compares every engine with the reference on every code point, and makes the shipped table.

    python -m bench.character_scan --tokenizer DIR [--eos TOKEN] --tokenizer DIR …
    python -m bench.character_scan --tokenizer DIR … --table

Prints a row for each tokenizer and engine: characters on which it differs, what refuses it,
seconds. With `--table` the results of all tokenizers, and of the steps of common ones
(`bench.tokenizer_steps`), are written to `src/tokmill/engines/differences.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.tokenizer_steps import common_tokenizers
from tokmill.engines import comparison
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.comparison import compare_engines, structure
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, engine_version
from tokmill.settings.schema import TokenizerSettings
from tokmill.tables import ENGINES
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer

TABLE = Path(comparison.__file__).with_name("differences.json")
HEAD = "| tokenizer | engine | characters that differ | sequences | seconds |"

Results = dict[str, CharacterComparison]


def main() -> None:
    """Compare, print a table of rows, and write the shipped table if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tokenizer", action="append", default=[], metavar="DIR")
    parser.add_argument("--eos", default="", help="the string of the eos, where a file says none")
    parser.add_argument("--engine", action="append", choices=ENGINES.choices[2:])
    parser.add_argument("--table", action="store_true", help="write the shipped table")
    args = parser.parse_args()
    threads, engines = os.cpu_count() or 1, args.engine or FAST_ENGINES
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    print(HEAD, "|---|---|--:|---|--:|", sep="\n", flush=True)
    found: list[tuple[str, Tokenizer, Results]] = []
    for label, tokenizer in _tokenizers(args.tokenizer, args.eos, table=args.table):
        known = {structure(one): results for _, one, results in found}
        start = time.perf_counter()
        results = known.get(structure(tokenizer))
        results = results or compare_engines(tokenizer, engines, threads, every=True)
        seconds = time.perf_counter() - start
        found.append((label, tokenizer, results))
        for name in engines:
            one = results[name]
            equal = one.refused[:90] or f"{one.n_sequences:,} equal"
            cells = [f"`{label}`", name, f"{len(one.differs):,}", equal, f"{seconds:.1f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
        if args.table:
            write_table(found)


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
