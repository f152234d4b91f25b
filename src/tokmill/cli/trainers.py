"""`tokmill export` and `tokmill import`: the layouts of other trainers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.completion import directories, files, named, trainers
from tokmill.cli.options import PATH, directory_argument, setting_option, with_options
from tokmill.cli.plan import array_steps
from tokmill.cli.screen import (
    log_dataset,
    log_option,
    log_result,
    observer,
    show,
    show_json,
    show_labelled,
    show_rows,
    warn,
)
from tokmill.settings.names import schema, settings_of
from tokmill.tables import IMPORTS, TRAINERS, import_name
from tokmill.trainers.options import ExportOptions, export_options
from tokmill.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.trainers.export import Export

COLUMN_OPTIONS = (
    click.option(
        "--ids",
        multiple=True,
        metavar="COLUMN",
        help="rows: the column of ids; twice: of prompts, and of completions, which are trained.",
    ),
    click.option(
        "--labels", default="", metavar="COLUMN", help="rows: the column of labels, or none."
    ),
    click.option(
        "--mask",
        "masks",
        multiple=True,
        metavar="COLUMN",
        help="rows: a column of 0 and 1, 1 = trained; once for each; or none.",
    ),
    click.option(
        "--weights", default="", metavar="COLUMN", help="rows: the column of weights, or none."
    ),
)
"""Options that say what the columns of rows of ids hold."""


class _ImportName(click.Choice[str]):
    """The name of what is imported, or of a trainer that reads such files."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return one of the choices."""
        return super().convert(import_name(value), param, ctx)


def _output_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for the directory that a command writes."""
    return click.option(
        "--output",
        "-o",
        required=True,
        type=PATH,
        metavar="OUT",
        shell_complete=directories,
        help=text,
    )


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
@_output_option("Directory of the export.")
@with_options(*map(setting_option, settings_of("export", ExportOptions).values()))
@click.option(
    "--check",
    is_flag=True,
    help="Read the export with the trainer's own reader, and compare all of it with the dataset.",
)
@click.option("--overwrite", is_flag=True, help="Replace the dataset or export at OUT.")
@click.option("--json", "as_json", is_flag=True, help="Print files, usage and notes as JSON.")
@log_option
def export_dataset(
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
    from tokmill.trainers.export import export

    chosen = export_options({k: value for k, value in options.items() if value not in (None, ())})
    written = export(directory, trainer, output, chosen, check=check, overwrite=overwrite)
    n_files, line = len(written.files), f"{output}: {plural(len(written.files), 'file')}"
    log_result(line, output=str(output), files=n_files, bytes=written.n_bytes)
    if as_json:
        files = [file.as_json() for file in written.files]
        show_json({**asdict(written), "output": str(output), "files": files})
        return
    _show_export(written)


def _show_export(written: Export) -> None:
    """Print what was written, what is new on the disk, and how the trainer reads it."""
    n_linked = sum(file.how in ("link", "reflink") for file in written.files)
    how = f", {plural(n_linked, 'file')} linked to the dataset" if n_linked else ""
    show(
        f"{written.output}: {plural(len(written.files), 'file')} for {written.title}, "
        f"{size(written.n_bytes)}{how}, {size(written.new_bytes)} of new disk space"
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
    if n_linked:
        show()
        show(
            "linked files are read-only, since they are the dataset's own: np.memmap opens for "
            "writing (r+) unless mode='r' is given, and gets PermissionError; if you cannot change "
            "the trainer, export with --copy"
        )


@click.command("import")
@click.argument("sources", nargs=-1, required=True, type=PATH, metavar="SOURCE...")
@click.option(
    "--from",
    "trainer",
    required=True,
    type=_ImportName(IMPORTS),
    help="Layout of SOURCE, or a trainer that reads it.",
)
@_output_option("Directory of the dataset.")
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
    type=PATH,
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
@with_options(*COLUMN_OPTIONS)
@click.option(
    "--alignment",
    type=click.Choice(["own", "next"]),
    help="rows: whether labels and masks stand at their own token, or at the one before it.  "
    "[default: found by comparing labels with ids; masks: own]",
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="rows: stop at the first broken row, or count broken rows and go on.",
)
@click.option(
    "--dtype",
    type=click.Choice(["uint16", "uint32"]),
    help="nanogpt, olmo-core: type of the ids; other files record it.  [default: uint16]",
)
@with_options(
    *(setting_option(schema()["sft"][name]) for name in ("packing", "max_samples_per_row")),
    *(setting_option(schema()["limits"][name]) for name in ("max_reject_fraction", "on_unread")),
    *(setting_option(schema()["run"][name]) for name in ("workers", "executor")),
)
@click.option(
    "--write-plan",
    is_flag=True,
    help="Write the plan alone: the tasks of an array then import the files.",
)
@click.option("--overwrite", is_flag=True, help="Replace the dataset or export at OUT.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and notes as JSON.")
@log_option
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and --json's object.")
def import_dataset(
    output: Path,
    tokenizer: str,
    eos_token: str,
    dtype: str | None,
    ids: tuple[str, ...],
    labels: str,
    masks: tuple[str, ...],
    weights: str,
    alignment: str | None,
    on_error: str,
    packing: str | None,
    max_samples_per_row: int | None,
    max_reject_fraction: float | None,
    on_unread: str | None,
    workers: int | None,
    executor: str | None,
    write_plan: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Read the tokens of another trainer into a dataset.

    The dataset can be verified, inspected, reported, loaded and exported like any other. The
    sources are copied, and not changed. SOURCE: files, prefixes of Megatron, or directories; with
    --from datasets, parquet or jsonl, rows of ids with labels, masks or weights. The same command
    continues an import that was stopped.

    \b
    Examples:
      tokmill import old/corpus --from megatron -t gpt2/ -o out
      tokmill import data/openwebtext --from nanogpt -t gpt2/ -o out
      tokmill import tokenized/ --from datatrove -t gpt2/ -o out
      tokmill import last_run_prepared/3f9a/ --from datasets -t qwen2.5/ -o out
    """
    from tokmill.api.jobs import place_of
    from tokmill.recipes.row_columns import GivenColumns
    from tokmill.run.finish import run
    from tokmill.run.imports import ImportSettings, import_notes, row_settings
    from tokmill.run.tasks import array_status, plan_array
    from tokmill.settings.schema import PROCESSES, RunSettings, TokenizerSettings

    named, place = TokenizerSettings(tokenizer, eos_token), place_of(output)
    of_rows = row_settings(
        packing,
        max_samples_per_row,
        on_error=on_error,
        on_unread=on_unread,
        max_reject_fraction=max_reject_fraction,
    )
    settings = ImportSettings(
        output=place,
        tokenizer=named,
        dtype=dtype or "",
        run=RunSettings(workers=workers or 0, executor=executor or PROCESSES),
        columns=GivenColumns(ids, labels, masks, weights, alignment or ""),
        **of_rows,
        **options,
    )
    with observer(quiet=quiet, as_json=as_json) as events:
        if write_plan:
            plan_array(settings, events, overwrite=overwrite)
        else:
            manifest = run(settings, events, overwrite=overwrite)
    if write_plan:
        status = array_status(place)
        parts = plural(status.parts, "part")
        log_result(f"{status.directory}: {parts}", output=status.directory, parts=status.parts)
        if as_json:
            show_json({"output": status.directory, "parts": status.parts})
        elif not quiet:
            show_rows(array_steps(status))
        return
    if not quiet:
        log_dataset(place, manifest)
    totals, notes = manifest.totals, import_notes(settings, manifest)
    if as_json:
        show_json({"output": place, "totals": manifest.plain["totals"], "notes": notes})
        return
    if quiet:
        return
    n_bytes = sum(file.n_bytes for file in manifest.files)
    show(
        f"{output}: {plural(totals.documents, 'document')}, "
        f"{plural(totals.tokens, 'token')} as {manifest.dtype} in "
        f"{plural(len(manifest.shards), 'shard')}, {size(n_bytes)}"
    )
    for note in notes:
        warn(note)
