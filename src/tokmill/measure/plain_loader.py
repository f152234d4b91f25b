"""A stand-in for torch's DataLoader, with NumPy and the standard library.

Batches come in order; worker i makes batches i, i + workers, …, holds `prefetch` ready, and stays
until all are read.
"""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

    import numpy.typing as npt

    from tokmill.measure.strategies import Samples

    Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]

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
