"""`tokmill plan`."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.options import (
    GroupedCommand,
    Option,
    config_option,
    input_argument,
    setting_options,
)
from tokmill.cli.run import allowing
from tokmill.cli.screen import (
    Log,
    log_option,
    log_result,
    observer,
    show,
    show_json,
    show_rows,
    warn,
)
from tokmill.errors import UsageError
from tokmill.settings.schema import PRETRAIN_SECTIONS
from tokmill.words import plural, size

if TYPE_CHECKING:
    from tokmill.run.tasks import ArrayStatus
    from tokmill.settings.schema import Config

_MORE = "tokmill memory --all, with the same --config, --model and --gpu"
_SECTIONS = (*PRETRAIN_SECTIONS, "sft")


@click.command("plan", cls=GroupedCommand)
@input_argument
@click.option(
    "--recipe",
    type=click.Choice(("pretrain", "sft")),
    cls=Option,
    heading="Plan",
    help="Which run; by default found by the settings and the first records, and said.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Begin the run, for tasks on many machines: write its plan into --output.",
)
@click.option(
    "--overwrite", is_flag=True, help="With --write, replace the dataset or export in --output."
)
@click.option("--json", "as_json", is_flag=True, help="Print the forecast as JSON.")
@log_option
@config_option("Settings of the run")
@setting_options(*_SECTIONS, hidden=("render", "sft"))
def command(
    paths: tuple[str, ...],
    config_file: Path | None,
    recipe: str | None,
    write: bool,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict tokens, disk, time and memory of `tokmill pretrain` or `tokmill sft`.

    Takes all options of these, also those on records and chats that are not listed here. Nothing
    is written without --write. Input of up to 4 MB is read completely; tokens and documents are
    then exact. Of larger input 5% are sampled, 2 to 8 MB, all over it; of compressed files, JSON
    arrays and CSV, all over their first 256 MB.

    \b
    Examples:
      tokmill plan baike.jsonl --tokenizer my_tokenizer/ --output out
      tokmill plan chats.jsonl --tokenizer qwen2.5/ --packing 4096
      tokmill plan corpus/*.jsonl --tokenizer gpt2/ --output out --write
    """
    from tokmill.api.forecast import forecast
    from tokmill.api.jobs import run_config
    from tokmill.cli.bill import show_bill
    from tokmill.inspect.summary import forecast_rows
    from tokmill.run.tasks import array_status, plan_array

    if overwrite and not write:
        raise UsageError("--overwrite: a forecast writes nothing: give --write too")
    has_notes = Log.is_json or not as_json
    note = partial(show, err=True) if has_notes else (lambda text: None)
    chosen = {name: value for name, value in options.items() if value is not None}  # for any recipe
    config = run_config(recipe, paths, config_file, chosen, note)
    predicted = forecast(config, warn, note)
    log_result(f"forecast: {plural(predicted.tokens, 'token')}", **predicted.values)
    if as_json:
        show_json(predicted.values)
    else:
        show_rows(forecast_rows(predicted.values, predicted.free_bytes))
        if predicted.bill.of_model is not None:
            show()
            show_bill(predicted.bill, more=_MORE)
    if predicted.problem is not None:  # a run with these settings would stop
        raise predicted.problem
    if not write:
        return
    with observer(as_json=True) as events:  # the forecast has said what there is to say
        plan_array(config, events, overwrite=overwrite)
    if not as_json:
        show()
        packs = _packing(config, predicted.documents_high)
        show_rows(array_steps(array_status(config.output.dir), packs))


def _packing(config: Config, n_samples: int) -> str:
    """Return that the finish packs, and with what memory; '' if it does not."""
    if config.sft is None or not config.sft.packing:
        return ""
    from tokmill.dataset.packing import MEMORY_BYTES_PER_SAMPLE

    return f"; it packs all samples, with {size(MEMORY_BYTES_PER_SAMPLE * n_samples)} of memory"


def array_steps(status: ArrayStatus, packs: str = "") -> list[tuple[str, str]]:
    """Return what to do with the plan of an array; `packs`: what the finish says of packing."""
    output, parts = status.directory, status.parts
    named = shlex.quote(output)
    code = allowing(status.code)
    return [
        ("plan", f"{output}: {plural(parts, 'part')}, so up to {plural(parts, 'task')}"),
        ("tasks", f"tokmill run-part {named} --index I --of N{code}, for every I from 0 to N - 1"),
        ("then", f"tokmill finish {named}{code}{packs}"),
    ]
