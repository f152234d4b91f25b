"""`tokmill export`."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.completion import directories, named, trainers
from tokmill.cli.options import directory_argument, given_options, setting_option
from tokmill.cli.screen import show, show_json, show_labelled
from tokmill.settings.names import Setting
from tokmill.tables import TRAINERS
from tokmill.trainers.options import ExportOptions, export_options
from tokmill.words.plural import plural
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.trainers.exporting.export import Export


def _export_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `ExportOptions` to a command."""
    for f in reversed(fields(ExportOptions)):
        setting = Setting("export", f.name, type(f.default), f.default, f.metadata)
        command = setting_option(setting)(command)
    return command


@click.command("export")
@directory_argument
@click.option(
    "--to",
    "trainer",
    required=True,
    metavar="TRAINER",
    shell_complete=named(trainers),
    help=f"One of {', '.join(TRAINERS.rows)}, or a trainer of another package.",
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT",
    shell_complete=directories,
    help="Directory of the export.",
)
@_export_options
@click.option(
    "--check",
    is_flag=True,
    help="Read the export with the trainer's own reader, and compare all of it with the dataset.",
)
@click.option("--overwrite", is_flag=True, help="Replace the export at OUT.")
@click.option("--json", "as_json", is_flag=True, help="Print files, usage and notes as JSON.")
def command(
    directory: Path,
    trainer: str,
    output: Path,
    check: bool,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a dataset in the layout that another trainer reads.

    Files with the same bytes as a file of the dataset are hard links to it: they take no disk
    space, and are read-only. OUT appears with all files, or not at all.

    \b
    Examples:
      tokmill export out --to nanogpt --output nanogpt-data
    """
    from tokmill.trainers.exporting.export import export

    chosen = export_options(given_options(options))
    written = export(directory, trainer, output, chosen, check=check, overwrite=overwrite)
    if as_json:
        files = [file.as_json() for file in written.files]
        show_json({**asdict(written), "output": str(output), "files": files})
        return
    _show(written)


def _show(written: Export) -> None:
    """Print what was written, what is new on the disk, and how the trainer reads it."""
    n_linked = sum(file.how in ("link", "reflink") for file in written.files)
    how = f", {plural(n_linked, 'file')} linked to the dataset" if n_linked else ""
    show(
        f"{written.output}: {plural(len(written.files), 'file')} for {written.title}, "
        f"{size(written.n_bytes)}{how}, {size(written.new_bytes)} of new disk space"
    )
    if any(file.how == "link" for file in written.files):
        show(
            "linked files are read-only, since they are the dataset's own: a trainer that opens "
            "them for writing (r+) gets PermissionError; --copy makes copies"
        )
    for note in written.notes:
        show_labelled("note:", note, colour="cyan", err=True)
    if written.checked is not None:
        comparison = written.checked
        left = (
            f"; its reader leaves out {plural(comparison.left_out, 'token')} at the ends of files"
        )
        show(
            f"{comparison.reader}: {comparison.compared} equal{left if comparison.left_out else ''}"
        )
    show()
    for line in written.usage.split("\n"):
        show(line)
