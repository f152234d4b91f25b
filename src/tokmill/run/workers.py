"""Parts on worker processes. A dead worker is an error at once; no worker outlives its parent."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tokmill.children import do_items, work_on
from tokmill.engines.engine import thread_variables
from tokmill.place import open_place
from tokmill.recipes.table import Recipes
from tokmill.run.part import run_part
from tokmill.run.plan import check_plan
from tokmill.run.stopped_rejects import keep_rejects_of_killed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tokmill.children import Do, Send
    from tokmill.dataset.counts import Increments
    from tokmill.recipes.spec import Part, RunSpec

_MODULE = __name__
"""Its `main` runs in a worker."""


def run_parts(
    spec: RunSpec, parts: Sequence[Part], report: Callable[[Increments], None], n_workers: int
) -> None:
    """Make parts on `n_workers` processes; `report` gets increments.

    Raises:
        WorkerError: a worker died.
        TokmillError: whatever a part raised; parts under way are stopped.
    """
    work_on(
        min(n_workers, len(parts)), _MODULE, spec, parts, _work, _is_recorded, report,
        variables=thread_variables(spec.n_threads), killed=partial(_keep_rejects, spec, parts),
    )  # fmt: skip


def _is_recorded(part: Part, _: None) -> None:
    """Do nothing: the record of a part that is done stands in the place."""


def _keep_rejects(spec: RunSpec, parts: Sequence[Part], killed: Collection[int]) -> None:
    """Keep what workers have rejected that something has stopped; `killed`: their process ids."""
    with closing(open_place(spec.config.output.dir)) as place:
        check = partial(check_plan, place, spec.plan_stamp)
        keep_rejects_of_killed(place, parts, killed, check)


def _work(part: Part) -> str:
    return f"part {part.index} ({part.slices[0].file.path})"


@contextmanager
def _begun(spec: RunSpec) -> Iterator[Do]:
    """Yield what makes a part in this process."""
    recipes = Recipes(spec)
    with closing(open_place(spec.config.output.dir)) as place:

        def make(part: Part, send: Send) -> None:
            run_part(spec, part, place, recipes.of(part), send)

        yield make


def main() -> None:
    """Make, in a worker process, the parts that the parent sends."""
    do_items(_begun)
