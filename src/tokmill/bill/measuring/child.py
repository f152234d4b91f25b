"""A small real trainer, measured from outside: `python -m tokmill.bill.measuring.child`.

Reads a `Run` as one line of JSON, opens the dataset and reads its batches once. At each mark it
writes a line and waits for an answer, so that its memory is measured while it does nothing. The
marks: started (nothing is loaded), loaded, half (of the batches are read), read (the last batch
and the workers still exist), ended.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.measuring.strategies import Files, Samples
from tokmill.bill.measuring.strategies import batches as plain_batches

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKS = ("started", "loaded", "half", "read", "ended")
MODULE = "tokmill.bill.measuring.child"


@dataclass(frozen=True, slots=True)
class Run:
    """The work of the measured trainer; `paths` are `.bin` files, () if it only starts.

    `most_tokens`: tokens to read at most, spread over the dataset; 0: all.
    """

    paths: tuple[str, ...]
    dtype: str
    masked: bool
    loading: str
    micro_batch: int
    sequence: int
    workers: int
    start_method: str
    prefetch: int
    torch: bool
    most_tokens: int = 0

    def as_line(self) -> str:
        """Return the run as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Run:
        """Return the run of a line that `as_line` wrote."""
        values = json.loads(line)
        return cls(**{**values, "paths": tuple(values["paths"])})


def main() -> None:
    """Run the trainer that a line on standard input describes."""
    run = Run.from_line(sys.stdin.readline())
    if run.torch:
        import torch.utils.data

        torch.set_num_threads(1)
    _mark("started")
    if run.paths:
        _train(run)
    _mark("ended")


def _mark(name: str) -> None:
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()
    if not sys.stdin.readline():  # the measuring process has ended
        raise SystemExit(1)


def _train(run: Run) -> None:
    files = Files(tuple(map(Path, run.paths)), run.dtype, run.masked)
    samples = Samples.of(files, run.loading, run.sequence, run.most_tokens)
    _mark("loaded")
    n_batches = len(samples) // run.micro_batch
    for number, batch in enumerate(_batches(samples, run), 1):
        for values in batch:
            values.sum()
        if number == n_batches // 2:
            _mark("half")
        if number == n_batches:
            _mark("read")


def _batches(samples: Samples, run: Run) -> Iterable[Any]:
    if not run.torch:
        return plain_batches(samples, run.micro_batch, run.workers, run.start_method, run.prefetch)
    from torch.utils.data import DataLoader

    loader: Iterable[Any] = DataLoader(
        samples,
        batch_size=run.micro_batch,
        drop_last=True,
        num_workers=run.workers,
        multiprocessing_context=run.start_method if run.workers else None,
        prefetch_factor=run.prefetch if run.workers else None,
    )
    return loader


if __name__ == "__main__":
    main()
