"""`tokmill import`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tokmill.cli.completion import directories, files
from tokmill.cli.screen import show, show_json, warn
from tokmill.words.plural import plural
from tokmill.words.units import size

IMPORTERS = ("megatron", "datatrove", "nanogpt")

_PATH = click.Path(path_type=Path)


@click.command("import")
@click.argument("sources", nargs=-1, required=True, type=_PATH, metavar="SOURCE...")
@click.option(
    "--from",
    "trainer",
    required=True,
    type=click.Choice(IMPORTERS),
    help="Program that wrote SOURCE.",
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=_PATH,
    metavar="OUT",
    shell_complete=directories,
    help="Directory of the dataset.",
)
@click.option(
    "--tokenizer",
    "-t",
    required=True,
    metavar="TOKENIZER",
    shell_complete=files,
    help="The tokenizer that made the tokens.",
)
@click.option(
    "--val",
    multiple=True,
    type=_PATH,
    metavar="SOURCE",
    help="Source of the val split; once for each.",
)
@click.option(
    "--eos-token",
    default="",
    metavar="TOKEN",
    help="Token that ends documents, if the tokenizer's files do not say it.",
)
@click.option("--add-eos", is_flag=True, help="Add eos to documents that do not end with it.")
@click.option(
    "--dtype",
    type=click.Choice(["uint16", "uint32"]),
    help="nanogpt: type of the ids; other files record it.  [default: uint16]",
)
@click.option("--overwrite", is_flag=True, help="Replace the imported dataset at OUT.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and notes as JSON.")
def command(
    sources: tuple[Path, ...],
    trainer: str,
    output: Path,
    tokenizer: str,
    val: tuple[Path, ...],
    eos_token: str,
    add_eos: bool,
    dtype: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read the tokens of another trainer into a dataset.

    The dataset can be verified, inspected, reported, loaded and exported like any other. The
    sources are copied, and not changed. SOURCE: files, prefixes of Megatron, or directories.

    \b
    Examples:
      tokmill import old/corpus --from megatron -t gpt2/ -o out
      tokmill import data/openwebtext --from nanogpt -t gpt2/ -o out
      tokmill import tokenized/ --from datatrove -t gpt2/ -o out
    """
    from tokmill.api.bar import Bar, can_draw
    from tokmill.api.importing import import_noted
    from tokmill.api.progress import RunObserver
    from tokmill.bill.measuring.process_tree import Sampler
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.trainers.importing.dataset import ImportSettings

    observer = RunObserver(
        Sampler(),
        note=None if as_json else partial(show, err=True),
        bar=Bar() if not as_json and can_draw() else None,
    )
    named = TokenizerSettings(tokenizer, eos_token)
    settings = ImportSettings(sources, trainer, output, named, val, add_eos, dtype or "", overwrite)
    dataset, notes = import_noted(settings, observer)
    totals = dataset.manifest["totals"]
    if as_json:
        show_json({"output": str(output), "totals": totals, "notes": notes})
        return
    n_bytes = sum(file["bytes"] for file in dataset.manifest["files"])
    show(
        f"{output}: {plural(totals['documents'], 'document')}, "
        f"{plural(totals['tokens'], 'token')} as {dataset.manifest['dtype']} in "
        f"{plural(len(dataset.shards), 'shard')}, {size(n_bytes)}"
    )
    for note in notes:
        warn(note)
