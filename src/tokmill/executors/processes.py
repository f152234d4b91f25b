"""Parts on worker processes. A dead worker is an error at once; no worker outlives its parent."""

from __future__ import annotations

import pickle
import selectors
import traceback
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from tokmill.children import Child, ChildEndedError, Parent
from tokmill.engines.engine import thread_variables
from tokmill.errors import TokmillError, WorkerError
from tokmill.place import open_place
from tokmill.recipes.spec import Increments
from tokmill.recipes.table import Recipes
from tokmill.run.part import run_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.part_record import PartRecord
    from tokmill.recipes.spec import Part, RunSpec

_MODULE = __name__
"""Its `main` runs in a worker."""


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
) -> Iterator[PartRecord]:
    """Run parts on `n_workers` processes; yield the records in the order in which they are done.

    Raises:
        WorkerError: a worker died.
        TokmillError: whatever a part raised; parts under way are stopped.
    """
    threads = thread_variables(spec.n_threads)
    with ExitStack() as stack:
        workers: list[Child] = []
        stack.callback(_kill, workers)
        for _ in range(min(n_workers, len(parts))):
            workers.append(Child(_MODULE, defaults=threads))  # noqa: PERF401  killed if one fails
        try:
            yield from _records(workers, spec, parts, report)
        except ChildEndedError as error:
            how = error.stopped or "process died (killed, or out of memory)"
            fewer = "" if error.stopped else ", with fewer --workers if memory is short"
            raise WorkerError(
                f"a worker {how}: parts that are done are kept; run the same command again to "
                f"continue{fewer}"
            ) from None


def _kill(workers: Sequence[Child]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.kill()


def _records(
    workers: Sequence[Child],
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
) -> Iterator[PartRecord]:
    """Send each worker one part after another, and yield the records that they answer.

    A worker gets its next part within a millisecond. Reports of progress are bounded: a worker
    whose pipe is full waits until the caller asks for the next record.
    """
    waiting = iter(parts)
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            worker.send(spec)
            _send(worker, next(waiting))
            selector.register(worker, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                worker = key.data
                answer = worker.receive()
                if isinstance(answer, Increments):
                    report(answer)
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                part = next(waiting, None)
                _send(worker, part)
                if part is None:
                    selector.unregister(worker)
                yield answer
    for worker in workers:
        worker.wait()


def _send(worker: Child, part: Part | None) -> None:
    worker.work = f"part {part.index} ({part.slices[0].file.path})" if part else "its end"
    worker.send(part)


def main() -> None:
    """Work, in a worker process, through the parts that the parent sends until it sends None."""
    parent = Parent()
    spec: RunSpec = parent.receive()
    recipes = Recipes(spec)
    with closing(open_place(spec.config.output.dir)) as place:
        while True:
            part: Part | None = parent.receive()
            if part is None:
                return
            try:
                parent.send(run_part(spec, part, place, recipes.of(part), parent.send))
            except BaseException as error:  # a panic of native code is no Exception
                parent.send(portable(error))


def portable(error: BaseException) -> BaseException:
    """Return an error as another process can read it; one that is a bug keeps its traceback."""
    if isinstance(error, TokmillError):
        return error
    trace = traceback.format_exc().rstrip()
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  what we have just written
    except Exception:  # whatever its own class raises; its text and traceback go on below
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in a worker process:\n{trace}")
    return error
