"""`tokmill sft`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tokmill.cli.options import SFT_SECTIONS, config_from_options, settings_options
from tokmill.cli.plan import show_plan
from tokmill.config import RenderSettings, SftSettings
from tokmill.errors import UsageError


@click.command("sft")
@settings_options(*SFT_SECTIONS)
@click.option("--overwrite", is_flag=True, help="Remove the dataset in --output and start anew.")
@click.option("--plan", "plan_only", is_flag=True, help="Say what it would make; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--profile", is_flag=True, help="Say where the time went, stage by stage.")
@click.option("--quiet", "-q", is_flag=True, help="No progress and no notes.")
def command(
    paths: tuple[str, ...],
    config_file: Path | None,
    overwrite: bool,
    plan_only: bool,
    as_json: bool,
    profile: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn conversations into token shards with loss masks.

    Records may be OpenAI messages, ShareGPT conversations, prompt and completion, Alpaca
    instructions or text, also mixed. The mask says of every token whether it counts in the loss.
    The same command continues a run that was stopped.

    \b
    Examples:
      tokmill sft chats.jsonl --tokenizer qwen2.5/ --output out
      tokmill sft alpaca.jsonl -t gpt2/ --template alpaca --max-tokens 2048 -o out
      tokmill sft chats.jsonl -t qwen2.5/ --max-tokens 4096 --packing 4096 -o out
      tokmill sft --config configs/sft.toml
    """
    config = config_from_options(paths, config_file, options)
    if config.sft is None:
        config = replace(config, sft=SftSettings())
    if config.render != RenderSettings():
        raise UsageError("[render] is for tokmill pretrain: what sft writes is set in [sft]")
    if plan_only:
        show_plan(config, as_json=as_json)
        return

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
