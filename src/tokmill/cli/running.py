"""What `pretrain` and `sft` share: options, progress, and what they print at the end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.screen import show, show_json, show_rows, warn
from tokmill.interrupts import STDIN_STOPPED, STOPPED, explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.settings.schema import Config


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `run_and_show` to a command."""
    options = (
        click.option("--overwrite", is_flag=True, help="Remove the dataset in --output first."),
        click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON."),
        click.option("--profile", is_flag=True, help="Show the time of stages, and the engine."),
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
    """Make a dataset, or continue one, and print its contents and its memory needs.

    Raises:
        TokmillError: see `jobs.make_observed`.
    """
    from tokmill.api.bar import Bar, can_draw
    from tokmill.api.jobs import make_observed

    continues = f"{STOPPED}; from what is kept, the same command continues"
    explain(STDIN_STOPPED if "-" in config.input.all_paths else continues)
    has_notes = not (quiet or as_json)
    manifest = make_observed(
        config,
        overwrite=overwrite,
        note=partial(show, err=True) if has_notes else None,
        warn=None if quiet else warn,
        bar=Bar() if has_notes and can_draw() else None,
    )
    if as_json:
        show_json(manifest)
        return
    if quiet:
        return
    directory = show_dataset(manifest)
    if profile:
        from tokmill.page.profile import profile_rows

        show()
        show_rows(profile_rows(manifest))
    if config.model is not None:
        from tokmill.cli.bill import show_at_end  # costs 0.1 s

        show_at_end(config, directory, manifest)


def show_dataset(manifest: dict[str, Any]) -> Path:
    """Print the contents of a finished dataset; return its directory."""
    from tokmill.dataset.canonical import json_chunks
    from tokmill.dataset.layout import MANIFEST
    from tokmill.page.summary import summary_rows
    from tokmill.urls import is_store

    place = manifest["config"]["output"]["dir"]
    directory = Path(place)
    n_bytes = sum(file["bytes"] for file in manifest["files"])
    if is_store(place):
        show_rows(summary_rows(manifest, place, n_bytes + sum(map(len, json_chunks(manifest)))))
        return directory
    n_bytes += (directory / MANIFEST).stat().st_size
    show_rows(summary_rows(manifest, str(directory), n_bytes))
    return directory
