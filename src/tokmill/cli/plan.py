"""`tokmill plan`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.bill_options import model_options
from tokmill.cli.options import config_from_options, settings_options
from tokmill.cli.screen import show, show_json, show_rows, warn
from tokmill.settings.schema import PRETRAIN_SECTIONS

if TYPE_CHECKING:
    from tokmill.settings.schema import Config


_MORE = "tokmill memory --all, with the same --config, --model and --gpu"


@click.command("plan")
@settings_options(*PRETRAIN_SECTIONS)
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print the forecast as JSON.")
def command(
    paths: tuple[str, ...], config_file: Path | None, as_json: bool, **options: Any
) -> None:
    """Predict tokens, disk, time and memory of `tokmill pretrain`; for chats: `tokmill sft --plan`.

    Nothing is written. Input of up to 4 MB is read completely; tokens and documents are then
    exact. Larger input is sampled: 5%, at least 2 MB. Compressed files, JSON arrays and CSV are
    sampled only at their beginning.

    \b
    Examples:
      tokmill plan baike.jsonl --tokenizer my_tokenizer/ --output out
    """
    show_plan(config_from_options(paths, config_file, options), as_json=as_json)


def show_plan(config: Config, *, as_json: bool) -> None:
    """Print the forecast of a run with these settings.

    Raises:
        UsageError: the input is standard input.
        RecordError: a run with these settings would stop; the forecast is printed before.
    """
    from tokmill.api.forecast import plan_run
    from tokmill.cli.bill import show_bill
    from tokmill.page.forecast import forecast_rows

    note = (lambda text: None) if as_json else partial(show, err=True)
    planned = plan_run(config, warn, note)
    values = planned.forecast.values
    if as_json:
        show_json(values)
    else:
        show_rows(forecast_rows(values, planned.forecast.free_bytes))
        if planned.bill.of_model is not None:
            show()
            show_bill(planned.bill, more=_MORE)
    if planned.problem is not None:
        raise planned.problem
