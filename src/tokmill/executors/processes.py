"""Parts on spawned processes. A dead worker is an error at once; none outlives its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import resource_tracker
from multiprocessing.connection import wait as wait_for_connections
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any, BinaryIO

from tokmill.errors import WorkerError
from tokmill.interrupts import children_spared
from tokmill.recipes.table import make_recipe
from tokmill.run.part import run_part
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue

    from tokmill.dataset.record import PartRecord
    from tokmill.recipes.spec import Part, Progress, RunSpec
    from tokmill.recipes.table import Recipe

_POLL_S = 0.2


class _Worker:
    """What a worker process keeps from one part to the next."""

    spec: RunSpec
    reports: SimpleQueue[Progress]
    recipe: Recipe | None = None


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Progress], None],
    n_workers: int,
) -> Iterator[PartRecord]:
    """Run parts on `n_workers` processes; give the records in the order in which they are done.

    Raises:
        WorkerError: a worker died.
        TokmillError: whatever a part raised; parts under way are stopped.
    """
    with storage_errors(tempfile.gettempdir()):
        handed = Handed.of(pickle.dumps(spec))
    with closing(handed):
        yield from _run_on_pool(handed, parts, report, n_workers)


class Handed:
    """Bytes that spawned processes read through the descriptor of a file that has no name.

    Given to a process at its start, megabytes go through a pipe of 64 KiB whose reading end the
    parent holds too: it would wait forever for a worker that died before it had read them. And what
    has no name cannot be put there by others: workers unpickle it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    @classmethod
    def of(cls, data: bytes) -> Handed:
        """Write bytes to such a file; raises `OSError`."""
        handed = cls(tempfile.TemporaryFile())  # noqa: SIM115  `close` closes it
        handed._file.write(data)
        handed._file.flush()
        return handed

    def __reduce__(self) -> tuple[Callable[[Any], Handed], tuple[Any]]:
        """Travel to a process that is being spawned, as a descriptor."""
        return _from_descriptor, (DupFd(self._file.fileno()),)

    def read(self) -> bytes:
        """Return all bytes; the place in the file, common to all processes, is not used."""
        size, chunks, n_read = os.fstat(self._file.fileno()).st_size, [], 0
        while n_read < size:
            chunks.append(os.pread(self._file.fileno(), size - n_read, n_read))
            n_read += len(chunks[-1])
        return b"".join(chunks)

    def close(self) -> None:
        """Close the file here, which removes it when all have."""
        self._file.close()


def _from_descriptor(descriptor: Any) -> Handed:
    return Handed(os.fdopen(descriptor.detach(), "rb"))


def _run_on_pool(
    handed: Handed, parts: Sequence[Part], report: Callable[[Progress], None], n_workers: int
) -> Iterator[PartRecord]:
    context = multiprocessing.get_context("spawn")
    _start_tracker()
    reports: SimpleQueue[Progress] = context.SimpleQueue()
    pool = ProcessPoolExecutor(n_workers, context, _start, (handed, reports))
    waiting = iter(parts)
    running: set[Future[PartRecord]] = set()
    finished = False
    try:
        while True:
            for part in waiting:
                with children_spared():
                    running.add(pool.submit(_run, part))
                if len(running) > n_workers:
                    break
            if not running:
                break
            done, running = wait(running, _POLL_S, FIRST_COMPLETED)
            _drain(reports, report)
            for future in done:
                yield future.result()
        _drain(reports, report)
        finished = True
    except BrokenProcessPool:
        raise WorkerError(
            "a worker process died (killed, or out of memory): what is committed is kept; "
            "run the same command again to continue, with fewer --workers if memory is short"
        ) from None
    finally:
        if not finished:
            _kill(pool)
        pool.shutdown(cancel_futures=True)


def _start_tracker() -> None:
    """Start the process that removes semaphores after us; after a second Ctrl-C without a warning.

    It takes its filters of warnings from the variable, before there is a worker to inherit it.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _drain(reports: SimpleQueue[Progress], report: Callable[[Progress], None]) -> None:
    while not reports.empty():
        report(reports.get())


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()


def _start(handed: Handed, reports: SimpleQueue[Progress]) -> None:
    """Prepare a worker: the parent alone answers Ctrl-C, and the worker dies with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Worker.spec = pickle.loads(handed.read())  # noqa: S301  see `Handed`
    handed.close()
    _Worker.reports = reports
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_connections([parent.sentinel])
        os._exit(1)


def _recipe() -> Recipe:
    if _Worker.recipe is None:
        _Worker.recipe = make_recipe(_Worker.spec)
    return _Worker.recipe


def _run(part: Part) -> PartRecord:
    return run_part(_Worker.spec, part, _recipe, _Worker.reports.put)
