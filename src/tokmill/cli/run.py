"""`tokmill pretrain` and `tokmill sft`: make a dataset, and show what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.options import (
    GroupedCommand,
    add_flag,
    config_option,
    input_argument,
    setting_options,
)
from tokmill.cli.screen import observer, show, show_json, show_rows
from tokmill.interrupts import STDIN_STOPPED, STOPPED, explain
from tokmill.settings.schema import PRETRAIN_SECTIONS, SFT_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

OF_THE_BILL = ("model", "gpu")


def _options(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what adds the inputs and the options of a run to a command."""
    added = (
        input_argument,
        config_option("Settings file"),
        setting_options(*sections, also=OF_THE_BILL),
        add_flag("overwrite", "Remove the dataset in --output first.", "Run"),
        add_flag("profile", "Show the time of stages, and the engine."),
        add_flag("json", "Print the manifest as JSON.", parameter="as_json"),
        click.option("--quiet", "-q", is_flag=True, help="Print errors only, and --json's object."),
    )

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(added):
            command = option(command)
        return command

    return add


@click.command("pretrain", cls=GroupedCommand)
@_options(*PRETRAIN_SECTIONS)
def pretrain(**options: Any) -> None:
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
    _run("pretrain", **options)


@click.command("sft", cls=GroupedCommand)
@_options(*SFT_SECTIONS)
def sft(**options: Any) -> None:
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
    _run("sft", **options)


def _run(
    recipe: str,
    paths: tuple[str, ...],
    config_file: Path | None,
    *,
    overwrite: bool,
    profile: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Make a dataset, or continue one, and print its contents and its memory needs."""
    from tokmill.api.jobs import run_config
    from tokmill.executors.run import run

    config = run_config(recipe, paths, config_file, options)
    continues = f"{STOPPED}; from what is kept, the same command continues"
    explain(STDIN_STOPPED if "-" in config.input.all_paths else continues)
    with observer(quiet=quiet, as_json=as_json) as events:
        manifest = run(config, events, overwrite=overwrite)
    if as_json:
        show_json(manifest)
        return
    if quiet:
        return
    show_dataset(manifest)
    if profile:
        from tokmill.page.profile import profile_rows

        show()
        show_rows(profile_rows(manifest))
    if config.model is not None:
        from tokmill.cli.bill import show_at_end  # costs 0.1 s

        show_at_end(config, manifest)


def show_dataset(manifest: dict[str, Any]) -> None:
    """Print the contents of a finished dataset."""
    from tokmill.dataset.canonical import json_chunks
    from tokmill.page.summary import summary_rows
    from tokmill.urls import is_store

    place = manifest["config"]["output"]["dir"]
    n_bytes = sum(file["bytes"] for file in manifest["files"])
    n_bytes += sum(map(len, json_chunks(manifest)))
    show_rows(summary_rows(manifest, place if is_store(place) else str(Path(place)), n_bytes))
