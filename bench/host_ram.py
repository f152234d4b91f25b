"""Host RAM of loading a dataset, predicted and measured, over the matrix of ways to load it.

    python -m bench.host_ram DIR [SMALLER_DIR ...] --json bench/host_ram.json
    python -m bench.host_ram DIR --make 500e6          # first make a dataset with so many tokens

Strategies x 0, 2, 4 workers x fork, spawn x with masks, without. A case that takes too much memory
for this machine is skipped, and runs on the next, smaller dataset. A prediction holds within
5% + 32 MiB. The JSON holds what was measured; `comparisons` predicts it by the formulas of today.
`most_tokens_read`: so many are read, spread over the dataset; of lists, all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import described
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.measuring.loading import (
    MOST_TOKENS,
    Comparison,
    Measured,
    compare_loading,
    has_torch,
    measure_interpreter,
    predict,
)
from tokmill.bill.measuring.machine import this_machine
from tokmill.bill.measuring.process_tree import Usage
from tokmill.dataset.layout import MANIFEST, shard_stem
from tokmill.dataset.reader import read_manifest
from tokmill.dataset.writer import ShardWriter
from tokmill.settings.training import LOADING, TrainingSettings

MIB = 1 << 20
DATA = Path(__file__).with_suffix(".json")
SHARDS = 4
DOCUMENT = 1 << 14
"""Tokens of a document of a made dataset."""
CHUNK = 1 << 22
VOCABULARY = 32_000


def make_dataset(directory: Path, n_tokens: int) -> None:
    """Write a dataset of random ids, small ones more often, a third of them trained."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    shards = []
    for part in range(SHARDS):
        stem = shard_stem("train", part, 0)
        writer = ShardWriter(directory, "train", stem, np.dtype("<u2"), ("mask",))
        left = n_tokens // SHARDS
        while left:
            n = min(left, CHUNK)
            ids = (random.random(n, dtype=np.float32) ** 3 * VOCABULARY).astype("<u2")
            mask = (random.random(n, dtype=np.float32) < 1 / 3).astype(np.uint8)
            whole, rest = divmod(n, DOCUMENT)
            lengths = np.array([DOCUMENT] * whole + [rest] * bool(rest), np.int64)
            writer.append(ids, lengths, {"mask": mask})
            left -= n
        entry = writer.commit()
        shards.append(
            {"name": stem, "split": "train", "documents": entry.n_documents,
             "tokens": entry.n_tokens}
        )  # fmt: skip
    _write_manifest(directory, shards)


def _write_manifest(directory: Path, shards: list[dict[str, Any]]) -> None:
    """Write a manifest that says of a run only what has to be said: none made these shards."""
    numbers = ("records", "documents", "tokens", "text_bytes", "input_bytes")
    totals: dict[str, Any] = {**dict.fromkeys(numbers, 0), "drops": {}, "rejects": {}}
    totals |= {key: sum(shard[key] for shard in shards) for key in ("tokens", "documents")}
    histogram = [0] * DOCUMENT.bit_length()
    histogram[-1] = totals["documents"]
    names = ("preset", "boundary", "template", "alignment", "template_sha256")
    sft = {"weights": "none", "packing": 0, "too_long": "drop", "packed_rows": False}
    manifest = {
        "format_version": 1, "kind": "sft", "dtype": "uint16", "totals": totals,
        "config": {
            "tokenizer": {"path": "", "pattern": "", "control_tokens_in_text": "text"}, "sft": sft
        },
        "mask": {
            **dict.fromkeys(names, ""), "trained": [], "cut": 0,
            "ends": {"rule": "", "last_ids": []},
        },
        "tokenizer": {
            "name": "", "sha256": "", "vocab_size": VOCABULARY, "eos": {"id": 0, "token": ""},
            "bos": None,
        },
        "engine": {
            "name": "none", "version": "0", "reason": "random ids", "mb_per_s": {}, "n_checked": 0,
            "refused": {},
        },
        "run": dict.fromkeys(
            ("wall_s", "text_bytes_per_s", "peak_memory_bytes", "resumed_parts"), 0
        ),
        "length_histogram": histogram, "sources": [], "shards": shards, "files": [],
    }  # fmt: skip
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def cases(options: argparse.Namespace) -> Iterator[tuple[TrainingSettings, bool]]:
    """Yield the matrix; without workers there is no way to start them."""
    for loading, workers, start, masks in product(
        options.loading, options.workers, options.start, options.masks
    ):
        if workers or start == options.start[0]:
            yield (
                TrainingSettings(
                    loading=loading, loader_workers=workers, start_method=start,
                    micro_batch=options.micro_batch, sequence=options.sequence,
                ),
                masks == "yes",
            )  # fmt: skip


def compared(
    case: tuple[TrainingSettings, bool], directories: list[Path], machine: Machine, *, torch: bool
) -> Iterator[Comparison]:
    """Yield the comparisons of one case, up to the first dataset that fits into free memory."""
    training, masked = case
    for directory in directories:
        now = replace(machine, available_bytes=this_machine().available_bytes)
        manifest = read_manifest(directory)
        found = compare_loading(directory, manifest, training, now, torch=torch, masked=masked)
        yield found
        if found.measured is not None:
            return


def row_of(found: Comparison, interpreter: int) -> dict[str, Any]:
    """Return what was measured, as plain values; memory in bytes."""
    training, size, measured = found.training, found.size, found.measured
    row: dict[str, Any] = {
        "loading": training.loading,
        "workers": training.loader_workers,
        "start_method": training.start_method if training.loader_workers else "",
        "micro_batch": training.micro_batch,
        "sequence": training.sequence,
        "masked": size.mask,
        "tokens": size.tokens,
        "shards": size.shards,
        "small_ids": round(size.small_ids, 4),
        "interpreter": interpreter,
    }
    if measured is None:
        return row | {"skipped": found.skipped}
    return row | {
        "anonymous": measured.peak.anonymous,
        "shared": measured.peak.shared,
        "file": max(usage.file for usage in measured.at.values()),
        "steady": measured.at["read"].committed,
        "looks_per_s": round(measured.looks_per_s),
    }


def comparisons() -> list[Comparison]:
    """Return the cases that are kept as data, predicted by the formulas of today."""
    return [_comparison(row) for row in json.loads(DATA.read_text(encoding="utf-8"))["rows"]]


def _comparison(row: dict[str, Any]) -> Comparison:
    training = TrainingSettings(
        loading=row["loading"], loader_workers=row["workers"],
        start_method=row["start_method"] or "fork", micro_batch=row["micro_batch"],
        sequence=row["sequence"],
    )  # fmt: skip
    size = DatasetSize(
        "sft", row["tokens"], 1, 2, mask=row["masked"], shards=row["shards"],
        largest_shard_tokens=row["tokens"] // row["shards"], small_ids=row["small_ids"],
    )  # fmt: skip
    predicted = predict(training, size, Machine(interpreter_bytes=row["interpreter"]))
    if "skipped" in row:
        return Comparison(training, size, predicted, None, row["skipped"])
    peak = Usage(row["anonymous"], row["shared"], row["file"])
    return Comparison(training, size, predicted, Measured({}, peak, row["looks_per_s"]))


def show(found: Comparison) -> None:
    """Print a case as a row of Markdown, memory in MiB."""
    training, size, measured = found.training, found.size, found.measured
    start = training.start_method if training.loader_workers else ""
    cells = [training.loading, training.loader_workers, start, "yes" if size.mask else "no"]
    cells += [f"{size.tokens / 1e6:,.0f}", f"{found.predicted.n_bytes / MIB:,.0f}"]
    if measured is None:
        cells.append(found.skipped)
    else:
        cells += [f"{n / MIB:,.0f}" for n in (measured.peak.committed, found.difference)]
        cells.append("holds" if found.holds else "FAILS")
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="bench.host_ram")
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--make", type=float, help="tokens of a dataset to make in DIR")
    parser.add_argument("--loading", nargs="+", choices=LOADING, default=LOADING)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 4])
    parser.add_argument("--start", nargs="+", choices=("fork", "spawn"), default=["fork", "spawn"])
    parser.add_argument("--masks", nargs="+", choices=("no", "yes"), default=["no", "yes"])
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--plain", action="store_true", help="without torch")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Make a dataset, or run the matrix; 1 if a prediction fails."""
    options = options_of(arguments)
    if options.make:
        make_dataset(options.directories[0], int(options.make))
        return 0
    torch = has_torch() and not options.plain
    interpreter = measure_interpreter(torch=torch)
    machine = replace(this_machine(torch=torch), interpreter_bytes=interpreter)
    print(f"interpreter {interpreter / MIB:,.1f} MiB, torch {torch}; memory in MiB\n")
    head = ("loading", "workers", "start", "masks", "M tokens", "predicted", "measured",
            "difference", "")  # fmt: skip
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    report: dict[str, Any] = {
        "schema": 2,
        "machine": {**described(), "versions": _versions(torch=torch)},
        "torch": torch,
        "most_tokens_read": MOST_TOKENS,
        "rows": [],
    }
    failed = False
    for case in cases(options):
        for found in compared(case, options.directories, machine, torch=torch):
            show(found)
            failed |= found.measured is not None and not found.holds
            report["rows"].append(row_of(found, interpreter))
            if options.json:  # after each: the whole matrix takes an hour
                options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(failed)


def _versions(*, torch: bool) -> dict[str, str]:
    return {name: version(name) for name in ("numpy", "psutil", *(["torch"] * torch))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
