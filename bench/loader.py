"""Times tokmill's Loader, nanoGPT's get_batch and OLMo-core's loader on the same file, in turn.

    python -m bench.loader                 # 100M tokens, batches of 16 and 64, one core
    python -m bench.loader --rounds 9 --tokens 200000000

Every round runs each contender once, in this process, on one core; the file is in the page cache.
Seconds are CPU seconds of the process, so that other processes on the machine count little. A ratio
is tokmill's tokens per second to a peer's of the same round. nanoGPT draws random offsets,
with repetitions; OLMo-core and tokmill read each window of an epoch once, shuffled. nanoGPT and
tokmill make inputs and labels, OLMo-core makes inputs, and its trainer makes the labels later.
"""

from __future__ import annotations

import logging
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from bench.loader_data import write_dataset
from tokmill.loader import Loader, tensors, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Batches = Callable[[], Iterator[Any]]

CASES = ((16, 1024), (64, 1024), (16, 4096), (64, 4096))


@dataclass(frozen=True, slots=True)
class Case:
    """A dataset, and the batches that are made of it."""

    directory: Path
    batch: int
    length: int

    @property
    def body(self) -> Path:
        """Return the file of token ids."""
        return next(iter(self.directory.glob("*.bin")))


def tokmill_batches(case: Case) -> Iterator[Any]:
    """Yield batches of our Loader as tensors."""
    source = windows(case.directory, case.length, shift=True)
    for batch in Loader(source, case.batch, seed=1):
        yield tensors(batch)


def nanogpt_batches(case: Case) -> Iterator[Any]:
    """Yield batches as `get_batch` of nanoGPT's train.py makes them on a CPU."""
    import torch

    size, rows = case.length, case.batch
    while True:
        data = np.memmap(case.body, dtype=np.uint16, mode="r")  # mapped anew for each batch
        ix = torch.randint(len(data) - size, (rows,))
        x = torch.stack([torch.from_numpy(data[i : i + size].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + size].astype(np.int64)) for i in ix])
        yield x, y


def olmo_batches(case: Case, threads: int | None) -> Iterator[Any]:
    """Yield batches of OLMo-core's data loader; None: as many threads as it chooses."""
    from olmo_core.data import NumpyDataLoaderConfig, NumpyFSLDatasetConfig, TokenizerConfig

    tokenizer = TokenizerConfig(vocab_size=50_257, eos_token_id=2, pad_token_id=2)
    work = str(case.directory / "olmo")
    dataset = NumpyFSLDatasetConfig(
        paths=[str(case.body)], sequence_length=case.length, tokenizer=tokenizer, work_dir=work
    ).build()
    loader = NumpyDataLoaderConfig(
        global_batch_size=case.batch * case.length, seed=1, num_threads=threads, work_dir=work,
        target_device_type="cpu",
    ).build(dataset)  # fmt: skip
    loader.reshuffle(epoch=1)
    yield from loader


def peers(case: Case) -> dict[str, Batches]:
    """Return the contenders by name; tokmill first."""
    return {
        "tokmill": lambda: tokmill_batches(case),
        "nanoGPT get_batch": lambda: nanogpt_batches(case),
        "OLMo-core, no threads": lambda: olmo_batches(case, 0),
        "OLMo-core, its default": lambda: olmo_batches(case, None),
    }


def tokens_per_s(batches: Iterator[Any], case: Case, tokens: int) -> float:
    """Return tokens per CPU second over about `tokens` tokens, after two batches."""
    for _ in islice(batches, 2):
        pass
    count = max(2, tokens // (case.batch * case.length))
    start = time.process_time()
    found = sum(1 for _ in islice(batches, count))
    taken = time.process_time() - start
    return found * case.batch * case.length / taken


def measure(case: Case, rounds: int, tokens: int) -> None:
    """Print the speeds of a case, and the ratios."""
    speeds: dict[str, list[float]] = {name: [] for name in peers(case)}
    for number in range(rounds):
        for name, batches in sorted(peers(case).items(), reverse=bool(number % 2)):
            speeds[name].append(tokens_per_s(batches(), case, tokens))
    ours = speeds["tokmill"]
    for name, found in speeds.items():
        ratios = [a / b for a, b in zip(ours, found, strict=True)]
        spread = f"{min(ratios):.2f} / {statistics.median(ratios):.2f} / {max(ratios):.2f}"
        print(
            f"| {case.batch} x {case.length:,} | {name} | {statistics.median(found) / 1e6:,.0f} | "
            f"{spread} |"
        )


@click.command()
@click.option("--tokens", default=100_000_000, help="Tokens of the file.")
@click.option("--per-run", default=30_000_000, help="Tokens that each run reads.")
@click.option("--rounds", default=7)
def main(tokens: int, per_run: int, rounds: int) -> None:
    """Measure every case."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    print(f"{platform.processor() or platform.machine()}, one core, {date.today()}")
    print("\n| batch | loader | M tokens per CPU second | tokmill to it: min / median / max |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_dataset(directory, shards=1, shard_tokens=tokens, document_tokens=1_000, sparse=False)
        for batch, length in CASES:
            measure(Case(directory, batch, length), rounds, per_run)


if __name__ == "__main__":
    main()
