"""`tokmill sft`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tokmill.api.jobs import checked_recipe
from tokmill.cli.bill_options import model_options
from tokmill.cli.options import config_from_options, settings_options
from tokmill.cli.plan import show_plan, write_option
from tokmill.cli.running import run_and_show, run_options
from tokmill.errors import UsageError
from tokmill.settings.schema import SFT_SECTIONS


@click.command("sft")
@settings_options(*SFT_SECTIONS)
@model_options
@run_options
@click.option("--plan", "plan_only", is_flag=True, help="Predict the dataset; write nothing.")
@write_option
def command(
    paths: tuple[str, ...],
    config_file: Path | None,
    plan_only: bool,
    write: bool,
    overwrite: bool,
    as_json: bool,
    profile: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn conversations into token shards with loss masks.

    Records may be OpenAI messages, ShareGPT conversations, prompt and completion, Alpaca
    instructions or text, also mixed. The mask marks the tokens that count in the loss.
    The same command continues a run that was stopped, unless it reads standard input.

    \b
    Examples:
      tokmill sft chats.jsonl --tokenizer qwen2.5/ --output out
      tokmill sft alpaca.jsonl -t gpt2/ --template alpaca --max-tokens 2048 -o out
      tokmill sft chats.jsonl -t qwen2.5/ --max-tokens 4096 --packing 4096 -o out
      tokmill sft --config configs/sft.toml
    """
    config = checked_recipe(config_from_options(paths, config_file, options), "sft", config_file)
    if plan_only:
        show_plan(config, as_json=as_json, write=write, overwrite=overwrite)
        return
    if write:
        raise UsageError("--write: for the plan of an array; give --plan too")
    run_and_show(config, overwrite=overwrite, as_json=as_json, profile=profile, quiet=quiet)
