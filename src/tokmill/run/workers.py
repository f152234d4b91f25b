"""Parts on worker processes. A dead worker is an error at once; no worker outlives its parent."""

from __future__ import annotations

import pickle
import traceback
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from tokmill.children import Parent, work_on
from tokmill.dataset.counts import Increments
from tokmill.engines.engine import thread_variables
from tokmill.errors import TokmillError
from tokmill.place import open_place
from tokmill.recipes.table import Recipes
from tokmill.run.part import run_part
from tokmill.run.plan import check_plan
from tokmill.run.stopped_rejects import keep_rejects_of_killed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tokmill.recipes.spec import Part, RunSpec

_MODULE = __name__
"""Its `main` runs in a worker."""


def run_parts(
    spec: RunSpec, parts: Sequence[Part], report: Callable[[Increments], None], n_workers: int
) -> None:
    """Make parts on `n_workers` processes.

    Raises:
        WorkerError: a worker died.
        TokmillError: whatever a part raised; parts under way are stopped.
    """

    def answered(answer: object) -> bool:
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Increments):
            report(answer)
        return answer is None

    work_on(
        min(n_workers, len(parts)), _MODULE, spec, parts, _work, answered,
        variables=thread_variables(spec.n_threads), killed=partial(_keep_rejects, spec, parts),
    )  # fmt: skip


def _keep_rejects(spec: RunSpec, parts: Sequence[Part], killed: Collection[int]) -> None:
    """Keep what workers have rejected that something has stopped; `killed`: their process ids."""
    with closing(open_place(spec.config.output.dir)) as place:
        check = partial(check_plan, place, spec.plan_stamp)
        keep_rejects_of_killed(place, parts, killed, check)


def _work(part: Part) -> str:
    return f"part {part.index} ({part.slices[0].file.path})"


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
                run_part(spec, part, place, recipes.of(part), parent.send)
                parent.send(None)
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
