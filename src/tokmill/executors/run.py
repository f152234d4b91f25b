"""Runs with an executor of this machine: serial for one worker, processes for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.executors import serial
from tokmill.run.make_dataset import make_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Increments, Part, RunSpec
    from tokmill.run.whole_run import Observer
    from tokmill.settings.schema import Config


def run(config: Config, observer: Observer, *, overwrite: bool = False) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; what is committed stays, and what a checkpoint names.
        KeyboardInterrupt: says what is kept.
    """
    return make_dataset(config, observer, run_parts, overwrite=overwrite)


def run_parts(
    spec: RunSpec,
    parts: Sequence[Part],
    report: Callable[[Increments], None],
    n_workers: int,
    reference: Callable[[], Engine],
    ready: Callable[[], object] = lambda: None,
) -> Iterator[PartRecord]:
    """Yield the record of each part; `run.whole_run.Executor` describes the arguments."""
    if n_workers == 1:
        return serial.run_parts(spec, parts, report, reference, ready)
    from tokmill.executors import processes  # costs 0.1 s

    return processes.run_parts(spec, parts, report, n_workers, ready)
