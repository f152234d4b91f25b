"""How trainers get a dataset into memory: one class of samples, opened in one of many ways.

Each way is what people write: `np.memmap` or `np.fromfile` of every shard, `np.concatenate` of all,
a cast to int64 for the embedding, `.tolist()`, or opening only where the samples are needed.
"""

from __future__ import annotations

import multiprocessing
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from queue import Empty
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import WorkerError
from tokmill.settings.training import LAZY_LOADING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event
    from pathlib import Path

    import numpy.typing as npt

    Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


IGNORED = -100
"""The label of a token that does not count in the loss."""


@dataclass(frozen=True, slots=True)
class Body:
    """One shard in memory: ids, and what says which of them count; labels where they are ready."""

    ids: Any
    mask: Any = None
    labels: Any = None


@dataclass(frozen=True, slots=True)
class Files:
    """The shards of a dataset as they lie: paths of `.bin`, dtype, with their masks or not."""

    paths: tuple[Path, ...]
    dtype: str
    masked: bool

    def _each(self, opened: Callable[[Path, Any], Any]) -> list[Body]:
        return [
            Body(opened(path, self.dtype), self._mask(path, opened) if self.masked else None)
            for path in self.paths
        ]

    def _mask(self, path: Path, opened: Callable[[Path, Any], Any]) -> Any:
        return opened(path.with_suffix(".mask"), np.uint8)


def memmap(files: Files) -> list[Body]:
    """Map every shard: no memory of its own, page cache as it is read."""
    return files._each(_mapped)


def read(files: Files) -> list[Body]:
    """Read every shard."""
    return files._each(np.fromfile)


def concatenate(files: Files) -> list[Body]:
    """Read every shard and join them: twice the memory while joining."""
    ids = np.concatenate([np.fromfile(path, files.dtype) for path in files.paths])
    if not files.masked:
        return [Body(ids)]
    mask = np.concatenate([files._mask(path, np.fromfile) for path in files.paths])
    return [Body(ids, mask)]


def int64(files: Files) -> list[Body]:
    """Read every shard as int64; of masks, labels as int64."""
    return [_cast(files, path) for path in files.paths]


def lists(files: Files) -> list[Body]:
    """Read every shard as a list of Python's integers."""
    return files._each(_listed)


OPENERS: dict[str, Callable[[Files], list[Body]]] = {
    "memmap": memmap,
    "lazy": memmap,
    "read": read,
    "concatenate": concatenate,
    "int64": int64,
    "lists": lists,
    "copies": read,
}


def _mapped(path: Path, dtype: Any) -> npt.NDArray[Any]:
    return np.memmap(path, dtype=dtype, mode="r")


def _listed(path: Path, dtype: Any) -> list[int]:
    values: list[int] = np.fromfile(path, dtype).tolist()
    return values


def _cast(files: Files, path: Path) -> Body:
    ids = np.fromfile(path, files.dtype).astype(np.int64)
    if not files.masked:
        return Body(ids)
    return Body(ids, labels=np.where(files._mask(path, np.fromfile), ids, IGNORED))


@dataclass(slots=True)
class Samples:
    """Blocks of `sequence` tokens of each shard, by number: ids and labels, (sequence,) int64.

    The last block of a shard that is not full is left out. `ends` counts the blocks up to the end
    of each shard; every `step`-th of them is a sample.
    """

    files: Files
    loading: str
    sequence: int
    ends: list[int]
    step: int
    _bodies: list[Body] = field(default_factory=list)

    @classmethod
    def of(cls, files: Files, loading: str, sequence: int, most_tokens: int) -> Samples:
        """Open a dataset, about `most_tokens` of which are to be read, or all (0), spread evenly.

        What is opened lazily opens with its first sample.
        """
        item_bytes = np.dtype(files.dtype).itemsize
        lengths = [path.stat().st_size // item_bytes for path in files.paths]
        if loading == "concatenate":
            lengths = [sum(lengths)]
        ends = list(accumulate(length // sequence for length in lengths))
        step = max(1, ends[-1] * sequence // most_tokens) if most_tokens else 1
        samples = cls(files, loading, sequence, ends, step)
        if loading not in LAZY_LOADING:
            samples.open()
        return samples

    def open(self) -> None:
        """Open the files in this process."""
        self._bodies = OPENERS[self.loading](self.files)

    def __len__(self) -> int:
        return self.ends[-1] // self.step

    def __getitem__(self, i: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        if not self._bodies:
            self.open()
        block = i * self.step
        shard = bisect_right(self.ends, block)
        start = (block - (self.ends[shard - 1] if shard else 0)) * self.sequence
        body, span = self._bodies[shard], slice(start, start + self.sequence)
        ids = np.array(body.ids[span], dtype=np.int64)
        if body.labels is not None:
            return ids, body.labels[span]
        if body.mask is None:
            return ids, ids
        return ids, np.where(np.asarray(body.mask[span]), ids, IGNORED)


LOOK_S = 1.0
"""So often is looked whether a worker that gives nothing is alive."""


def batches(
    samples: Samples, micro_batch: int, workers: int, start_method: str, prefetch: int
) -> Iterator[Batch]:
    """Yield ids and labels, (micro_batch, sequence) int64 each; the last few samples are left out.

    Raises:
        WorkerError: a worker died.
    """
    n_batches = len(samples) // micro_batch
    if not workers:
        yield from (_batch(samples, i, micro_batch) for i in range(n_batches))
        return
    context: Any = multiprocessing.get_context(start_method)
    queues: list[Queue[Batch]] = [context.Queue(prefetch) for _ in range(workers)]
    is_read = context.Event()
    started = []
    for first, queue in enumerate(queues):
        numbers = range(first, n_batches, workers)
        worker = context.Process(
            target=_make, args=(samples, numbers, micro_batch, queue, is_read), daemon=True
        )
        worker.start()
        started.append(worker)
    for i in range(n_batches):
        yield _next(queues[i % workers], started[i % workers])
    is_read.set()
    for worker in started:
        worker.join()


def _next(queue: Queue[Batch], worker: BaseProcess) -> Batch:
    while True:
        with suppress(Empty):
            return queue.get(timeout=LOOK_S)
        if not worker.is_alive():  # it stays until all batches are read
            raise WorkerError(f"a loader worker ended with code {worker.exitcode}")


def _make(
    samples: Samples, numbers: range, micro_batch: int, queue: Queue[Batch], is_read: Event
) -> None:
    for i in numbers:
        queue.put(_batch(samples, i, micro_batch))
    is_read.wait()


def _batch(samples: Samples, number: int, micro_batch: int) -> Batch:
    chosen = [samples[i] for i in range(number * micro_batch, (number + 1) * micro_batch)]
    ids, labels = zip(*chosen, strict=True)
    return np.stack(ids), np.stack(labels)
