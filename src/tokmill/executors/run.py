"""Runs with an executor: one part after the other in this process, worker processes, or Ray."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.recipes.table import Recipes
from tokmill.render.function import is_local
from tokmill.run.begin import begun
from tokmill.run.part import run_part
from tokmill.run.whole_run import finished_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.recipes.spec import Increments, Part
    from tokmill.run.begin import Begun, Observer
    from tokmill.settings.schema import Config


def run(config: Config, observer: Observer, *, overwrite: bool = False) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; parts that are done stay.
        KeyboardInterrupt: says what is kept.
    """
    if config.run.is_on_ray:
        _check_for_ray(config)
    execute = _on_ray if config.run.is_on_ray else run_parts
    with begun(config, observer, overwrite=overwrite) as begun_run:
        return finished_run(begun_run, observer, execute)


def run_parts(run: Begun, parts: Sequence[Part], report: Callable[[Increments], None]) -> None:
    """Make parts on this machine; `run.whole_run.Executor` describes the arguments."""
    if run.n_workers > 1:
        from tokmill.executors import processes

        processes.run_parts(run.plan.spec, parts, report, run.n_workers)
        return
    recipes = Recipes(run.plan.spec)
    for part in parts:
        run_part(run.plan.spec, part, run.place, recipes.of(part), report)


def _on_ray(run: Begun, parts: Sequence[Part], report: Callable[[Increments], None]) -> None:
    from tokmill.executors import ray  # takes a second

    ray.run_parts(run.plan.spec, parts, report)


def _check_for_ray(config: Config) -> None:
    """Check that Ray is installed and that its tasks can do this; raises `UsageError`."""
    if find_spec("ray") is None:
        raise UsageError("executor ray: the package ray is missing: pip install 'tokmill[ray]'")
    if "-" in config.input.all_paths:
        raise UsageError("executor ray: other machines cannot read standard input: give files")
    if is_local(config.render.renderer):
        raise UsageError(
            f"executor ray: other processes cannot import renderer {config.render.renderer}: put "
            "it into a module that is installed on every node"
        )
