"""Parts one after the other, in this process; inside a part, threads."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tokmill.place import open_place
from tokmill.recipes.table import Recipes
from tokmill.run.part import run_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.part_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part, RunSpec


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    reference: Callable[[], Engine],
) -> Iterator[PartRecord]:
    """Run parts in order and yield the record of each as it is committed."""
    recipes = Recipes(spec, reference)
    with closing(open_place(spec.config.output.dir)) as place:
        for part in parts:
            yield run_part(spec, part, place, recipes.of(part), report)
