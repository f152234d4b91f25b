"""`tokmill report`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tokmill.cli.bill_options import bill_options, settled, show_options
from tokmill.cli.options import (
    GroupedCommand,
    Option,
    choice_options,
    directory_argument,
    moved_tokenizer,
)
from tokmill.errors import UsageError


@click.command("report", cls=GroupedCommand)
@directory_argument
@bill_options
@show_options
@click.option(
    "--measure",
    is_flag=True,
    help="Also load the dataset with each strategy, and measure host RAM.",
)
@click.option(
    "--html",
    cls=Option,
    heading="Web page",
    type=click.Path(path_type=Path),
    help="Write the report as a web page with charts to this file.",
)
@moved_tokenizer
@choice_options
def command(
    directory: Path,
    config_file: Path | None,
    as_json: bool,
    only: tuple[str, ...],
    everything: bool,
    explain: bool,
    measure: bool,
    html: Path | None,
    tokenizer: str,
    **options: Any,
) -> None:
    """Show a dataset and its bill: disk, host RAM and, with a model, GPU memory.

    Settings that are not given come from the configuration of the dataset.

    \b
    Examples:
      tokmill report out
      tokmill report out --model llama-3.2-1b --gpu 'RTX 4090' --micro-batch 4
      tokmill report out --model config.json --axolotl run.yml --explain
      tokmill report out --html report.html --model llama-3.2-1b --gpu 'RTX 4090'
      tokmill report out --loading int64 --loader-workers 4 --measure
    """
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.on_disk import on_disk
    from tokmill.cli.bill import measured_rows, measured_table, show_bill
    from tokmill.cli.screen import print_tables, show, show_json, show_rows
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.page.report.write_report import write_report
    from tokmill.page.summary import detail_rows
    from tokmill.words.units import size

    if html is not None and (as_json or only or everything or explain or measure):
        raise UsageError(
            "--html writes a page: leave --json, --only, --all, --explain and --measure out"
        )
    choice = {name: options.pop(name) for name in ("split", "source", "seed")}
    if html is None and any(choice.values()):
        raise UsageError("--split, --source and --seed choose what a page shows: add --html")
    manifest = read_intact_manifest(directory)
    disk = on_disk(directory, manifest)
    settings = settled(config_file, options, manifest["config"])
    bill = full_bill(settings, disk)
    training = bill.settings.training
    if html is not None:
        n_bytes = write_report(html, directory, manifest, bill, tokenizer, "--html", choice)
        show(f"{html}: {size(n_bytes)}")
        return
    rows = list(measured_rows(directory, manifest, training)) if measure else None
    if as_json:
        measured = {} if rows is None else {"measured": [asdict(row) for row in rows]}
        show_json({**bill.as_json(), **measured})
        return
    show_bill(bill, only=only, everything=everything, explain=explain)
    if rows is not None:
        show()
        print_tables([measured_table(rows, training)])
    if not only:
        show()
        show_rows(detail_rows(manifest, str(directory)))
