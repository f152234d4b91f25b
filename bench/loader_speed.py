"""Tokens a second of a training loop: tokmill's loader and its peers, over the same tokens.

    python -m bench.loader_speed DIR --work /tmp/loader --length 8192
    python -m bench.loader_speed DIR --work /tmp/loader --length 1024 --rounds 5

DIR: a finished dataset of text. Every loader gives batches of int64 rows, inputs and labels without
gaps, as a GPU copies them, in a seeded shuffled order, with two threads or processes. Each runs in
a process of its own, in turn, for some seconds; the first batches, which start its workers, do not
count. Processor time is that of all its processes. Peers are read as their documentation shows, in
the fastest of their ways that we know: `datasets` and Grain in two of them, tokmill too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.tables import figure, table

WORKERS, BATCH, SEED, WARM_UP = 2, 8, 7, 8


class Rows:
    """Rows of a `.bin` by number, as people write them: a memory map, opened where it is read."""

    def __init__(self, path: Path, dtype: str, length: int) -> None:
        self.path, self.dtype, self.length = path, dtype, length
        self.tokens: Any = None

    def __len__(self) -> int:
        return (self.path.stat().st_size // np.dtype(self.dtype).itemsize - 1) // self.length

    def __getitem__(self, number: int) -> dict[str, Any]:
        if self.tokens is None:
            self.tokens = np.memmap(self.path, self.dtype, "r")
        start = int(number) * self.length
        row = self.tokens[start : start + self.length + 1].astype(np.int64)
        return {"input_ids": row[:-1], "labels": row[1:]}

    def __repr__(self) -> str:  # Grain asks for it
        return f"Rows({self.path}, {self.length})"


def tokmill(directory: Path, work: Path, length: int, workers: int = 0) -> Iterator[Any]:
    """Yield batches of tokmill's loader, each read when it is asked for."""
    from tokmill.loader import Loader, windows

    source = windows(directory, length, shift=True)
    return iter(Loader(source, BATCH, seed=SEED, workers=workers))


def tokmill_threads(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of tokmill's loader, read ahead by threads."""
    return tokmill(directory, work, length, WORKERS)


def torch_memmap(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of torch's DataLoader over a memory map, with processes."""
    import torch

    loader: Any = torch.utils.data.DataLoader(
        joined(directory, work, length),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        drop_last=True,
        generator=torch.Generator().manual_seed(SEED),
    )
    while True:
        yield from loader


def grain_threads(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of Grain, with threads."""
    import grain

    rows: Any = joined(directory, work, length)
    made = grain.MapDataset.source(rows).seed(SEED).shuffle().repeat().batch(BATCH)
    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=4 * WORKERS)
    return iter(made.to_iter_dataset(options))


def grain_processes(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of Grain, with processes."""
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # its processes ask for them
    rows: Any = joined(directory, work, length)
    made = grain.MapDataset.source(rows).seed(SEED).shuffle().repeat().batch(BATCH)
    return iter(
        made.to_iter_dataset().mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))
    )


def datasets_iter(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of `datasets` without workers, which has no threads to read ahead."""
    shuffled = hugging_face(directory, work, length).shuffle(seed=SEED).with_format("numpy")
    while True:
        for batch in shuffled.iter(BATCH, drop_last_batch=True):
            tokens = batch["tokens"]
            yield {
                "input_ids": tokens[:, :-1].astype(np.int64),
                "labels": tokens[:, 1:].astype(np.int64),
            }


def datasets_torch(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of `datasets` in torch's DataLoader, with processes."""
    import torch

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return two_tensors(torch, [row["tokens"] for row in rows])

    loader: Any = torch.utils.data.DataLoader(
        hugging_face(directory, work, length).with_format("numpy"),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        drop_last=True,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(SEED),
    )
    while True:
        yield from loader


def litdata(directory: Path, work: Path, length: int) -> Iterator[Any]:
    """Yield batches of litdata's StreamingDataset of the chunks that `tokmill export` writes."""
    import torch
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    def collate(rows: list[Any]) -> dict[str, Any]:
        return two_tensors(torch, rows)

    loader: Any = StreamingDataLoader(
        StreamingDataset(
            str(work / f"litdata-{length}" / "train"),
            item_loader=TokensLoader(block_size=length + 1),
            shuffle=True,
            seed=SEED,
            drop_last=True,
        ),
        batch_size=BATCH,
        num_workers=WORKERS,
        collate_fn=collate,
    )
    while True:
        yield from loader


LOADERS: dict[str, Callable[[Path, Path, int], Iterator[Any]]] = {
    "tokmill": tokmill,
    "tokmill, threads": tokmill_threads,
    "torch memmap": torch_memmap,
    "litdata": litdata,
    "grain, threads": grain_threads,
    "grain, processes": grain_processes,
    "datasets": datasets_iter,
    "datasets, torch": datasets_torch,
}


def joined(directory: Path, work: Path, length: int) -> Rows:
    """Return rows over all shards end to end, from the one file that `prepare` wrote."""
    manifest = json.loads((directory / "manifest.json").read_bytes())
    dtype = {"uint16": "<u2", "uint32": "<u4"}[manifest["dtype"]]
    return Rows(work / "joined.bin", dtype, length)


def hugging_face(directory: Path, work: Path, length: int) -> Any:
    """Return the rows as a dataset of `datasets`, mapped from its Arrow file."""
    from datasets import load_from_disk

    return load_from_disk(str(work / f"datasets-{length}"))


def two_tensors(torch: Any, rows: list[Any]) -> dict[str, Any]:
    """Return inputs and labels of rows of one token more, each with memory of its own."""
    tokens = np.stack(rows)
    return {
        "input_ids": torch.from_numpy(tokens[:, :-1].astype(np.int64)),
        "labels": torch.from_numpy(tokens[:, 1:].astype(np.int64)),
    }


def prepare(directory: Path, work: Path, length: int) -> None:
    """Write what peers read, if it is not there: one file, rows of Arrow, chunks of litdata."""
    import tokmill as library

    work.mkdir(parents=True, exist_ok=True)
    dataset = library.open(directory)
    if not (work / "joined.bin").exists():
        with (work / "joined.bin").open("wb") as file:
            for shard in dataset.manifest["shards"]:
                if shard["split"] == "train":
                    file.write((directory / f"{shard['name']}.bin").read_bytes())
    if not (work / f"litdata-{length}").exists():
        dataset.export("litdata", work / f"litdata-{length}", block_tokens=length + 1)
    if not (work / f"datasets-{length}").exists():
        import pyarrow as pa
        from datasets import Dataset

        rows = joined(directory, work, length)
        tokens = np.memmap(rows.path, rows.dtype, "r")
        starts = np.arange(len(rows)) * length
        flat = np.concatenate([tokens[start : start + length + 1] for start in starts])
        column = pa.FixedSizeListArray.from_arrays(pa.array(flat), length + 1)
        made = Dataset(pa.table({"tokens": column}))
        made.save_to_disk(str(work / f"datasets-{length}"))


def child(name: str, directory: Path, work: Path, length: int, seconds: float) -> None:
    """Print tokens, seconds and processor seconds of one loader as JSON."""
    batches = LOADERS[name](directory, work, length)
    for _ in range(WARM_UP):
        check(next(batches), length)
    n_tokens, start, cpu_s = 0, time.perf_counter(), cpu_seconds()
    while (passed := time.perf_counter() - start) < seconds:
        n_tokens += next(batches)["labels"].shape[0] * length
    print(json.dumps([n_tokens, passed, cpu_seconds() - cpu_s]), flush=True)


def check(batch: Any, length: int) -> None:
    """Check that a batch is what all loaders have to give."""
    inputs, labels = (np.asarray(batch[name]) for name in ("input_ids", "labels"))
    if inputs.shape != (BATCH, length) or inputs.dtype != np.int64:
        raise SystemExit(f"a batch of {inputs.dtype} {inputs.shape}")
    if not (inputs.flags.c_contiguous and labels.flags.c_contiguous):
        raise SystemExit("a batch with gaps, which a GPU cannot copy at once")
    if not np.array_equal(inputs[:, 1:], labels[:, :-1]):
        raise SystemExit("labels are not the next tokens")


def cpu_seconds() -> float:
    """Return the processor time of this process and its workers, which still run."""
    own = psutil.Process()
    times = [process.cpu_times() for process in [own, *own.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def measured(name: str, options: argparse.Namespace) -> list[float]:
    """Return tokens a second, and tokens a processor second, of a loader in a process."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.loader_speed", str(options.directory)]
    command += ["--work", str(options.work), "--length", str(options.length)]
    command += ["--seconds", str(options.seconds), "--child", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if not lines:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
    n_tokens, seconds, cpu_s = json.loads(lines[-1])
    return [n_tokens / seconds, n_tokens / cpu_s]


def main() -> None:
    """Print a table of all loaders: medians of rounds in which they run in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="a finished dataset of text")
    parser.add_argument("--work", type=Path, required=True, help="where the peers' files are")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.directory, options.work, options.length, options.seconds)
        return
    prepare(options.directory, options.work, options.length)
    found: dict[str, list[list[float]]] = {name: [] for name in LOADERS}
    for _ in range(options.rounds):
        for name, rounds in found.items():
            rounds.append(measured(name, options))
    rows = []
    for name, rounds in found.items():
        wall, cpu = (statistics.median(one) / 1e6 for one in zip(*rounds, strict=True))
        ratios = [
            statistics.median(
                ours[kind] / its[kind] for ours, its in zip(found["tokmill"], rounds, strict=True)
            )
            for kind in (0, 1)
        ]
        rows.append([name, *map(figure, (wall, ratios[0], cpu, ratios[1]))])
    head = (
        "rows of " + str(options.length),
        "M tokens/s",
        "tokmill is",
        "M tokens/CPU s",
        "tokmill is",
    )
    print(table(head, rows))


if __name__ == "__main__":
    main()
