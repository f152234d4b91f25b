"""`tokmill pretrain` and `tokmill sft`, and a run as tasks: `run-part`, `status` and `finish`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.options import (
    GroupedCommand,
    Option,
    config_option,
    input_argument,
    setting_options,
    with_options,
)
from tokmill.cli.screen import (
    log_dataset,
    log_option,
    log_result,
    observer,
    show,
    show_json,
    show_rows,
    warn,
)
from tokmill.interrupts import CONTINUES, NOT_BEGUN, STDIN_STOPPED, Interrupt
from tokmill.settings.schema import PRETRAIN_SECTIONS, SFT_SECTIONS
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.dataset.manifest import Manifest
    from tokmill.run.tasks import ArrayStatus

_MOST_NAMED = 20
"""Numbers of parts that are listed."""


def _options(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what adds the inputs and the options of a run to a command."""
    return with_options(
        input_argument,
        config_option("Settings file"),
        setting_options(*sections),
        click.option(
            "--overwrite", cls=Option, heading="Run", is_flag=True,
            help="Replace the dataset or export in --output.",
        ),
        click.option("--profile", is_flag=True, help="Show the time of stages, and the engine."),
        click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON."),
        click.option("--quiet", "-q", is_flag=True, help="Print errors only, and --json's object."),
        log_option,
    )  # fmt: skip


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
    from tokmill.run.finish import run

    config = run_config(recipe, paths, config_file, options)
    if is_stdin := "-" in config.input.all_paths:
        Interrupt.line = STDIN_STOPPED
    stopped = "" if is_stdin else CONTINUES
    with observer(quiet=quiet, as_json=as_json, stopped=stopped) as events:
        manifest = run(config, events, overwrite=overwrite)
    if not quiet:
        log_dataset(config.output.dir, manifest)
    if as_json:
        show_json(manifest.plain)
        return
    if quiet:
        return
    show_dataset(manifest)
    if profile:
        from tokmill.inspect.summary import profile_rows

        show()
        show_rows(profile_rows(manifest))
    if config.model is not None:
        from tokmill.cli.bill import show_at_end  # costs 0.1 s

        show_at_end(config, manifest)


def show_dataset(manifest: Manifest) -> None:
    """Print the contents of a finished dataset."""
    from tokmill.inspect.summary import summary_rows
    from tokmill.urls import is_store

    place = manifest.config.output.dir
    where = place if is_store(place) else str(Path(place))
    show_rows(summary_rows(manifest, where, manifest.n_bytes))


# A run as an array of tasks


def _code(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """Return the names of `--allow-code`, which have commas between them."""
    return [name.strip() for value in values for name in value.split(",")]


_allow_code = click.option(
    "--allow-code", multiple=True, metavar="MODULE:FUNCTION,…", callback=_code,
    help="Import this, if the plan names it; other code in a plan stops the command.",
)  # fmt: skip


@click.command("run-part")
@click.argument("output")
@click.option("--index", type=int, required=True, help="Which task this is, from 0.")
@click.option("--of", "n_tasks", type=int, required=True, help="How many tasks there are.")
@_allow_code
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@log_option
def run_part(output: str, index: int, n_tasks: int, allow_code: list[str], quiet: bool) -> None:
    """Work on one task's share of a run: the parts --index, --index + --of, and so on.

    `tokmill plan --write` writes the plan of the run into OUTPUT. Tasks may run at the same time on
    any machines that see the input and OUTPUT under the same paths. The same command continues a
    task that was stopped.

    \b
    Examples:
      tokmill run-part out --index $SLURM_ARRAY_TASK_ID --of 8
      tokmill run-part out --index $JOB_COMPLETION_INDEX --of 8
      tokmill run-part out --index 0 --of 8 --allow-code my_render:render
    """
    from tokmill.run.tasks import run_share

    with observer(quiet=quiet, stopped=CONTINUES) as events:
        records = run_share(output, index, n_tasks, events, allow_code)
    if not quiet:
        n_tokens = sum(record.total().tokens for record in records)
        done = f"{plural(len(records), 'part')} done, {plural(n_tokens, 'token')}"
        line = f"task {index} of {n_tasks}: {done if records else 'no part is left for it'}"
        log_result(line, output=output, parts=len(records), tokens=n_tokens)
        show(line)


@click.command("status")
@click.argument("output")
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def status(output: str, as_json: bool) -> None:
    """Show which parts of a run or mix are done, running, failed or missing, and how far it is.

    Failed parts belong to a task that stopped with an error, running ones to a task that has begun;
    whether it was killed since cannot be seen from here. Part P belongs to task P modulo --of.

    \b
    Examples:
      tokmill status out
    """
    from tokmill.api.jobs import place_of
    from tokmill.api.progress import Progress
    from tokmill.run.tasks import array_status

    state = array_status(place_of(output))
    if as_json:
        show_json(asdict(state))
        return
    is_working = state.is_working or state.are_tasks_working
    is_unsure = state.last_written and not state.is_finished
    progress = Progress(**state.totals, elapsed_s=state.elapsed_s)
    show_rows(
        [
            *([("progress", progress.line())] if is_working or is_unsure else ()),
            *([("written", f"newest object of {state.last_written}")] if is_unsure else ()),
            ("done", f"{len(state.done):,} of {state.parts:,}"),
            *((name, _named(getattr(state, name))) for name in ("running", "failed", "missing")),
            ("dataset", _state_of_dataset(state, output)),
        ]
    )
    for task in state.tasks:
        warn(task)


def _state_of_dataset(state: ArrayStatus, output: str) -> str:
    """Return whether a dataset is finished, and else what is going on, or what to do."""
    from tokmill.dataset.made_by import MIX

    if state.is_finished:
        return "finished"
    if state.is_working:
        return f"{state.made_by} is writing it"
    if state.are_tasks_working:
        return "tasks are writing it"
    if state.made_by == MIX:
        return "not finished: the same tokmill mix command continues it"
    if state.undone:
        return "not finished"
    return f"not finished: tokmill finish {shlex.quote(output)}{allowing(state.code)}"


def _named(parts: Sequence[int]) -> str:
    """Return how many parts these are, and the first of them."""
    if not parts:
        return "0"
    more = ", …" if len(parts) > _MOST_NAMED else ""
    return f"{len(parts):,}: {', '.join(map(str, parts[:_MOST_NAMED]))}{more}"


def allowing(code: Sequence[str]) -> str:
    """Return the option, with a space before it, that allows the code of a plan; '' if none."""
    return f" --allow-code {','.join(code)}" if code else ""


@click.command("finish")
@click.argument("output")
@_allow_code
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and what --json asks for.")
@log_option
def finish(output: str, allow_code: list[str], as_json: bool, quiet: bool) -> None:
    """Finish a run whose parts are done: sum up, pack samples, write the manifest.

    \b
    Examples:
      tokmill finish out
    """
    from tokmill.run.tasks import finish_array

    with observer(quiet=quiet, as_json=as_json, stopped=NOT_BEGUN) as events:
        manifest = finish_array(output, events, allow_code)
    if not quiet:
        log_dataset(output, manifest)
    if as_json:
        show_json(manifest.plain)
    elif not quiet:
        show_dataset(manifest)
