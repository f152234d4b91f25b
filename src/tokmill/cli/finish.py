"""`tokmill finish`."""

from __future__ import annotations

from functools import partial

import click

from tokmill.cli.run import show_dataset
from tokmill.cli.run_part import output_argument
from tokmill.cli.screen import show, show_json, warn
from tokmill.interrupts import STOPPED, explain


@click.command("finish")
@output_argument
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and what --json asks for.")
def command(output: str, as_json: bool, quiet: bool) -> None:
    """Finish a run whose parts are done: sum up, pack samples, write the manifest.

    \b
    Examples:
      tokmill finish out
    """
    from tokmill.api.arrays import finished

    explain(f"{STOPPED}; the same command begins again")
    has_notes = not (quiet or as_json)
    note = partial(show, err=True) if has_notes else None
    manifest = finished(output, note=note, warn=None if quiet else warn)
    if as_json:
        show_json(manifest)
    elif not quiet:
        show_dataset(manifest)
