"""`tokmill report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tokmill.cli.bill import FIRST, bill_options, bill_settings_of, print_bill, show_options
from tokmill.cli.by_field import field_option, field_table
from tokmill.cli.options import (
    GroupedCommand,
    Option,
    choice_options,
    directory_argument,
    moved_tokenizer,
)
from tokmill.cli.screen import print_tables, show, show_rows
from tokmill.errors import UsageError
from tokmill.urls import shown_place
from tokmill.words import size


@click.command("report", cls=GroupedCommand, first=(*FIRST, "measure", "html"))
@directory_argument
@bill_options
@show_options
@click.option(
    "--html",
    cls=Option,
    heading="Web page",
    type=click.Path(path_type=Path),
    help="Write the report as a web page with charts to this file.",
)
@field_option("Output")
@moved_tokenizer
@choice_options
def command(
    directory: Path,
    config_file: Path | None,
    as_json: bool,
    only: tuple[str, ...],
    everything: bool,
    explain: bool,
    measure: int | None,
    html: Path | None,
    field: str,
    tokenizer: str,
    **options: Any,
) -> None:
    """Show a dataset and its bill: disk, host RAM and, with a model, GPU memory.

    Settings that are not given come from the configuration of the dataset.

    \b
    Examples:
      tokmill report out
      tokmill report out --model llama-3.2-1b --gpu 'RTX 4090' --micro-batch 4
      tokmill report out --model config.json --deepspeed ds.json --explain
      tokmill report out --html report.html --model llama-3.2-1b --gpu 'RTX 4090'
      tokmill report out --model gpt2 --loader-workers 4 --measure 4242
    """
    from tokmill.api.rank_balance import balance_rows
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.inputs import complete_inputs
    from tokmill.bill.on_disk import on_disk
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.inspect.by_field import check_kept, counts_by_field
    from tokmill.inspect.summary import detail_rows
    from tokmill.page.report import write_report

    if html is not None and (as_json or only or everything or explain or measure is not None):
        raise UsageError(
            "--html writes a page: leave --json, --only, --all, --explain and --measure out"
        )
    if field and (as_json or only):
        raise UsageError("--by prints a table: leave --json and --only out, or use stats")
    choice = {name: options.pop(name) for name in ("split", "source", "seed")}
    if html is None and any(choice.values()):
        raise UsageError("--split, --source and --seed choose what a page shows: add --html")
    manifest = read_intact_manifest(directory)
    if field:
        check_kept(manifest, field)  # before the bill is printed
    disk = on_disk(directory, manifest.plain)
    settings = bill_settings_of(config_file, options, manifest.plain["config"])
    bill = full_bill(complete_inputs(settings, disk))
    if html is not None:
        of_ranks = balance_rows(directory, manifest, bill)
        n_bytes = write_report(
            html, directory, manifest, bill, tokenizer, "--html", choice, field, of_ranks
        )
        show(f"{html}: {size(n_bytes)}")
        return
    print_bill(bill, only, measure, everything=everything, explain=explain, as_json=as_json)
    if not (only or as_json):
        show()
        of_ranks = balance_rows(directory, manifest, bill)
        show_rows([*detail_rows(manifest, shown_place(directory)), *of_ranks])
    if field:
        counts = counts_by_field(directory, manifest, field)
        show()
        totals = manifest.totals
        print_tables([field_table(field, counts, max(1, totals.documents), max(1, totals.tokens))])
