"""Options of the bill: model, training, inference, settings files, output.

Precedence: option, variable, settings file of another program, `--config`, the dataset's own
configuration, default.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.bill.text import PARTS
from tokmill.cli.options import Option, config_option, setting_options, values_of
from tokmill.settings.load import argument_values
from tokmill.settings.schema import BILL_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.bill.bill_settings import BillSettings

_FILES = {
    "deepspeed": "A DeepSpeed configuration (JSON).",
    "training_args": "TrainingArguments of Hugging Face (JSON or YAML).",
    "axolotl": "An axolotl configuration (YAML).",
}


def bill_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--config`, settings files of other programs, and the settings of the bill."""
    command = setting_options(*BILL_SECTIONS)(command)
    for name, text in reversed(_FILES.items()):
        option = f"--{name.replace('_', '-')}"
        path = click.Path(path_type=Path)
        command = click.option(option, name, type=path, metavar="FILE", help=text)(command)
    return config_option("Settings files")(command)


def show_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose the output of a bill to a command."""
    options = (
        click.option(
            "--only", cls=Option, heading="Output", multiple=True, type=click.Choice(PARTS),
            help="Show the tables of this part only; may be repeated.",
        ),
        click.option("--all", "everything", is_flag=True, help="Show the tables of all parts."),
        click.option(
            "--explain", is_flag=True,
            help="Show tables with formula, symbols and source of each amount.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def settled(
    config_file: Path | None,
    options: Mapping[str, Any],
    base: Mapping[str, Mapping[str, Any]] | None = None,
) -> BillSettings:
    """Return the settings of a bill from all sources; `base`: configuration of the dataset.

    Raises:
        UsageError: a file cannot be read, or a value is wrong.
    """
    from tokmill.bill.bill_settings import bill_settings

    files = {name: options[name] for name in _FILES if options.get(name) is not None}
    settings = {name: value for name, value in options.items() if name not in _FILES}
    given = argument_values(BILL_SECTIONS, values_of(BILL_SECTIONS, settings))
    return bill_settings(base or {}, config_file, files, given)
