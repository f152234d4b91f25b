"""Parts on spawned processes. A dead worker is an error at once; none outlives its parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_connections
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.errors import WorkerError
from tokmill.pipeline.part import run_part
from tokmill.pipeline.roads import make_road
from tokmill.storage import TEMPORARY_SUFFIX, storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue

    from tokmill.pipeline.roads import Road
    from tokmill.pipeline.spec import Part, Progress, RunSpec
    from tokmill.shards.record import PartRecord

_POLL_S = 0.2


class _Worker:
    """What a worker process keeps from one part to the next."""

    spec: RunSpec
    reports: SimpleQueue[Progress]
    road: Road | None = None


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
    with _spec_file(spec) as path:
        yield from _run_on_pool(path, parts, report, n_workers)


@contextlib.contextmanager
def _spec_file(spec: RunSpec) -> Iterator[Path]:
    """Keep the spec in a temporary file of the output directory while the workers need it.

    Handed to a process at its start, its megabytes go through a pipe of 64 KiB whose reading end
    the parent holds too: it would wait forever for a worker that died before it had read them.
    """
    directory = spec.config.output.dir
    with contextlib.ExitStack() as stack:
        with storage_errors(directory):
            file = stack.enter_context(
                tempfile.NamedTemporaryFile(dir=directory, prefix=".spec.", suffix=TEMPORARY_SUFFIX)
            )
            file.write(pickle.dumps(spec))
            file.flush()
        yield Path(file.name)


def _run_on_pool(
    spec_file: Path, parts: Sequence[Part], report: Callable[[Progress], None], n_workers: int
) -> Iterator[PartRecord]:
    context = multiprocessing.get_context("spawn")
    reports: SimpleQueue[Progress] = context.SimpleQueue()
    pool = ProcessPoolExecutor(n_workers, context, _start, (spec_file, reports))
    waiting = iter(parts)
    running: set[Future[PartRecord]] = set()
    finished = False
    try:
        while True:
            for part in waiting:
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


def _drain(reports: SimpleQueue[Progress], report: Callable[[Progress], None]) -> None:
    while not reports.empty():
        report(reports.get())


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()


def _start(spec_file: Path, reports: SimpleQueue[Progress]) -> None:
    """Prepare a worker: the parent alone answers Ctrl-C, and the worker dies with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Worker.spec = pickle.loads(spec_file.read_bytes())  # noqa: S301  the parent wrote it
    _Worker.reports = reports
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_connections([parent.sentinel])
        os._exit(1)


def _road() -> Road:
    if _Worker.road is None:
        _Worker.road = make_road(_Worker.spec)
    return _Worker.road


def _run(part: Part) -> PartRecord:
    return run_part(_Worker.spec, part, _road, _Worker.reports.put)
