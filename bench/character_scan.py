"""Compares every engine with the reference on every character, for tokenizers given.

    python -m bench.character_scan --tokenizer DIR [--eos TOKEN] --tokenizer DIR … [--planted]

Prints a row of a table for each tokenizer and engine: characters on which it differs, what refuses
it, seconds. With `--planted`, a corpus whose documents hold differing characters is made into a
dataset by the command line, which is compared with the reference by `bench.parity`.
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
from functools import cache
from pathlib import Path

from tokmill.engines.choice import ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, Engine, load_engine
from tokmill.engines.trial.contexts import derive_groups
from tokmill.engines.trial.engine_process import EngineProcess
from tokmill.engines.trial.scan import Scan
from tokmill.engines.trial.tasks import EngineToLoad
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer

HEAD = "| tokenizer | engine | characters that differ | sequences | seconds | planted documents |"
N_PLANTED = 2000


def main() -> None:
    """Scan, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tokenizer", action="append", required=True, metavar="DIR")
    parser.add_argument("--eos", default="", help="the string of the eos, where a file says none")
    parser.add_argument("--engine", action="append", choices=FAST_ENGINES)
    parser.add_argument("--planted", action="store_true")
    args = parser.parse_args()
    threads = os.cpu_count() or 1
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    print(HEAD, "|---|---|--:|---|--:|---|", sep="\n", flush=True)
    for path in args.tokenizer:
        for row in rows(path, args.eos, args.engine or FAST_ENGINES, threads, planted=args.planted):
            print(row, flush=True)


def rows(
    path: str, eos: str, engines: Sequence[str], threads: int, *, planted: bool
) -> Iterator[str]:
    """Return a row for each engine; the reference's part is counted with the first."""
    tokenizer = load_tokenizer(TokenizerSettings(path=path, eos_token=eos or _some_token(path)))

    @cache
    def reference() -> Engine:
        return load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=threads)

    scanner = Scan(tokenizer, reference, "text", derive_groups(tokenizer.library()))
    for name in engines:
        start = time.perf_counter()
        with EngineProcess(EngineToLoad(name, tokenizer, "text", threads)) as candidate:
            scanner.begin(candidate)
            found = scanner.result(candidate)
            seconds = time.perf_counter() - start
            refused = candidate.refused
        cells = [f"`{Path(path).name}`", name, *_found(found, refused), f"{seconds:.1f}"]
        is_tried = planted and found is not None and not found.refused
        cells.append(end_to_end(tokenizer, name, found) if is_tried and found else "")
        yield f"| {' | '.join(cells)} |"


def _found(found: ScanResult | None, refused: str) -> tuple[str, str]:
    if found is None:
        return "", f"refused: {refused[:90]}"
    return f"{len(found.differs):,}", found.refused or f"{found.n_sequences:,} equal"


def end_to_end(tokenizer: Tokenizer, engine: str, found: ScanResult) -> str:
    """Make a dataset of documents that hold differing characters, and compare it."""
    dice = random.Random(7)
    codes = list(found.differs.codes()) or [0x323B0, 0x180E, 0x105D2]
    behind = ["'s", "'RE", " ", "  ", "123", "\n", "a\u0301", "\u0323\u0301", ""]
    before = ["", " ", "a", "1", "\n", "中", "e\u0301"]
    with tempfile.TemporaryDirectory() as directory:
        corpus, out = Path(directory, "planted.jsonl"), Path(directory, "out")
        with corpus.open("w", encoding="utf-8") as lines:
            for i in range(N_PLANTED):
                words = ["the", "cat's", "中文", "1234", "it’s", "ﬁn"] * 5
                if i % 3:
                    planted = chr(dice.choice(codes))
                    words.insert(dice.randrange(30), dice.choice(before) + planted)
                    words.insert(dice.randrange(30), planted + dice.choice(behind) + "x")
                lines.write(json.dumps({"text": " ".join(words)}, ensure_ascii=False) + "\n")
        command = [sys.executable, "-m", "tokmill", "pretrain", str(corpus), "-o", str(out), "-q"]
        command += ["-t", tokenizer.name, "--eos-token", tokenizer.eos.content]
        made = subprocess.run([*command, "--engine", engine], capture_output=True, text=True)
        if made.returncode:
            return made.stderr.strip()[:120]
        compared = [sys.executable, "bench/parity.py", str(out), str(corpus)]
        done = subprocess.run(
            [*compared, "--tokenizer", tokenizer.name], capture_output=True, text=True
        )
        totals = json.loads((out / "manifest.json").read_text())["totals"]
        routed = totals.get("checks", {}).get("routed", 0)
        differences = done.stdout.strip().rpartition(", ")[2] or done.stderr.strip()[-80:]
        return f"{differences} in {N_PLANTED:,}, {routed:,} by the reference"


def _some_token(path: str) -> str:
    """Return the last token of a tokenizer as an eos, which no scan looks at; '' for a model."""
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
