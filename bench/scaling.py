"""How time and memory grow: the planner, the manifest, tiny files, input size, workers.

    python -m bench.scaling planner 10000 1000000 --directory DIR
    python -m bench.scaling manifest --tokens 1e13 --files 20000 1000000 --directory DIR
    python -m bench.scaling tiny 20000 --tokenizer T --directory DIR
    python -m bench.scaling size 50MB 500MB 5GB 10GB --input F.jsonl --tokenizer T --directory DIR
    python -m bench.scaling workers --bytes 500MB --input F.jsonl --tokenizer T --directory DIR

`planner` makes so many real files of one short record each, and drives every step between the
command and the first token, then a restart that finds everything done. `manifest` makes the records
of a dataset that nobody has to encode, over files that are only named; its shards are sparse. Both
run each case in a process of its own and show, step by step, seconds and the peak of resident
memory (Linux). The other three run the command itself. `--json FILE` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.scaling_steps import Row, manifest_steps, planner_steps
from tokmill.settings.quantity import parse_quantity

FRESH_WORDS = Path(__file__).with_name("fresh_words.py")


def print_table(rows: list[Row]) -> None:
    """Print rows of equal keys as Markdown."""
    if not rows:
        return
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in row.values()) + " |", flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def in_child(section: str, *values: object) -> list[Row]:
    """Run one case in a process of its own, so that no case inherits another's memory."""
    command = [sys.executable, "-m", "bench.scaling", "_case", section, *map(str, values)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    rows: list[Row] = json.loads(done.stdout)
    return rows


def one_case(section: str, *values: str) -> list[Row]:
    """Return the rows of a case, in its own process."""
    *numbers, directory = values
    if section == "planner":
        return planner_steps(int(numbers[0]), Path(directory))
    return manifest_steps(int(numbers[0]), int(numbers[1]), Path(directory))


def planner(args: argparse.Namespace) -> list[Row]:
    """Plan, and restart, over so many files of one record."""
    return [row for n in args.files for row in in_child("planner", n, args.directory)]


def manifest(args: argparse.Namespace) -> list[Row]:
    """Finish, read and check a dataset of so many tokens over so many files."""
    return [
        row for n in args.files for row in in_child("manifest", int(args.tokens), n, args.directory)
    ]


def pretrain(paths: list[Path], args: argparse.Namespace, *extra: str) -> dict[str, Any]:
    """Run the command over files; give its manifest, and the wall clock around the process.

    A plan goes before, unmeasured: it chooses the engine, which is then remembered.
    """
    output = Path(tempfile.mkdtemp(prefix="scaling-", dir=args.directory)) / "out"
    options = [*map(str, paths), "-o", str(output), "-t", str(args.tokenizer), "--json", *extra]
    options += ["--eos-token", args.eos_token] if args.eos_token else []
    tokmill = [sys.executable, "-m", "tokmill"]
    try:
        subprocess.run([*tokmill, "plan", *options], check=True, stdout=subprocess.DEVNULL)
        start = time.perf_counter()
        done = subprocess.run([*tokmill, "pretrain", *options], check=True, stdout=subprocess.PIPE)
    finally:
        shutil.rmtree(output.parent)
    return {**json.loads(done.stdout), "process_s": time.perf_counter() - start}


def described(found: dict[str, Any]) -> Row:
    """Return the figures of a run: throughput over the whole process, from its start to its end."""
    text_bytes, run = found["totals"]["text_bytes"], found["run"]
    return {
        "seconds": found["process_s"],
        "text MB/s": text_bytes / found["process_s"] / 1e6,
        "CPU s": run["cpu_s"],
        "peak MiB": run["peak_memory_bytes"] >> 20,
        "engine": found["engine"]["name"],
    }


def tiny(args: argparse.Namespace) -> list[Row]:
    """Run the command over so many files of 300 bytes, and over one file of the same records."""
    rows = []
    for n_files in args.files:
        with tempfile.TemporaryDirectory(prefix="tiny-", dir=args.directory) as name:
            many, one = Path(name) / "many", Path(name) / "one.jsonl"
            make_records(many, one, n_files)
            for label, path in (("one", one), ("many", many)):
                found = pretrain([path], args, *args.extra)
                speed = {"documents/s": round(n_files / found["process_s"])}
                rows.append({"records": n_files, "files": label, **speed, **described(found)})
    return rows


def make_records(many: Path, one: Path, n: int) -> None:
    """Write `n` records of 300 bytes, each to a file of its own and all to one."""
    words = "the quick brown fox jumps over the lazy dog and runs away " * 5
    with one.open("w") as together:
        for i in range(n):
            line = json.dumps({"text": f"{i:08d} {words}"[:286]}) + "\n"
            folder = many / f"{i // 1000:04d}"
            if i % 1000 == 0:
                folder.mkdir(parents=True)
            (folder / f"{i:08d}.jsonl").write_text(line)
            together.write(line)


def size(args: argparse.Namespace) -> list[Row]:
    """Run the command over ever larger inputs, of repeated text and of ever-new words."""
    rows = []
    for n_bytes in (parse_quantity(text, "bytes", "size") for text in args.sizes):
        for kind in ("repeated", "new words"):
            with corpus(kind, n_bytes, args) as path:
                found = pretrain([path], args, *args.extra)
            rows.append({"input MB": n_bytes // 10**6, "text": kind, **described(found)})
    return rows


def workers(args: argparse.Namespace) -> list[Row]:
    """Run the command over one input with every layout of the work."""
    rows = []
    n_bytes = parse_quantity(args.bytes, "bytes", "--bytes")
    part_bytes = n_bytes // 8  # enough parts for every worker
    with corpus("repeated", n_bytes, args) as path:
        for n_workers in args.workers:
            for n_threads in args.threads:
                layout = ["--workers", str(n_workers), "--threads", str(n_threads)]
                found = pretrain([path], args, *layout, "--part-bytes", str(part_bytes))
                rows.append({"workers": n_workers, "threads": n_threads, **described(found)})
    return rows


@contextmanager
def corpus(kind: str, n_bytes: int, args: argparse.Namespace) -> Iterator[Path]:
    """Return a file of about so many bytes, removed afterwards."""
    path = Path(args.directory) / f"corpus-{os.getpid()}.jsonl"
    try:
        if kind == "new words":
            command = [sys.executable, str(FRESH_WORDS), str(path), "--bytes", str(n_bytes)]
            subprocess.run(command, check=True)
        else:
            repeat(args.input, path, n_bytes)
        yield path
    finally:
        path.unlink(missing_ok=True)


def repeat(source: Path, target: Path, n_bytes: int) -> None:
    """Write the lines of a file again and again, up to `n_bytes`."""
    with target.open("wb") as out:
        while out.tell() < n_bytes:
            with source.open("rb") as lines:
                for line in lines:
                    out.write(line)
                    if out.tell() >= n_bytes:
                        break


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    root = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    sections = root.add_subparsers(dest="section", required=True)
    for section in (planner, manifest, tiny, size, workers):
        one = sections.add_parser(section.__name__, help=section.__doc__)
        one.set_defaults(run=section)
        one.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
        one.add_argument("--json", type=Path)
        if section in (tiny, size, workers):
            one.add_argument("--tokenizer", type=Path, required=True)
            one.add_argument("--eos-token", default="")
            one.add_argument("--input", type=Path, required=section is not tiny)
    sections.choices["planner"].add_argument("files", type=int, nargs="+")
    sections.choices["tiny"].add_argument("files", type=int, nargs="+")
    sections.choices["manifest"].add_argument("--files", type=int, nargs="+", default=[20_000])
    sections.choices["manifest"].add_argument("--tokens", type=float, default=1e13)
    sections.choices["size"].add_argument("sizes", nargs="+")
    sections.choices["workers"].add_argument("--bytes", default="500MB")
    sections.choices["workers"].add_argument("--workers", type=int, nargs="+", default=[1, 2])
    sections.choices["workers"].add_argument("--threads", type=int, nargs="+", default=[1, 2])
    return root


def main() -> None:
    """Run one section and print its table; further options go to the command itself."""
    if sys.argv[1:2] == ["_case"]:
        json.dump(one_case(*sys.argv[2:]), sys.stdout)
        return
    args, args_extra = parser().parse_known_args()
    args.extra = args_extra
    rows = args.run(args)
    print_table(rows)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
