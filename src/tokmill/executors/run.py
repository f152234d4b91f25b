"""Runs with an executor: serial for one worker, processes for more, or Ray."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.executors import serial
from tokmill.render.function import is_local
from tokmill.run.whole_run import make_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.part_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part, RunSpec
    from tokmill.run.begin import Observer
    from tokmill.run.whole_run import Executor
    from tokmill.settings.schema import Config


def run(config: Config, observer: Observer, *, overwrite: bool = False) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; parts that are done stay.
        KeyboardInterrupt: says what is kept.
    """
    return make_dataset(config, observer, _executor(config), overwrite=overwrite)


def _executor(config: Config) -> Executor:
    """Return the executor that the settings name; raises `UsageError` if it cannot run this."""
    if not config.run.is_on_ray:
        return run_parts
    if find_spec("ray") is None:
        raise UsageError("executor ray: the package ray is missing: pip install 'tokmill[ray]'")
    if "-" in config.input.all_paths:
        raise UsageError("executor ray: other machines cannot read standard input: give files")
    if is_local(config.render.renderer):
        raise UsageError(
            f"executor ray: other processes cannot import renderer {config.render.renderer}: put "
            "it into a module that is installed on every node"
        )
    return _on_ray


def _on_ray(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
    reference: Callable[[], Engine],
) -> Iterator[PartRecord]:
    """Yield the record of each part; `executors.ray` is imported here, as it takes a second."""
    from tokmill.executors import ray

    return ray.run_parts(spec, parts, report)


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
    reference: Callable[[], Engine],
) -> Iterator[PartRecord]:
    """Yield the record of each part; `run.whole_run.Executor` describes the arguments."""
    if n_workers == 1:
        return serial.run_parts(spec, parts, report, reference)
    from tokmill.executors import processes  # costs 0.1 s

    return processes.run_parts(spec, parts, report, n_workers)
