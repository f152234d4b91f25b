"""Host RAM of loading a dataset by each strategy: measured in a child process, beside its bill.

    python -m bench.host_loading DIR
    python -m bench.host_loading DIR --workers 4 --start-method spawn

The child is a trainer without a model: torch's DataLoader over a finished dataset, opened as people
write it in training scripts. Measured is the committed memory of its process tree at its peak. A
prediction holds if its error is at most 5% of it plus 32 MiB. Runs are in
tests/bill/host_ram/measured.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# The child imports this module too: what it does not need would be measured with it.
from tokmill.settings.training import LAZY_LOADING, LOADING, TrainingSettings

if TYPE_CHECKING:
    from tokmill.bill.formula import Bill
    from tokmill.bill.on_disk import DatasetSize
    from tokmill.machine.process_tree import Usage

MIB = 1 << 20
IGNORED = -100
"""Label of a token that the loss leaves out."""
MOST_TOKENS = 1 << 26
"""Tokens that are read, spread over the dataset: more would take no more memory.

Lists are read completely, since workers copy the objects that they read.
"""
MOST_OF_AVAILABLE = 0.8
"""A strategy that needs a larger share of the free memory is not run: programs could be killed."""
CACHED_INTEGERS = 257
"""Python stores integers below this once."""


@dataclass(frozen=True, slots=True)
class Run:
    """The work of a child: paths of `.bin` files, () if it only starts, and how they are loaded."""

    paths: tuple[str, ...]
    dtype: str = "<u2"
    masked: bool = False
    loading: str = "memmap"
    micro_batch: int = 1
    sequence: int = 1
    workers: int = 0
    start_method: str = "fork"


@dataclass(slots=True)
class Samples:
    """Samples by number: ids and labels of `run.sequence` tokens, int64.

    A shard is cut into blocks; `ends`: blocks up to the end of each shard. Every `step`-th block is
    a sample.
    """

    run: Run
    ends: list[int]
    step: int
    shards: list[tuple[Any, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, run: Run) -> Samples:
        """Return the samples of a run; LAZY_LOADING opens the files with the first sample."""
        lengths = [Path(path).stat().st_size // np.dtype(run.dtype).itemsize for path in run.paths]
        if run.loading == "concatenate":
            lengths = [sum(lengths)]
        ends = list(accumulate(length // run.sequence for length in lengths))
        step = 1 if run.loading == "lists" else max(1, ends[-1] * run.sequence // MOST_TOKENS)
        return cls(run, ends, step, [] if run.loading in LAZY_LOADING else opened(run))

    def __len__(self) -> int:
        return self.ends[-1] // self.step

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if not self.shards:
            self.shards = opened(self.run)
        block = number * self.step
        shard = bisect_right(self.ends, block)
        start = (block - (self.ends[shard - 1] if shard else 0)) * self.run.sequence
        span = slice(start, start + self.run.sequence)
        values, beside = self.shards[shard]
        ids = np.array(values[span], dtype=np.int64)
        if not self.run.masked:
            return ids, ids
        if self.run.loading == "int64":
            return ids, beside[span]
        return ids, np.where(np.asarray(beside[span]), ids, IGNORED)


def opened(run: Run) -> list[tuple[Any, Any]]:
    """Return ids and mask of each shard (int64: ids and labels), as the strategy opens them."""

    def read(path: str, dtype: str) -> Any:
        if run.loading in ("memmap", "lazy"):
            return np.memmap(path, dtype, "r")
        values = np.fromfile(path, dtype)
        return values.tolist() if run.loading == "lists" else values

    masks = [str(Path(path).with_suffix(".mask")) for path in run.paths]
    if run.loading == "concatenate":  # while shards are joined, each exists twice
        ids = np.concatenate([read(path, run.dtype) for path in run.paths])
        return [(ids, np.concatenate([read(path, "u1") for path in masks]) if run.masked else None)]
    shards = []
    for path, mask in zip(run.paths, masks, strict=True):
        ids, beside = read(path, run.dtype), None
        if run.loading == "int64":
            ids = ids.astype(np.int64)
        if run.masked:
            beside = read(mask, "u1")
            beside = np.where(beside, ids, IGNORED) if run.loading == "int64" else beside
        shards.append((ids, beside))
    return shards


def child(run: Run) -> None:
    """Load and read a dataset once. At each mark wait for a line: memory is still meanwhile."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    mark()
    if not run.paths:
        return
    samples = Samples.of(run)
    mark()
    loader: Any = DataLoader(
        samples,
        batch_size=run.micro_batch,
        drop_last=True,
        num_workers=run.workers,
        multiprocessing_context=run.start_method if run.workers else None,
    )
    for number, batch in enumerate(loader, 1):
        for values in batch:
            values.sum()
        if number == len(loader):  # the workers still exist
            mark()


def mark() -> None:
    """Write a line, and wait for one."""
    sys.stdout.write("mark\n")
    sys.stdout.flush()
    sys.stdin.readline()


def measured(run: Run) -> Usage:
    """Return the peak of a child that does this work, with its own child processes."""
    from tokmill.machine.process_tree import MEASURING, Sampler

    command = [sys.executable, "-W", "ignore", "-m", "bench.host_loading"]
    command += ["--child", json.dumps(asdict(run))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with Sampler(process.pid, MEASURING) as sampler:
                while process.stdout.readline():
                    sampler.sample()
                    process.stdin.write("\n")
                    process.stdin.flush()
            if process.wait():
                raise SystemExit(f"the child ended with code {process.returncode}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return sampler.peak


def predicted(run: Run, size: DatasetSize, interpreter_bytes: int) -> Bill:
    """Return the bill of a run at its peak."""
    from tokmill.bill.host_ram.host import host_bill
    from tokmill.bill.host_ram.machine import Machine

    training = TrainingSettings(
        loading=run.loading, loader_workers=run.workers, start_method=run.start_method,
        micro_batch=run.micro_batch, sequence=run.sequence,
    )  # fmt: skip
    return host_bill(None, training, size, Machine(interpreter_bytes=interpreter_bytes)).peak


def rows(all_runs: Run, size: DatasetSize) -> Iterator[tuple[str, ...]]:
    """Yield strategy, predicted and measured memory, error, page cache, and whether it holds."""
    import psutil

    from tokmill.words import memory

    maps = [np.memmap(path, all_runs.dtype, "r")[::100] for path in all_runs.paths]
    small_ids = float(np.mean([np.mean(ids < CACHED_INTEGERS) for ids in maps]))
    interpreter_bytes = measured(Run(())).committed
    for loading in LOADING:
        run = replace(all_runs, loading=loading)
        bill = predicted(run, replace(size, small_ids=small_ids), interpreter_bytes)
        if bill.n_bytes > MOST_OF_AVAILABLE * psutil.virtual_memory().available:
            yield loading, memory(bill.n_bytes), "too little is free", "", "", ""
            continue
        peak = measured(run)
        error = bill.n_bytes - peak.committed
        holds = abs(error) <= 0.05 * peak.committed + 32 * MIB
        cells = (memory(bill.n_bytes), memory(peak.committed), f"{error / peak.committed:+.1%}")
        yield loading, *cells, memory(peak.file), "yes" if holds else "no"


def main() -> None:
    """Print a table of the strategies of loading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="a finished dataset")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start-method", default="fork", choices=("fork", "spawn"))
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = vars(parser.parse_args())
    line, directory = options.pop("child"), options.pop("directory")
    if line is not None:
        child(Run(**json.loads(line)))
        return
    from bench.tables import table
    from tokmill.bill.on_disk import dataset_size, read_dataset

    _, manifest = read_dataset(directory)
    paths = tuple(str(directory / f"{shard['name']}.bin") for shard in manifest["shards"])
    dtype = {"uint16": "<u2", "uint32": "<u4"}[manifest["dtype"]]
    run = Run(paths, dtype, "mask" in manifest, **options)
    size = replace(dataset_size(manifest), weights=False)
    head = ("loading", "predicted", "measured", "error", "page cache", "holds")
    print(table(head, list(rows(run, size))))


if __name__ == "__main__":
    main()
