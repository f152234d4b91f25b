"""Time and disk of exports of a large dataset: linked bodies, and the indexes written beside them.

    python -m bench.exports --bytes 10GB --shards 10 --mean-tokens 700 --directory DIR
    python -m bench.exports --dataset out --directory DIR

The first makes a dataset whose bodies are sparse files and whose `.idx` are real: lengths of
documents are log-normal with that mean. Bodies that are copied are then zeros, read from no disk.
The second exports a real dataset. Each export runs in a process of its own; its time is that of
`Dataset.export` alone, with imports of the trainer, checksums and fsync. `new disk` is what the
export's files without a link occupy, as a share of the body. `peak` is resident memory (Linux).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from blake3 import blake3

import tokmill
from bench import machine
from bench.rounds import ROOT
from tokmill.dataset.canonical import json_chunks, manifest_sha256, sha256_hex
from tokmill.dataset.idx_file import write_index
from tokmill.dataset.layout import MANIFEST, shard_stem
from tokmill.settings.quantity import parse_quantity

SAMPLES = ROOT / "data_samples"
LINKED = ("megatron", "datatrove", "nanotron", "olmo-core", "nanogpt")
"""Trainers whose bodies are links: nanoGPT's if a split is one shard."""

SPREAD = 1.0
"""Standard deviation of the logarithm of a document's length."""


def make_sparse(directory: Path, n_bytes: int, n_shards: int, mean_tokens: int) -> None:
    """Make a dataset of uint16 with bodies of `n_bytes` in all that occupy no disk."""
    made = tokmill.pretrain(
        SAMPLES / "records.jsonl", tokenizer=SAMPLES / "tokenizer", output=directory, progress=False
    )
    manifest = dict(made.manifest)
    for shard in made.shards:
        for path in directory.glob(f"{shard.name}.*"):
            path.unlink()
    manifest["shards"] = []
    manifest["files"] = [row for row in manifest["files"] if not row["name"].startswith("train")]
    numbers = np.random.default_rng(0)
    for number in range(n_shards):
        lengths = _lengths(numbers, n_bytes // 2 // n_shards, mean_tokens)
        stem = shard_stem("train", number, 0)
        with (directory / f"{stem}.bin").open("wb") as body:
            body.truncate(2 * int(lengths.sum()))
        with (directory / f"{stem}.idx").open("wb") as index:
            write_index(index, partial(list, [lengths]), len(lengths), 2)
        row = {"name": stem, "split": "train", "documents": len(lengths)}
        manifest["shards"].append(row | {"tokens": int(lengths.sum())})
        for ending in ("bin", "idx"):
            path = directory / f"{stem}.{ending}"
            entry = {"name": path.name, "bytes": path.stat().st_size}
            found = sha256_hex(path.name.encode())  # of a body that no linked export reads
            if ending == "idx":
                found = blake3(path.read_bytes()).hexdigest()
            manifest["files"].append(entry | {"blake3": found})
    manifest["sha256"] = manifest_sha256(manifest)
    (directory / MANIFEST).unlink()
    (directory / MANIFEST).write_bytes(b"".join(json_chunks(manifest)))


def _lengths(numbers: np.random.Generator, n_tokens: int, mean_tokens: int) -> np.ndarray:
    """Return lengths of documents, at least 2 tokens each, that add up to `n_tokens` at least."""
    median = np.log(mean_tokens) - SPREAD**2 / 2
    n = int(n_tokens / mean_tokens * 1.1) + 100
    lengths = np.maximum(numbers.lognormal(median, SPREAD, n), 2).astype(np.int32)
    return lengths[: int(np.searchsorted(np.cumsum(lengths, dtype=np.int64), n_tokens)) + 1]


def case(dataset: Path, trainer: str, output: Path) -> dict[str, Any]:
    """Export in this process; return seconds, bytes and the growth of memory."""
    opened = tokmill.open(dataset)
    before = _peak()
    start = time.perf_counter()
    made = opened.export(trainer, output)
    seconds = time.perf_counter() - start
    grown = _peak() - before
    paths = [output / file.name for file in made.files if file.how not in ("link", "reflink")]
    return {
        "seconds": seconds,
        "new_bytes": sum(512 * path.stat().st_blocks for path in paths),
        "n_linked": len(made.files) - len(paths),
        "n_files": len(made.files),
        "grown_bytes": grown,
    }


def _peak() -> int:
    """Return the peak of resident memory so far, in bytes; an exec does not inherit this one."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def in_child(dataset: Path, trainer: str, folder: Path) -> dict[str, Any]:
    """Run one case in a process of its own, and remove its files."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        values = [str(dataset), trainer, f"{place}/export"]
        command = [sys.executable, "-m", "bench.exports", "--case", *values]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def measure(dataset: Path, folder: Path, repeat: int) -> None:
    """Print a table: a row for each trainer."""
    opened = tokmill.open(dataset)
    body = sum((dataset / f"{shard.name}.bin").stat().st_size for shard in opened.shards)
    what = f"{body / 1e9:.2f} GB in {len(opened.shards)} shards, {len(opened):,} documents"
    print(f"{what}; {machine.described()}; load {machine.load_average()}\n")
    print("| trainer | files | linked | new disk | median | best | s per 10 GB | peak |")
    print("|---|---|---|---|---|---|---|---|")
    for trainer in LINKED:
        if trainer == "nanogpt" and len(opened.shards) > len(opened.splits):
            continue
        runs = [in_child(dataset, trainer, folder) for _ in range(repeat)]
        seconds = [run["seconds"] for run in runs]
        first, median = runs[0], statistics.median(seconds)
        print(
            f"| `{trainer}` | {first['n_files']} | {first['n_linked']} | "
            f"{first['new_bytes'] / body:.2%} | {median:.2f} s | {min(seconds):.2f} s | "
            f"{median * 1e10 / body:.2f} | +{first['grown_bytes'] / 1e6:.0f} MB |",
            flush=True,
        )


@click.command()
@click.option("--dataset", type=click.Path(path_type=Path), help="A real dataset.")
@click.option("--bytes", "n_bytes", default="10GB", help="Bodies of the sparse dataset.")
@click.option("--shards", "n_shards", default=10)
@click.option("--mean-tokens", default=700, help="Of a document of the sparse dataset.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where exports are written.")
@click.option("--repeat", default=5)
@click.option("--case", "values", nargs=3, hidden=True)
def main(
    dataset: Path | None,
    n_bytes: str,
    n_shards: int,
    mean_tokens: int,
    directory: Path | None,
    repeat: int,
    values: tuple[str, str, str] | None,
) -> None:
    """Print the table, or run one case."""
    if values:
        print(json.dumps(case(Path(values[0]), values[1], Path(values[2]))))
        return
    folder = (directory or Path(tempfile.gettempdir())).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if dataset is not None:
        measure(dataset.absolute(), folder, repeat)
        return
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Path(place) / "dataset"
        make_sparse(made, parse_quantity(n_bytes, "bytes", "--bytes"), n_shards, mean_tokens)
        measure(made, folder, repeat)


if __name__ == "__main__":
    main()
