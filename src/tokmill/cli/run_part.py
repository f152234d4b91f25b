"""`tokmill run-part`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tokmill.cli.screen import show, warn
from tokmill.interrupts import STOPPED, explain
from tokmill.words.plural import plural

plan_argument = click.argument("plan", type=click.Path(path_type=Path))


@click.command("run-part")
@plan_argument
@click.option("--index", type=int, required=True, help="Which task this is, from 0.")
@click.option("--of", "n_tasks", type=int, required=True, help="How many tasks there are.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def command(plan: Path, index: int, n_tasks: int, quiet: bool) -> None:
    """Work on one task's share of a plan: the parts --index, --index + --of, and so on.

    `tokmill plan --write` makes the plan. Tasks may run at the same time on any machines that see
    the plan, the input and the output directory under the same paths. The same command continues a
    task that was stopped.

    \b
    Examples:
      tokmill run-part out.plan --index $SLURM_ARRAY_TASK_ID --of 8
      tokmill run-part out.plan --index $JOB_COMPLETION_INDEX --of 8
    """
    from tokmill.api.arrays import work_on_share
    from tokmill.api.bar import Bar, can_draw

    explain(f"{STOPPED}; from what is kept, the same command continues")
    note = None if quiet else partial(show, err=True)
    bar = Bar() if note and can_draw() else None
    records = work_on_share(plan, index, n_tasks, note=note, warn=None if quiet else warn, bar=bar)
    if not quiet:
        n_tokens = sum(record.counts().tokens for record in records)
        done = f"{plural(len(records), 'part')} done, {plural(n_tokens, 'token')}"
        show(f"task {index} of {n_tasks}: {done if records else 'no part is left for it'}")
