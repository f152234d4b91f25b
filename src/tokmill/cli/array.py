"""A run as an array of tasks: `tokmill run-part`, `tokmill status` and `tokmill finish`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tokmill.cli.run import show_dataset
from tokmill.cli.screen import observer, show, show_json, show_rows, warn
from tokmill.interrupts import STOPPED, explain
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 20


@click.command("run-part")
@click.argument("output")
@click.option("--index", type=int, required=True, help="Which task this is, from 0.")
@click.option("--of", "n_tasks", type=int, required=True, help="How many tasks there are.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def run_part(output: str, index: int, n_tasks: int, quiet: bool) -> None:
    """Work on one task's share of a run: the parts --index, --index + --of, and so on.

    `tokmill plan --write` writes the plan of the run into OUTPUT. Tasks may run at the same time on
    any machines that see the input and OUTPUT under the same paths. The same command continues a
    task that was stopped.

    \b
    Examples:
      tokmill run-part out --index $SLURM_ARRAY_TASK_ID --of 8
      tokmill run-part out --index $JOB_COMPLETION_INDEX --of 8
    """
    from tokmill.executors.run import run_parts
    from tokmill.run.tasks import run_share

    explain(f"{STOPPED}; from what is kept, the same command continues")
    with observer(quiet=quiet) as events:
        records = run_share(output, index, n_tasks, events, run_parts)
    if not quiet:
        n_tokens = sum(record.total().tokens for record in records)
        done = f"{plural(len(records), 'part')} done, {plural(n_tokens, 'token')}"
        show(f"task {index} of {n_tasks}: {done if records else 'no part is left for it'}")


@click.command("status")
@click.argument("output")
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def status(output: str, as_json: bool) -> None:
    """Show which parts of a run are done, running, failed or missing.

    Failed parts belong to a task that stopped with an error, running ones to a task that has begun;
    whether it was killed since cannot be seen from here. Part P belongs to task P modulo --of.

    \b
    Examples:
      tokmill status out
    """
    from tokmill.api.jobs import place_of
    from tokmill.run.tasks import array_status

    state = array_status(place_of(output))
    if as_json:
        show_json(asdict(state))
        return
    dataset = "not finished" if state.undone else f"not finished: tokmill finish {output}"
    show_rows(
        [
            ("done", f"{len(state.done):,} of {state.parts:,}"),
            *((name, _named(getattr(state, name))) for name in ("running", "failed", "missing")),
            ("dataset", "finished" if state.is_finished else dataset),
        ]
    )
    for task in state.tasks:
        warn(task)


def _named(parts: Sequence[int]) -> str:
    """Return how many parts these are, and the first of them."""
    if not parts:
        return "0"
    more = ", …" if len(parts) > _MOST_NAMED else ""
    return f"{len(parts):,}: {', '.join(map(str, parts[:_MOST_NAMED]))}{more}"


@click.command("finish")
@click.argument("output")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and what --json asks for.")
def finish(output: str, as_json: bool, quiet: bool) -> None:
    """Finish a run whose parts are done: sum up, pack samples, write the manifest.

    \b
    Examples:
      tokmill finish out
    """
    from tokmill.run.tasks import finish_array

    explain(f"{STOPPED}; the same command begins again")
    with observer(quiet=quiet, as_json=as_json) as events:
        manifest = finish_array(output, events)
    if as_json:
        show_json(manifest)
    elif not quiet:
        show_dataset(manifest)
