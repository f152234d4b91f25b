"""Parts as tasks of Ray, on the machines of a cluster; the only module that imports ray.

A task is given the place of the dataset and the number of a part. It reads the plan there, works as
a worker process does, and answers with its counts; the driver looks for the part's record in the
place, so a node that writes elsewhere is found. The driver prepares, counts, packs and finishes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import signal
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import exceptions

from tokmill import children
from tokmill.children import portable
from tokmill.dataset.layout import PARTS, part_name
from tokmill.engines.engine import engine_threads
from tokmill.errors import StateError, StorageError, UsageError, WorkerError
from tokmill.place import open_place
from tokmill.recipes.memory_bounds import worker_bytes
from tokmill.recipes.table import Recipes
from tokmill.run.begin import read_planned
from tokmill.run.part import run_part
from tokmill.run.prepare import most_threads
from tokmill.timing import StageSeconds
from tokmill.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.counts import Increments
    from tokmill.dataset.place import Place
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.run.plan import Plan
    from tokmill.settings.schema import RunSettings

MOST_TRIES = 4
"""Times that a part is begun if its process dies. The driver counts, as Ray has no bound of its own
for kills by its memory monitor (`task_oom_retries` is infinite, unless `max_retries` is 0)."""

_WAIT_S = 10.0
_FIT_S = 60.0
"""How long no node may be large enough for a part: a cluster may be growing."""

_PATIENCE_S = 10.0
"""A file made on one machine may appear on others after seconds, as NFS keeps lists of names."""

_LEAST_PARTS, _MOST_PARTS = 8, 10_000
_PROCESS_BYTES = 8 << 30

_DIED = (exceptions.OutOfMemoryError, exceptions.WorkerCrashedError, exceptions.NodeDiedError)


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a run are told, besides the part of each.

    `output`: the place of the dataset. `folder`: the directory in which the driver works, to which
    paths may be relative. `plan_stamp`: of the plan, as the driver sees it: a process that has read
    another one reads again. `look_s`: see `watch_this_process`.
    """

    output: str
    folder: str
    plan_stamp: str
    run: RunSettings
    n_threads: int
    memory_bytes: int
    look_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task answers: its reports, and the `time.perf_counter` of its node."""

    node: str
    reports: Sequence[Increments]
    now_s: float


def run_parts(spec: RunSpec, parts: Sequence[Part], report: Callable[[Increments], None]) -> None:
    """Make parts as tasks of Ray.

    `report` gets the increments of a part when it is done. Tasks that are left when the run ends
    early are killed, by us or, if this process is gone, by Ray: their parts are made again.

    Raises:
        UsageError: there is no cluster at the address, or it has another version of Ray or Python.
        StorageError: a node writes to another place than this machine reads.
        WorkerError: a part's process died `MOST_TRIES` times, no node is large enough, or the
            cluster is gone.
        TokmillError: whatever a part raised.
    """
    with _connected(spec.config.run.ray_address):
        with _explained():
            nodes = _nodes()
        _Tasks(_for_nodes(spec, parts, nodes), parts, report).work()


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster, or start Ray on this machine; leave a connection that was there."""
    if ray.is_initialized():
        yield
        return
    if address.startswith("ray://"):
        raise UsageError(
            f"--executor=ray:{address}: expected HOST:PORT of a cluster on one of whose nodes this "
            "command runs, or ray:auto"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster that is started here
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, exceptions.RayError) as error:
        raise UsageError(
            f"no Ray cluster can be used at {address or 'the default address'}: {_line(error)}: "
            "start one (ray start --head), or name it: --executor=ray:HOST:PORT"
        ) from None
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's would end this process by SystemExit
        with _silent():
            yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep Ray from printing on standard output what happens to nodes and tasks.

    There is no public way: `log_to_driver` concerns the output of tasks alone.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, AttributeError):
            from ray._private.ray_logging import stdout_deduplicator

            stack.callback(setattr, stdout_deduplicator, "skip_re", stdout_deduplicator.skip_re)
            stdout_deduplicator.skip_re = re.compile("")
        yield


@contextlib.contextmanager
def _explained(*known: type[Exception]) -> Iterator[None]:
    """Raise what Ray raises as one line, except errors that are `known`."""
    try:
        yield
    except known:
        raise
    except (exceptions.RayError, ConnectionError) as error:
        raise WorkerError(
            f"Ray has failed ({_line(error)}): parts that are done are kept; run the same "
            "command again to continue"
        ) from error


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _has_raylet() -> bool:
    """Return whether the raylet of this machine lives; True where nobody can tell.

    Without it, Ray ends this process after 15 seconds, with exit code 1 and no message.
    """
    unknown = contextlib.suppress(AttributeError, OSError)
    with unknown, socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(ray._private.worker._global_node.raylet_socket_name)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def _nodes() -> list[tuple[int, int]]:
    """Return (CPUs, bytes of memory) of each node that can work."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(int(has["CPU"]), int(has.get("memory", 0))) for has in alive if has.get("CPU", 0) >= 1]


def _for_nodes(spec: RunSpec, parts: Sequence[Part], nodes: Sequence[tuple[int, int]]) -> RunSpec:
    """Return the run with the threads and the memory of a task: a share of the smallest node."""
    (cpus, memory), most = min(nodes, default=(1, 0)), most_threads(spec.config, parts)
    n_threads = spec.config.run.threads or max(1, cpus // -(-cpus // most))
    return replace(spec, n_threads=n_threads, memory_bytes=memory // max(1, cpus // n_threads))


class _Tasks:
    """The tasks of a run: about twice as many are with Ray as can work at once."""

    def __init__(
        self, spec: RunSpec, parts: Sequence[Part], report: Callable[[Increments], None]
    ) -> None:
        self._spec, self._report = spec, report
        config = spec.config
        self._place = open_place(config.output.dir)
        self._cpus, self._memory = spec.n_threads, worker_bytes(spec)
        self._job = Job(
            config.output.dir,
            str(Path.cwd()),
            spec.plan_stamp,
            config.run,
            spec.n_threads,
            spec.memory_bytes,
            children.LOOK_S,
        )
        self._run: Any = ray.remote(max_calls=parts_per_process(spec))(run_one).options(
            num_cpus=self._cpus,
            memory=self._memory,
            max_retries=0,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",
        )
        self._waiting = deque((part, 1) for part in parts)
        self._in_flight: dict[Any, tuple[Part, int]] = {}
        self._fitted_s = time.monotonic()

    def work(self) -> None:
        """Make all parts; no task goes on when this ends."""
        try:
            while self._waiting or self._in_flight:
                with _explained():
                    self._fill()
                    done, _ = ray.wait(list(self._in_flight), num_returns=1, timeout=_WAIT_S)
                if not _has_raylet():
                    raise WorkerError(
                        "the raylet of this machine is gone: parts that are done are kept; start "
                        "Ray again (ray start), then run the same command again to continue"
                    )
                for task in done:
                    self._end(task, *self._in_flight.pop(task))
        finally:
            self._stop()

    def _stop(self) -> None:
        """End the processes of the tasks that are left: they would go on to write.

        Without the raylet of this machine there is no way, and Ray soon ends this process.
        """
        tasks = list(self._in_flight) if _has_raylet() else []
        with contextlib.suppress(exceptions.RayError, ConnectionError):
            for task in tasks:
                ray.cancel(task, force=True)
            if tasks:
                ray.wait(tasks, num_returns=len(tasks), timeout=_WAIT_S)

    def _fill(self) -> None:
        """Submit parts; raises `WorkerError` if no node has been large enough for long."""
        slots = sum(
            min(cpus // self._cpus, memory // self._memory if memory else cpus)
            for cpus, memory in _nodes()
        )
        now = time.monotonic()
        if slots:
            self._fitted_s = now
        elif now - self._fitted_s >= _FIT_S:
            raise WorkerError(
                f"no node of the Ray cluster can run a part: it takes {plural(self._cpus, 'CPU')} "
                f"and {size(self._memory)} of memory: lower --threads or "
                "run.engine_memory_bytes, or add a node"
            )
        most = self._spec.config.run.workers or max(1, 2 * slots)
        while self._waiting and len(self._in_flight) < most:
            part, n_tries = self._waiting.popleft()
            task = self._run.remote(self._job, part.index, part.fingerprint(self._spec))
            self._in_flight[task] = part, n_tries

    def _end(self, task: Any, part: Part, n_tries: int) -> None:
        """Report what a task did that has ended; if its process died, its part begins again."""
        try:
            with _explained(*_DIED, exceptions.RayTaskError):
                answer: Answer | BaseException = ray.get(task)
        except _DIED as error:
            if n_tries >= MOST_TRIES:
                raise WorkerError(_too_often(part.index, error)) from None
            self._waiting.append((part, n_tries + 1))
            return
        except exceptions.RayTaskError as error:  # `run_one` returns what a part raises
            raise WorkerError(
                f"a node of the Ray cluster cannot run tokmill ({_line(error.cause)}): install the "
                "same tokmill[ray] on every node"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        later_s = time.perf_counter() - answer.now_s  # the clock of this machine
        for increments in answer.reports:
            stages = {
                name: StageSeconds(stage.wall_s, stage.cpu_s, stage.since_s + later_s)
                for name, stage in increments.stage_s.items()
            }
            self._report(replace(increments, stage_s=stages))
        # A node that writes elsewhere is found here.
        name = f"{PARTS}/{part_name(part.index)}"
        deadline = time.monotonic() + _PATIENCE_S
        while not self._place.stamp(name):
            if time.monotonic() >= deadline:
                raise StorageError(
                    f"{self._place.where}/{name}: node {answer.node} has written it, and it is not "
                    "here: mount the same directory under this path on every node"
                )
            time.sleep(0.1)


def _too_often(index: int, error: exceptions.RayError) -> str:
    """Return the message for a part whose process died at every try."""
    if isinstance(error, exceptions.OutOfMemoryError):
        why, advice = "the node was short of memory", "--threads or run.engine_memory_bytes"
    else:
        why, advice = "killed, or the node was lost", "--threads if memory is short"
    return (
        f"part {index}: its process on the Ray cluster died {MOST_TRIES} times ({why}): parts "
        f"that are done are kept; run the same command again to continue, with a lower {advice}"
    )


# In a process of Ray


def parts_per_process(spec: RunSpec) -> int:
    """Return after how many parts a process of Ray ends: 8, or small ones of 8 GiB of input.

    What libraries leak ends with it, but the next process starts and loads the engine for seconds.
    An import has no engine, and parts of any size.
    """
    if spec.tokens is not None:
        return _MOST_PARTS
    return min(_MOST_PARTS, max(_LEAST_PARTS, _PROCESS_BYTES // spec.config.output.part_bytes))


def run_one(job: Job, index: int, fingerprint: str) -> Answer | BaseException:
    """Write one part; return how, or the error: Ray would wrap one that is raised.

    `fingerprint`: of the part, as the driver knows it. A KeyboardInterrupt is raised: Ray cancels
    tasks by it.
    """
    try:
        _watched(job.look_s)
        os.chdir(job.folder if Path(job.folder).is_dir() else "/")
        place, plan, recipes = _opened(job)
        part = plan.parts[index] if index < len(plan.parts) else None
        if part is None or part.fingerprint(plan.spec) != fingerprint:
            _opened.cache_clear()
            raise StateError(
                f"node {platform.node()}: {job.output} holds the plan of another run than on the "
                "machine of the driver: mount the same directory under this path on every node"
            )
        reports: list[Increments] = []
        with engine_threads(job.n_threads):
            run_part(plan.spec, part, place, recipes.of(part), reports.append)
        return Answer(platform.node(), reports, time.perf_counter())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of native code is no Exception
        return portable(error)


@lru_cache(maxsize=1)
def _watched(look_s: float) -> children.Child:
    """Have this process of Ray watched, once: Ray waits for ever for one that was stopped."""
    return children.watch_this_process(look_s)


@lru_cache(maxsize=1)
def _opened(job: Job) -> tuple[Place, Plan, Recipes]:
    """Read the plan, once in a process, and return what its parts share."""
    place = open_place(job.output)
    try:
        plan = read_planned(place, job.run)
    except UsageError as error:
        raise StateError(f"node {platform.node()}: {error}") from None
    place.make_folders()
    spec = replace(plan.spec, n_threads=job.n_threads, memory_bytes=job.memory_bytes)
    return place, replace(plan, spec=spec), Recipes(spec)
