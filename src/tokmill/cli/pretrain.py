"""`tokmill pretrain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tokmill.api.jobs import checked_recipe
from tokmill.cli.bill_options import model_options
from tokmill.cli.options import config_from_options, settings_options
from tokmill.cli.running import run_and_show, run_options
from tokmill.settings.schema import PRETRAIN_SECTIONS


@click.command("pretrain")
@settings_options(*PRETRAIN_SECTIONS)
@model_options
@run_options
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

    The same command continues a run that was stopped, unless it reads standard input. INPUT may be
    files, globs, directories, hf:NAME for a Hugging Face dataset, or - for standard input; the
    dataset keeps their order.

    \b
    Examples:
      tokmill pretrain baike.jsonl --tokenizer my_tokenizer/ --output out
      tokmill pretrain 'dump/*.jsonl.zst' -t gpt2/ --eos-token '<|endoftext|>' -o out
      tokmill pretrain --config configs/pretrain.toml
    """
    config = config_from_options(paths, config_file, options)
    config = checked_recipe(config, "pretrain", config_file)
    run_and_show(config, overwrite=overwrite, as_json=as_json, profile=profile, quiet=quiet)
