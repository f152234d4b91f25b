"""`tokmill pretrain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tokmill.cli.options import PRETRAIN_SECTIONS, config_from_options, settings_options
from tokmill.errors import UsageError


@click.command("pretrain")
@settings_options(*PRETRAIN_SECTIONS)
@click.option("--overwrite", is_flag=True, help="Remove the dataset in --output and start anew.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--profile", is_flag=True, help="Say where the time went, stage by stage.")
@click.option("--quiet", "-q", is_flag=True, help="No progress and no notes.")
def command(
    paths: tuple[str, ...],
    config_file: Path | None,
    overwrite: bool,
    as_json: bool,
    profile: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn records into token shards.

    The same command continues a run that was stopped. INPUT may be files, globs, directories,
    hf:NAME for a Hugging Face dataset, or - for standard input; the dataset keeps their order.

    \b
    Examples:
      tokmill pretrain baike.jsonl --tokenizer my_tokenizer/ --output out
      tokmill pretrain 'dump/*.jsonl.zst' -t gpt2/ --eos-token '<|endoftext|>' -o out
      tokmill pretrain --config configs/pretrain.toml
    """
    config = config_from_options(paths, config_file, options)
    if config.sft is not None:
        raise UsageError(f"{config_file}: [sft] is for tokmill sft, this is tokmill pretrain")

    from tokmill.cli.console import RunDisplay, print_rows
    from tokmill.executors.run import run
    from tokmill.measure.process_tree import PeakMemory
    from tokmill.report.profile import profile_rows
    from tokmill.report.summary import summary_rows
    from tokmill.storage import free_bytes

    with PeakMemory() as memory:
        display = RunDisplay(memory, quiet=quiet or as_json)
        try:
            manifest = run(config, display, overwrite=overwrite)
        finally:
            display.close()
    if as_json:
        click.echo(json.dumps(manifest))
        return
    directory = manifest["config"]["output"]["dir"]
    print_rows(summary_rows(manifest, directory, free_bytes(Path(directory))))
    if profile:
        click.echo()
        print_rows(profile_rows(manifest))
