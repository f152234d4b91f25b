"""What the tests of this room share: one part of a plan, run in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tokmill.pipeline.part import run_part
from tokmill.pipeline.plan import Plan
from tokmill.pipeline.road import PretrainRoad
from tokmill.pipeline.spec import Part
from tokmill.shards.record import PartRecord


@dataclasses.dataclass(frozen=True)
class PartRun:
    """A part's record, and what was reported on the way."""

    record: PartRecord
    heard: list[Any]


@pytest.fixture(scope="session")
def run_alone() -> Callable[..., PartRun]:
    """Run one part; a `report` that raises stops it."""

    def run(
        plan: Plan, part: Part | None = None, report: Callable[[Any], None] | None = None
    ) -> PartRun:
        heard: list[Any] = []
        record = run_part(
            plan.spec,
            part or plan.parts[0],
            lambda: PretrainRoad(plan.spec),
            report or heard.append,
        )
        return PartRun(record, heard)

    return run
