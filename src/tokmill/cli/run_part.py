"""`tokmill run-part`."""

from __future__ import annotations

from functools import partial

import click

from tokmill.cli.screen import show, warn
from tokmill.interrupts import STOPPED, explain
from tokmill.words.plural import plural

output_argument = click.argument("output")


@click.command("run-part")
@output_argument
@click.option("--index", type=int, required=True, help="Which task this is, from 0.")
@click.option("--of", "n_tasks", type=int, required=True, help="How many tasks there are.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def command(output: str, index: int, n_tasks: int, quiet: bool) -> None:
    """Work on one task's share of a run: the parts --index, --index + --of, and so on.

    `tokmill plan --write` writes the plan of the run into OUTPUT. Tasks may run at the same time on
    any machines that see the input and OUTPUT under the same paths. The same command continues a
    task that was stopped.

    \b
    Examples:
      tokmill run-part out --index $SLURM_ARRAY_TASK_ID --of 8
      tokmill run-part out --index $JOB_COMPLETION_INDEX --of 8
    """
    from tokmill.api.arrays import work_on_share
    from tokmill.api.bar import Bar, can_draw

    explain(f"{STOPPED}; from what is kept, the same command continues")
    note = None if quiet else partial(show, err=True)
    bar = Bar() if note and can_draw() else None
    records = work_on_share(
        output, index, n_tasks, note=note, warn=None if quiet else warn, bar=bar
    )
    if not quiet:
        n_tokens = sum(record.total().tokens for record in records)
        done = f"{plural(len(records), 'part')} done, {plural(n_tokens, 'token')}"
        show(f"task {index} of {n_tasks}: {done if records else 'no part is left for it'}")
