"""One part in a process of Ray, which reads the plan in the place of the dataset."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError, UsageError
from tokmill.executors.worker import portable
from tokmill.place import open_place
from tokmill.recipes.spec import Increments
from tokmill.recipes.table import Recipes
from tokmill.run.part import run_part
from tokmill.run.plan import read_plan
from tokmill.run.tasks import read_planned
from tokmill.timing import StageSeconds, add_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokmill.dataset.place import Place
    from tokmill.recipes.spec import RunSpec
    from tokmill.run.plan import Plan
    from tokmill.settings.schema import RunSettings

_LEAST_PARTS, _MOST_PARTS = 8, 10_000
_PROCESS_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Job:
    """What a task of Ray is told, besides the number of its part.

    `output`: the place of the dataset. `folder`: the directory in which the driver works, to which
    paths may be relative. `fingerprint`: of the plan that the driver has read or written.
    """

    output: str
    folder: str
    fingerprint: str
    run: RunSettings
    n_threads: int
    memory_bytes: int

    @classmethod
    def of(cls, spec: RunSpec) -> Job:
        """Return the job of a run whose plan stands in its place."""
        folder = str(Path.cwd())
        config = spec.config
        return cls(
            config.output.dir,
            folder,
            _fingerprint(open_place(config.output.dir)),
            config.run,
            spec.n_threads,
            spec.memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task answers. In `progress`, stages began so many seconds (negative) before now."""

    node: str
    progress: Increments


class _Process:
    """What this process keeps from one part of a run to the next."""

    job: Job | None = None
    place: Place
    plan: Plan
    recipes: Recipes


def _fingerprint(place: Place) -> str:
    return str((read_plan(place) or {}).get("fingerprint"))


def parts_per_process(spec: RunSpec) -> int:
    """Return after how many parts a process of Ray ends: 8, or small ones of 8 GiB of input.

    What libraries leak ends with it, but the next process starts and loads the engine for seconds.
    """
    return min(_MOST_PARTS, max(_LEAST_PARTS, _PROCESS_BYTES // spec.config.output.part_bytes))


def run_one(job: Job, index: int) -> Answer | BaseException:
    """Write one part; return how, or the error: Ray would wrap one that is raised.

    A KeyboardInterrupt is raised: Ray cancels tasks by it.
    """
    try:
        os.chdir(job.folder if Path(job.folder).is_dir() else "/")
        _begin(job)
        plan = _Process.plan
        part = plan.parts[index]
        reports: list[Increments] = []
        with engine_threads(job.n_threads):
            recipe = _Process.recipes.of(part)
            run_part(plan.spec, part, _Process.place, recipe, reports.append)
        return Answer(platform.node(), summed(reports, time.perf_counter()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of native code is no Exception
        return portable(error)


def _begin(job: Job) -> None:
    """Read the plan, once in a process, and check that it is the driver's."""
    if _Process.job == job:
        return
    place = open_place(job.output)
    with contextlib.suppress(AttributeError):
        _Process.place.close()
    try:
        plan = read_planned(place, job.run)
    except UsageError as error:
        raise StateError(f"node {platform.node()}: {error}") from None
    if _fingerprint(place) != job.fingerprint:
        raise StateError(
            f"node {platform.node()}: {job.output} holds the plan of another run than on the "
            "machine of the driver: mount the same directory under this path on every node"
        )
    place.make_folders()
    spec = replace(plan.spec, n_threads=job.n_threads, memory_bytes=job.memory_bytes)
    _Process.place, _Process.plan = place, replace(plan, spec=spec)
    _Process.recipes, _Process.job = Recipes(spec), job


def summed(reports: Iterable[Increments], now_s: float) -> Increments:
    """Return the sum of what a part reported; stages began before `now_s`."""
    total = Increments()
    stage_s: dict[str, StageSeconds] = {}
    for increments in reports:
        add_seconds(stage_s, increments.stage_s)
        total = Increments(
            total.input_bytes + increments.input_bytes,
            total.text_bytes + increments.text_bytes,
            total.records + increments.records,
            total.documents + increments.documents,
            total.tokens + increments.tokens,
            Counter(total.drops) + Counter(increments.drops),
            Counter(total.rejects) + Counter(increments.rejects),
            total.first_reject or increments.first_reject,
        )
    shifted = {
        name: StageSeconds(stage.wall_s, stage.cpu_s, stage.since_s - now_s)
        for name, stage in stage_s.items()
    }
    return replace(total, stage_s=shifted)
