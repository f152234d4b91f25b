"""One part in a process of Ray: the node proves itself, the run is fetched, the part is written."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError
from tokmill.executors.worker import portable
from tokmill.lock import is_locked, parts_locked
from tokmill.recipes.spec import Increments, Part, RunSpec
from tokmill.recipes.table import Recipes
from tokmill.run.node_proof import NodeProof, check_input, check_node
from tokmill.run.probes import has_file
from tokmill.run.store_part import make_part, part_staging
from tokmill.stores.urls import is_store
from tokmill.timing import StageSeconds, add_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tokmill.dataset.commit_record import PartRecord

_LOCK_S = 120.0
"""How long another process may hold the part: one of a driver that was killed, or of a node that
was cut off, ends within a minute or two."""

_LEAST_PARTS, _MOST_PARTS = 8, 10_000
_PROCESS_BYTES = 8 << 30

_LOOK_S = 1.0
_LOOK_IN_STORE_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task answers. In `progress`, stages began so many seconds (negative) before now."""

    record: PartRecord
    progress: list[Increments]


class _Process:
    """What this process keeps from one part of a run to the next."""

    nonce = ""
    spec: RunSpec
    parts: list[Part]
    recipes: Recipes


def parts_per_process(spec: RunSpec) -> int:
    """Return after how many parts a process of Ray ends: 8, or small ones of 8 GiB of input.

    What libraries leak ends with it, but the next process starts and loads the engine for seconds.
    """
    return min(_MOST_PARTS, max(_LEAST_PARTS, _PROCESS_BYTES // spec.config.output.part_bytes))


def run_one(
    proof: dict[str, Any], fetch: Callable[[], tuple[RunSpec, list[Part]]], index: int
) -> Answer | BaseException:
    """Write one part; return its record, or the error: Ray would wrap one that is raised.

    `proof`: the fields of a `NodeProof`. `fetch` returns the run and its parts; it is called once
    in a process, after this node has proven itself. A KeyboardInterrupt is raised: Ray cancels
    tasks by it.
    """
    try:
        wanted = NodeProof(**proof)
        _begin(wanted, fetch)
        spec, part = _Process.spec, _Process.parts[index]
        check_input(wanted.for_parts([part]))
        heard: list[Increments] = []
        with (
            contextlib.chdir(proof["working_directory"] or "."),
            engine_threads(spec.n_threads),
            _part_locked(spec, part),
        ):
            stopped = _Stopped(spec.config.output.dir, proof["probe"])
            stopped.check()

            def report(progress: Increments) -> None:
                heard.append(progress)
                stopped.check()

            record = make_part(spec, part, partial(_Process.recipes.of, part), report)
        return Answer(record, summed(heard, time.perf_counter()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of native code is no Exception
        return portable(error)


def _begin(proof: NodeProof, fetch: Callable[[], tuple[RunSpec, list[Part]]]) -> None:
    """Check this node and fetch the run, once in a process."""
    if _Process.nonce == proof.nonce:
        return
    check_node(proof)  # before the run is read: another tokmill may have other classes
    spec, parts = fetch()
    _Process.spec, _Process.parts, _Process.recipes = spec, parts, Recipes(spec)
    _Process.nonce = proof.nonce


class _Stopped:
    """Looks whether the driver goes on: it removes the probe when it ends or gives up."""

    def __init__(self, place: str, probe: str) -> None:
        self._place, self._probe = place, probe
        self._looked_s = -math.inf
        self._pause_s = _LOOK_IN_STORE_S if is_store(place) else _LOOK_S

    def check(self) -> None:
        """Raise `StateError` if the probe is gone; looks once in some seconds."""
        now = time.monotonic()
        if now - self._looked_s < self._pause_s:
            return
        self._looked_s = now
        if not has_file(self._place, self._probe):
            raise StateError("the run was stopped")


@contextlib.contextmanager
def _part_locked(spec: RunSpec, part: Part) -> Iterator[None]:
    """Take the lock of a part; wait for an attempt that is about to end.

    For a part that goes to a store, `make_part` takes it: that of its directory on this machine.
    """
    deadline = time.monotonic() + _LOCK_S
    directory = Path(spec.config.output.dir)
    if is_store(spec.config.output.dir):
        while is_locked(part_staging(spec, part)) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        yield
        return
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(parts_locked(directory, [part.index]))
                break
            except StateError:
                if time.monotonic() >= deadline:
                    raise
        yield


def summed(heard: Iterable[Increments], now_s: float) -> list[Increments]:
    """Return the sum of what was resumed and of what is new; stages began before `now_s`."""
    totals = {True: Increments(resumed=True), False: Increments()}
    stage_s: dict[str, StageSeconds] = {}
    for one in heard:
        total = totals[one.resumed]
        add_seconds(stage_s, one.stage_s)
        totals[one.resumed] = Increments(
            total.input_bytes + one.input_bytes,
            total.text_bytes + one.text_bytes,
            total.records + one.records,
            total.documents + one.documents,
            total.tokens + one.tokens,
            Counter(total.drops) + Counter(one.drops),
            Counter(total.rejects) + Counter(one.rejects),
            total.first_reject or one.first_reject,
            one.resumed,
        )
    shifted = {
        name: StageSeconds(one.wall_s, one.cpu_s, one.since_s - now_s)
        for name, one in stage_s.items()
    }
    return [totals[True], replace(totals[False], stage_s=shifted)]
