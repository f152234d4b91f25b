"""Parts one after the other, in this process; inside a part, threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tokmill.recipes.table import Recipes
from tokmill.run.store_part import make_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part, RunSpec


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    reference: Callable[[], Engine],
    ready: Callable[[], object] = lambda: None,
) -> Iterator[PartRecord]:
    """Run parts in order and yield the record of each as it is committed.

    `ready`: see `run.part.run_part`.
    """
    recipes = Recipes(spec, reference)
    for part in parts:
        yield make_part(spec, part, partial(recipes.of, part), report, ready=ready)
