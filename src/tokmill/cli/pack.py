"""`tokmill pack`: rows for pretraining, as an index over a finished dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokmill.cli.options import directory_argument
from tokmill.cli.screen import log_option, log_result, show_json, show_rows
from tokmill.dataset.layout import FRAGMENT, LAST_PIECES

if TYPE_CHECKING:
    from pathlib import Path


@click.command("pack")
@directory_argument
@click.option("--length", required=True, metavar="TOKENS", help="Tokens of a row: 4096 or 32k.")
@click.option(
    "--last", type=click.Choice(LAST_PIECES), default=FRAGMENT, show_default=True,
    help="The last piece of a document that is cut; fragment: packed like a document; drop: left "
    "out, and counted.",
)  # fmt: skip
@click.option("--split", default="", help="Pack this one, train or val; by default all splits.")
@click.option(
    "--max-samples-per-row", default="0", metavar="NUMBER",
    help="Documents and pieces in a row, at most; by default any number.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the packs of all splits as JSON.")
@log_option
def command(
    directory: Path, length: str, last: str, split: str, max_samples_per_row: str, as_json: bool
) -> None:
    """Pack the documents of a dataset into rows for pretraining.

    A document that is longer than a row is cut into full rows; short documents and last pieces are
    packed together, so that little padding is left. Only an index is written, and no token copied.
    Packing again replaces it. Chats are packed by tokmill sft --packing.

    \b
    Examples:
      tokmill pack out --length 4096
      tokmill pack out --length 32k --last drop
    """
    from tokmill.api.jobs import pack
    from tokmill.inspect.summary import detail_rows

    manifest = pack(directory, length, last, split, max_samples_per_row)
    log_result(f"{directory}: packed", output=str(directory), packs=manifest.packs)
    if as_json:
        show_json({"directory": str(directory), "packs": manifest.plain["packs"]})
        return
    rows = detail_rows(manifest, str(directory))
    show_rows([row for row in rows if row[0].startswith("packs, ")])
