"""`tokmill status`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from tokmill.cli.run_part import output_argument
from tokmill.cli.screen import show_json, show_rows, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 20


@click.command("status")
@output_argument
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def command(output: str, as_json: bool) -> None:
    """Show which parts of a run are done, running, failed or missing.

    Failed parts belong to a task that stopped with an error, running ones to a task that has begun;
    whether it was killed since cannot be seen from here. Part P belongs to task P modulo --of.

    \b
    Examples:
      tokmill status out
    """
    from tokmill.api.arrays import place_of
    from tokmill.run.tasks import array_status

    found = array_status(place_of(output))
    if as_json:
        show_json(dataclasses.asdict(found))
        return
    rows = [
        ("done", f"{len(found.done):,} of {found.parts:,}"),
        *((name, _named(getattr(found, name))) for name in ("running", "failed", "missing")),
    ]
    show_rows(
        [*rows, ("dataset", _next(output, finished=found.is_finished, done=not found.undone))]
    )
    for task in found.tasks:
        warn(task)


def _named(parts: Sequence[int]) -> str:
    """Return how many parts these are, and the first of them."""
    if not parts:
        return "0"
    more = ", …" if len(parts) > _MOST_NAMED else ""
    return f"{len(parts):,}: {', '.join(map(str, parts[:_MOST_NAMED]))}{more}"


def _next(output: str, *, finished: bool, done: bool) -> str:
    if finished:
        return "finished"
    return f"not finished: tokmill finish {output}" if done else "not finished"
