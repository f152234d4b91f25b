"""Options of the bill: model, training, inference, settings files, output.

Precedence: option, variable, settings file of another program, `--config`, the dataset's own
configuration, default.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.bill.text import PARTS
from tokmill.cli.options import config_option, option_values, origin, section_options
from tokmill.settings.schema import BILL_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.bill.bill_settings import BillSettings

_FILES = {
    "deepspeed": "A DeepSpeed configuration (JSON).",
    "training_args": "TrainingArguments of Hugging Face (JSON or YAML).",
    "axolotl": "An axolotl configuration (YAML).",
}


HEADINGS = {
    "config_file": "Settings files",
    "model__name": "Model",
    "training__gpu": "Machines",
    "training__precision": "Precision and optimizer",
    "training__micro_batch": "Batch and activations",
    "training__framework": "Sharding, offload and parallelism",
    "training__adapter": "Adapters",
    "training__metric_batches": "Evaluation",
    "training__initialization": "Host RAM and loading of the dataset",
    "training__fragmentation": "Time, cost, disk and fragmentation",
    "inference__batch": "Inference",
    "deepspeed": "Settings files",
    "only": "Output",
}
"""Headings of the help by the first option below them."""


class BillCommand(click.Command):
    """A command whose help groups options below headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each below the last heading before it."""
        groups: dict[str, list[tuple[str, str]]] = {}
        heading = "Options"
        for option in self.get_params(ctx):
            heading = HEADINGS.get(option.name or "", heading)
            record = option.get_help_record(ctx)
            if record is not None:
                groups.setdefault(heading, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def bill_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--config`, every setting of the bill, and the settings files to a command."""
    for name, text in reversed(_FILES.items()):
        flag = f"--{name.replace('_', '-')}"
        path = click.Path(path_type=Path)
        command = click.option(flag, name, type=path, metavar="FILE", help=text)(command)
    return config_option(section_options(*BILL_SECTIONS)(command))


def show_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose the output of a bill to a command."""
    options = (
        click.option(
            "--only", multiple=True, type=click.Choice(PARTS),
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


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add only `--model` and `--gpu` to a command; its `--config` may hold other settings."""
    return section_options(*BILL_SECTIONS, only=("model", "gpu"))(command)


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
    given = option_values({key: value for key, value in options.items() if key not in _FILES})
    return bill_settings(base or {}, config_file, files, given, origin(config_file))
