"""What `pretrain` and `sft` share: options, progress, and what they print at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokmill.cli.screen import show, show_json, show_rows
from tokmill.interrupts import STOPPED, explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.settings.schema import Config


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `run_and_show` to a command."""
    options = (
        click.option("--overwrite", is_flag=True, help="Remove the dataset in --output first."),
        click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON."),
        click.option("--profile", is_flag=True, help="Say where the time went, stage by stage."),
        click.option(
            "--quiet", "-q", is_flag=True, help="Print errors only, and what --json asks for."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_and_show(
    config: Config, *, overwrite: bool, as_json: bool, profile: bool, quiet: bool
) -> None:
    """Make a dataset, or continue one, and print what it holds and what it takes.

    Raises:
        TokmillError: see `executors.run.run`.
    """
    from tokmill.cli.budgets import check_budgets, show_at_end
    from tokmill.cli.console import RunDisplay
    from tokmill.dataset.layout import MANIFEST
    from tokmill.executors.run import run
    from tokmill.measure.process_tree import PeakMemory
    from tokmill.page.profile import profile_rows
    from tokmill.page.summary import summary_rows

    check_budgets(config)
    explain(_what_an_interrupt_means(config))
    with PeakMemory() as memory:
        display = RunDisplay(memory, notes=not (quiet or as_json), warnings=not quiet)
        try:
            manifest = run(config, display, overwrite=overwrite)
        finally:
            display.close()
    if as_json:
        show_json(manifest)
        return
    if quiet:
        return
    directory = Path(manifest["config"]["output"]["dir"])
    n_bytes = sum(file["bytes"] for file in manifest["files"])
    n_bytes += (directory / MANIFEST).stat().st_size
    show_rows(summary_rows(manifest, str(directory), n_bytes))
    if profile:
        show()
        show_rows(profile_rows(manifest))
    show_at_end(config, directory, manifest)


def _what_an_interrupt_means(config: Config) -> str:
    from tokmill.run.resume import STDIN_STOPPED

    if "-" in config.input.paths:
        return STDIN_STOPPED
    return f"{STOPPED}; from what is kept, the same command continues"
