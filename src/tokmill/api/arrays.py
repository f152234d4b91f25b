"""A run as an array of tasks: the functions behind `tokmill.write_plan`, `run_part` and others.

Their notes and warnings go to the logger `tokmill`, as those of `api.functions` do.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tokmill.api.dataset import Dataset
from tokmill.api.functions import ProgressCall, receivers
from tokmill.api.jobs import Inputs, checked_path, observing, run_config
from tokmill.errors import UsageError
from tokmill.settings.names import keyword_errors
from tokmill.urls import store_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.api.bar import Bar, NotebookBar
    from tokmill.dataset.part_record import PartRecord
    from tokmill.run.tasks import ArrayStatus
    from tokmill.settings.arguments import PlanArguments
    from tokmill.settings.schema import Config

_LOG = logging.getLogger("tokmill")


def write_plan(
    inputs: Inputs = (),
    *,
    recipe: Literal["pretrain", "sft"] | None = None,
    tokenizer: str | Path | None = None,
    output: str | Path | None = None,
    config: str | Path | None = None,
    overwrite: bool = False,
    **settings: Unpack[PlanArguments],
) -> ArrayStatus:
    """Begin a run: write its plan into the output, for an array of tasks.

    Args:
        inputs: see `tokmill.plan`, as are `recipe`, `tokenizer`, `config` and `settings`.
        recipe: which run.
        tokenizer: see `tokmill.pretrain`.
        output: the directory of the dataset, which every task must see, or a place in a store.
        config: a TOML file with settings.
        overwrite: remove the dataset in `output` first.
        **settings: the settings of the run.

    Returns:
        The state of the parts: all are missing in a new run, some are done in a continued one.

    Raises:
        TokmillError: see `tokmill.pretrain`.

    Example:
        >>> tokmill.write_plan("corpus/*.jsonl", tokenizer="gpt2/", output="out").parts
    """
    given = {"tokenizer": tokenizer, "output": output, **settings}
    with keyword_errors():
        chosen = run_config(recipe, inputs, config, given)
        return begin_array(chosen, overwrite=overwrite, note=_LOG.info, warn=_LOG.warning)


def run_part(
    output: str | Path, index: int, of: int, *, progress: bool | ProgressCall | None = None
) -> tuple[int, ...]:
    """Work on the share of one task of an array: the parts `index`, `index + of`, and so on.

    The same call continues a task that was stopped. It may run at the same time as those of other
    tasks, here or on other machines.

    Args:
        output: the output of `write_plan`: its plan says all that a task needs.
        index: which task, from 0 to `of` - 1.
        of: how many tasks there are.
        progress: see `tokmill.pretrain`.

    Returns:
        The numbers of its parts, all of them done.

    Raises:
        UsageError: there is no plan in `output`, as this machine sees it.
        StateError: this machine has other versions, or a whole run writes there.
        TokmillError: see `tokmill.pretrain`.

    Example:
        >>> tokmill.run_part("out", int(os.environ["SLURM_ARRAY_TASK_ID"]), 8)
    """
    with keyword_errors():
        place = place_of(output)
        call, bar = receivers(progress)
        records = work_on_share(
            place, index, of, note=_LOG.info, warn=_LOG.warning, bar=bar, call=call
        )
        return tuple(record.part for record in records)


def status(output: str | Path) -> ArrayStatus:
    """Return which parts of the run in `output` are done, running, failed or missing.

    Raises:
        TokmillError: there is no plan in `output`, as this machine sees it.

    Example:
        >>> tokmill.status("out").missing
    """
    from tokmill.run.tasks import array_status

    with keyword_errors():
        return array_status(place_of(output))


def finish(output: str | Path) -> Dataset:
    """Finish the run in `output` once its parts are done, and return the dataset.

    Sums up the parts, packs samples if `packing` is set (in this process: 45 bytes of memory for
    each sample), and writes the manifest.

    Raises:
        StateError: parts are missing, or tasks are running.
        TokmillError: see `tokmill.pretrain`.

    Example:
        >>> len(tokmill.finish("out"))
    """
    with keyword_errors():
        place = place_of(output)
        manifest = finished(place, note=_LOG.info, warn=_LOG.warning)
        settings, directory = manifest["config"], Path(place)
        return Dataset(directory, manifest, split="", tokenizer=settings["tokenizer"]["path"])


def place_of(output: str | Path) -> str:
    """Return the directory or the URL that an output names; raises `UsageError`."""
    path = checked_path(output, "output")
    return store_url(output) or str(path)


def begin_array(
    config: Config,
    *,
    overwrite: bool,
    note: Callable[[str], None] | None,
    warn: Callable[[str], None] | None,
) -> ArrayStatus:
    """Begin the run of an array, and return its status.

    Raises:
        TokmillError: see `run.tasks.plan_array`.
    """
    from tokmill.run.tasks import array_status, plan_array

    with observing(note=note, warn=warn, bar=None) as observer:
        plan_array(config, observer, overwrite=overwrite)
    return array_status(config.output.dir)


def work_on_share(
    output: str,
    index: int,
    n_tasks: int,
    *,
    note: Callable[[str], None] | None,
    warn: Callable[[str], None] | None,
    bar: Bar | NotebookBar | None,
    call: ProgressCall | None = None,
) -> Sequence[PartRecord]:
    """Work on the share of a task while an observer with these receivers follows.

    Raises:
        TokmillError: see `run.tasks.run_share`.
    """
    from tokmill.executors.run import run_parts
    from tokmill.run.tasks import run_share

    for name, value in (("index", index), ("of", n_tasks)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{name}: expected a whole number, found {value!r}")
    with observing(note=note, warn=warn, bar=bar, call=call) as observer:
        return run_share(output, index, n_tasks, observer, run_parts)


def finished(
    output: str, *, note: Callable[[str], None] | None, warn: Callable[[str], None] | None
) -> dict[str, Any]:
    """Finish the run of an array; return its manifest.

    Raises:
        TokmillError: see `run.tasks.finish_array`.
    """
    from tokmill.run.tasks import finish_array

    with observing(note=note, warn=warn, bar=None) as observer:
        return finish_array(output, observer)
