"""Strategies of loading a dataset, as people write them in training scripts.

`np.memmap` or `np.fromfile` of each shard, `np.concatenate` of all shards, a cast to int64 for the
embedding, `.tolist()`, or each worker opens the files with its first sample.
"""

from __future__ import annotations

import multiprocessing
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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
"""Label of a token that the loss leaves out."""


@dataclass(frozen=True, slots=True)
class Body:
    """One shard in memory: ids, and its mask, its labels, or neither."""

    ids: Any
    mask: Any = None
    labels: Any = None


@dataclass(frozen=True, slots=True)
class Files:
    """The shards of a dataset: paths of `.bin`, their dtype, and whether masks are loaded."""

    paths: tuple[Path, ...]
    dtype: str
    masked: bool


def _mapped(path: Path, dtype: Any) -> npt.NDArray[Any]:
    return np.memmap(path, dtype=dtype, mode="r")


def _listed(path: Path, dtype: Any) -> list[int]:
    values: list[int] = np.fromfile(path, dtype).tolist()
    return values


def _mask_of(path: Path) -> Path:
    return path.with_suffix(".mask")


def _each(open_file: Callable[[Path, Any], Any], files: Files) -> list[Body]:
    return [
        Body(
            open_file(path, files.dtype),
            open_file(_mask_of(path), np.uint8) if files.masked else None,
        )
        for path in files.paths
    ]


def _concatenated(files: Files) -> list[Body]:
    """Read and join all shards; while they are joined, each array exists twice."""
    ids = np.concatenate([np.fromfile(path, files.dtype) for path in files.paths])
    if not files.masked:
        return [Body(ids)]
    masks = [np.fromfile(_mask_of(path), np.uint8) for path in files.paths]
    return [Body(ids, np.concatenate(masks))]


def _int64(files: Files) -> list[Body]:
    return [_cast(files, path) for path in files.paths]


def _cast(files: Files, path: Path) -> Body:
    """Read a shard as int64, and its mask as int64 labels."""
    ids = np.fromfile(path, files.dtype).astype(np.int64)
    if not files.masked:
        return Body(ids)
    return Body(ids, labels=np.where(np.fromfile(_mask_of(path), np.uint8), ids, IGNORED))


OPENERS: dict[str, Callable[[Files], list[Body]]] = {
    "memmap": partial(_each, _mapped),
    "lazy": partial(_each, _mapped),
    "read": partial(_each, np.fromfile),
    "concatenate": _concatenated,
    "int64": _int64,
    "lists": partial(_each, _listed),
    "copies": partial(_each, np.fromfile),
}
"""Functions that open the shards of a dataset, by strategy."""


@dataclass(slots=True)
class Samples:
    """Samples by number: ids and labels of `sequence` tokens, (sequence,) int64.

    A shard is cut into blocks of `sequence` tokens; tokens after the last full block are left out.
    `ends`: number of blocks up to the end of each shard; every `step`-th block is a sample.
    """

    files: Files
    loading: str
    sequence: int
    ends: list[int]
    step: int
    _bodies: list[Body] = field(default_factory=list)

    @classmethod
    def of(cls, files: Files, loading: str, sequence: int, most_tokens: int) -> Samples:
        """Return the samples of a dataset: about `most_tokens`, spread evenly, or all (0).

        The strategies of LAZY_LOADING open the files with the first sample, the others now.
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
"""Seconds to wait for a batch before the worker is checked."""


def batches(
    samples: Samples, micro_batch: int, workers: int, start_method: str, prefetch: int
) -> Iterator[Batch]:
    """Yield ids and labels, (micro_batch, sequence) int64 each; an incomplete batch is left out.

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
        if not worker.is_alive():  # a worker lives until all batches are read
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
