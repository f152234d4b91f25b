"""Parts one after the other, in this process; inside a part, threads."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokmill.pipeline.part import run_part
from tokmill.pipeline.roads import make_road

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.encode.engine import Engine
    from tokmill.pipeline.roads import Road
    from tokmill.pipeline.spec import Part, Progress, RunSpec
    from tokmill.shards.record import PartRecord


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Progress], None],
    reference: Callable[[], Engine],
) -> Iterator[PartRecord]:
    """Run parts in order; give each one's record as it is committed."""

    @cache
    def road() -> Road:
        return make_road(spec, reference)

    for part in parts:
        yield run_part(spec, part, road, report)
