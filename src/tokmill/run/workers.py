"""How many worker processes a run gets, and how many threads each.

The threads of one process wait for its GIL and for its reader. Beyond some threads more processes
are faster, if there are parts for all of them and enough input to pay for their start.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tokmill.bill.measuring.machine import usable_cores, usable_memory
from tokmill.recipes.memory_bounds import BASE_BYTES, ENGINE_THREAD_BYTES
from tokmill.render.function import is_local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.recipes.spec import Part
    from tokmill.settings.schema import Config

MOST_THREADS = 6
"""Threads that one process keeps busy: for a MB of text a thread works for 7 ms (English) to 15 ms
(Chinese), 1.0 to 1.4 ms of them with the GIL held (gpt2, AMD EPYC)."""

MOST_THREADS_GZIP = 4
"""The same if the reader decompresses gzip, which takes 1.8 ms for a MB."""

MOST_THREADS_CHAT = 3
"""The same for chats: of 16 ms for a MB of Alpaca, qwen2.5, 5 are with the GIL held."""

LEAST_WORKER_BYTES = 1 << 30
"""Input that pays for one worker more: a process starts for 2 s, and encodes 0.7 GB a second."""

_NEARLY = 1.2
"""Fewer workers are taken if they are slower by less: more need memory, and each process has a
reader and a writer, which take a sixth of the processor time."""


def workers_and_threads(config: Config, parts: Sequence[Part]) -> tuple[int, int]:
    """Return (worker processes, threads in each).

    What the settings name holds, but there are no more workers than parts; with `threads` alone
    there is one. By default a worker has as many threads as it keeps busy.
    """
    run = config.run
    n_parts = 1 if "-" in config.input.all_paths else len(parts)  # a worker has no standard input
    n_cores = usable_cores()
    if run.workers or run.threads:
        workers = max(1, min(run.workers or 1, n_parts))
        return workers, run.threads or max(1, n_cores // workers)
    if is_local(config.render.renderer):
        n_parts = 1  # a worker cannot import it
    n_bytes = sum(piece.n_bytes for part in parts for piece in part.slices)
    n_parts = min(n_parts, max(1, n_bytes // LEAST_WORKER_BYTES))
    most = most_threads(config, parts)
    workers = default_workers(n_cores, n_parts, most, usable_memory())
    return workers, max(1, n_cores // workers)


def most_threads(config: Config, parts: Sequence[Part]) -> int:
    """Return the threads that one process keeps busy with these parts."""
    if config.sft is not None:
        return MOST_THREADS_CHAT
    pieces = [piece for part in parts for piece in part.slices]
    n_bytes = sum(piece.n_bytes for piece in pieces)
    n_gzip = sum(piece.n_bytes for piece in pieces if piece.file.compression == "gz")
    return MOST_THREADS_GZIP if 2 * n_gzip > n_bytes else MOST_THREADS


def default_workers(n_cores: int, n_parts: int, most_threads: int, memory_bytes: int) -> int:
    """Return the fewest workers with which equal parts take nearly the least time.

    One worker works on one part at a time. All workers, with half the engine cache that a thread
    may have, stay within three quarters of `memory_bytes`, or there is one.
    """

    def seconds(workers: int) -> float:
        return math.ceil(n_parts / workers) / min(n_cores // workers, most_threads)

    def fits(workers: int) -> bool:
        caches = ENGINE_THREAD_BYTES // 2 * (n_cores // workers)
        return workers * (BASE_BYTES + caches) <= memory_bytes * 3 // 4

    most = max(1, min(n_cores, n_parts))
    possible = [1, *filter(fits, range(2, most + 1))]
    least = min(map(seconds, possible))
    return next(workers for workers in possible if seconds(workers) <= least * _NEARLY)
