"""`tokmill memory`, and the bill on the screen: its options and its tables.

Precedence: option, variable, `--deepspeed`, `--config`, the dataset's own configuration, default.
"""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.bill.text import PARTS
from tokmill.cli.options import GroupedCommand, Option, config_option, setting_options, with_options
from tokmill.cli.screen import print_tables, show, show_json, show_rows, warn
from tokmill.errors import TokmillError, UsageError
from tokmill.settings.load import argument_values
from tokmill.settings.schema import BILL_SECTIONS, Config
from tokmill.urls import shown_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.full_bill import FullBill
    from tokmill.bill.inputs import Inputs
    from tokmill.dataset.manifest import Manifest

FIRST = (
    "model", "gpu", "gpus", "precision", "optimizer", "micro_batch", "sequence", "checkpointing",
    "sharding", "adapter", "tokens", "context", "only", "explain", "as_json",
)  # fmt: skip
"""Options on the first screen of help."""
MORE = f"--only {'|'.join(PARTS)}, --all, or --explain (formulas)"

bill_options = with_options(
    config_option("Settings files"),
    click.option(
        "--deepspeed", type=click.Path(path_type=Path), metavar="FILE",
        help="A DeepSpeed configuration (JSON).",
    ),
    setting_options(*BILL_SECTIONS),
    click.option("--users", type=int, metavar="INTEGER", help="The same as --batch."),
    click.option("--lora", is_flag=True, help="The same as --adapter lora."),
    click.option("--qlora", is_flag=True, help="The same as --adapter qlora."),
)  # fmt: skip
"""`--config`, `--deepspeed`, the settings of the bill, and short names of usual values."""
ADAPTERS = ("lora", "qlora")
"""Adapters that are options of their own."""

show_options = with_options(
    click.option(
        "--only", cls=Option, heading="Output", multiple=True, type=click.Choice(PARTS),
        help="Show the tables of a part; may be repeated.",
    ),
    click.option("--all", "everything", is_flag=True, help="Show the tables of all parts."),
    click.option(
        "--explain", is_flag=True, help="Show formula, symbols and source of each amount.",
    ),
    click.option(
        "--measure", type=int, metavar="PID",
        help="Compare the host RAM of a running training. Watches the process and its children, "
        "until it ends or Ctrl-C is pressed.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
)  # fmt: skip
"""The options that choose the output of a bill."""


def bill_settings_of(
    config_file: Path | None,
    options: Mapping[str, Any],
    base: Mapping[str, Mapping[str, Any]] | None = None,
) -> BillSettings:
    """Return the settings of a bill from all sources; `base`: configuration of the dataset.

    Raises:
        UsageError: a file cannot be read, or a value is wrong.
    """
    from tokmill.bill.bill_settings import bill_settings

    settings = dict(options)
    deepspeed = settings.pop("deepspeed", None)
    for adapter in ADAPTERS:
        if settings.pop(adapter, False):
            if settings.get("adapter") not in (None, adapter):
                raise UsageError(f"--{adapter}: leave out --adapter={settings['adapter']}")
            settings["adapter"] = adapter
    if (users := settings.pop("users", None)) is not None:
        if settings.get("batch") not in (None, users):
            raise UsageError(f"--users: leave out --batch={settings['batch']}")
        settings["batch"] = users
    values = argument_values(BILL_SECTIONS, settings)
    return bill_settings(base or {}, config_file, deepspeed, values)


def show_bill(
    bill: FullBill,
    *,
    only: tuple[str, ...] = (),
    everything: bool = False,
    explain: bool = False,
    more: str = MORE,
) -> None:
    """Print the summary of a bill, and the tables of the options --only, --all and --explain.

    `more`: text of the last row if there are no tables; it names the options that show them.
    """
    from tokmill.bill.text.breakdown import bill_tables
    from tokmill.bill.text.summary import Row, asked_parts, summary_rows
    from tokmill.terminal_tables import labelled

    parts = only or (PARTS if everything else asked_parts(bill.settings))
    rows = list(summary_rows(bill, parts))
    if only or everything or explain:
        print_tables([labelled(rows)])
        print_tables(bill_tables(bill, parts, explain=explain))
    else:
        print_tables([labelled([*rows, Row("more", more)])])


def print_bill(
    bill: FullBill,
    only: tuple[str, ...],
    pid: int | None,
    *,
    everything: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Print a bill as the options of the output say, with the host RAM of a training if asked.

    Raises:
        UsageError: `pid` is no running process.
    """
    watched = None
    if pid is not None:
        from tokmill.machine.process_tree import measured

        watched = measured(pid, partial(show, err=True))
    if as_json:
        more = {} if watched is None else {"measured": watched.as_json()}
        show_json({**bill.as_json(), **more})
        return
    show_bill(bill, only=only, everything=everything, explain=explain)
    if watched is not None:
        from tokmill.bill.text.breakdown import measured_table

        show()
        print_tables([measured_table(watched, bill.host)])


def show_at_end(config: Config, manifest: Manifest) -> None:
    """Print the bill of the dataset that a run has made, if the configuration names a model.

    An error of the bill is printed as a warning.
    """
    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.inputs import complete_inputs
    from tokmill.bill.on_disk import on_disk

    settings, directory = BillSettings.of(config), Path(config.output.dir)
    if not settings.names_a_model:
        return
    try:
        bill = full_bill(complete_inputs(settings, on_disk(directory, manifest.plain)))
    except TokmillError as error:
        warn(f"no bill: {error}")
        return
    show()
    show_bill(
        bill,
        more=f"tokmill report {shlex.quote(shown_place(directory))} --all, or --explain (formulas)",
    )


@click.command("memory", cls=GroupedCommand, first=(*FIRST, "states", "compare"))
@bill_options
@show_options
@click.option(
    "--states",
    is_flag=True,
    help="Show weights, gradients, optimizer states alone. Also by sharding, optimizer and weight "
    "type, and with --explain the parameters of a layer.",
)
@click.option(
    "--compare",
    multiple=True,
    is_flag=False,
    flag_value="",
    metavar="[SETTING=VALUE,...]",
    help="Compare values of settings: model=gpt2,gpt2-xl or gpu=T4,A10; may be repeated. Without "
    "a setting: precision (or sharding), checkpointing and adapter.",
)
@click.option("--models", "list_models", is_flag=True, help="List the built-in models.")
@click.option("--known-gpus", "list_gpus", is_flag=True, help="List the built-in GPUs.")
@click.option("--formulas", is_flag=True, help="Print all formulas and their symbols.")
def memory_command(
    config_file: Path | None,
    as_json: bool,
    only: tuple[str, ...],
    everything: bool,
    explain: bool,
    states: bool,
    measure: int | None,
    compare: tuple[str, ...],
    list_models: bool,
    list_gpus: bool,
    formulas: bool,
    **options: Any,
) -> None:
    """Estimate GPU memory, host RAM, disk, time and cost of training or serving.

    Needs no GPU and no dataset. --explain shows the formulas of this bill, --formulas all. With
    an option such as --context, inference is billed. "fits" and "fits with" mean upper bounds,
    "may fit" and "largest" expected amounts.

    \b
    Examples:
      tokmill memory --model llama-3-8b --gpu A100-80 --gpus 8 --sharding zero-3
      tokmill memory --model llama-3-8b --gpu H100 --gpus 8 --tokens 1B
      tokmill memory --model config.json --gpu 24GiB --adapter qlora --sequence 4k
      tokmill memory --model qwen3-32b --gpu H100 --users 100 --context 8k
      tokmill memory --model qwen2.5-7b --gpu 4090 --compare
      tokmill memory --parameters 7.5B --gpus 64 --states
    """
    if formulas:
        from tokmill.bill.text.formulas import formulas_page

        if as_json:
            raise UsageError("--formulas: leave out --json")
        for line in formulas_page().splitlines():
            show(line)
        return
    if list_models or list_gpus:
        _list(models=list_models, gpus=list_gpus, as_json=as_json)
        return
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.inputs import complete_inputs

    if states and (compare or only or everything):
        raise UsageError("--states: leave out --compare, --only and --all")
    if measure is not None and (states or compare):
        raise UsageError("--measure: leave out --states and --compare")
    settings = bill_settings_of(config_file, options)
    if compare:
        _compare(settings, compare, as_json=as_json)
        return
    inputs = complete_inputs(settings, None)
    if not inputs.settings.training.dataset_bytes:
        inputs.require_model()
    if states:
        _states(inputs, explain=explain, as_json=as_json)
        return
    bill = full_bill(inputs)
    print_bill(bill, only, measure, everything=everything, explain=explain, as_json=as_json)


def _compare(settings: BillSettings, axes: tuple[str, ...], *, as_json: bool) -> None:
    """Print the GPU memory of every combination of some settings."""
    from tokmill.bill.full_bill import limit_of_ram
    from tokmill.bill.remedies.comparison import compare, read_axes
    from tokmill.bill.text.comparison import comparison_tables

    comparison = compare(settings, read_axes(axes, settings.training), host=limit_of_ram)
    if as_json:
        show_json(comparison.as_json())
    else:
        print_tables(comparison_tables(comparison))


def _states(inputs: Inputs, *, explain: bool, as_json: bool) -> None:
    """Print weights, gradients and optimizer states alone."""
    from tokmill.bill.text.breakdown import states_json, states_tables

    model, training = inputs.require_model(), inputs.settings.training
    if as_json:
        show_json(states_json(model, training))
    else:
        print_tables(states_tables(model, training, explain=explain))


def _list(*, models: bool, gpus: bool, as_json: bool) -> None:
    """Print the names of built-in models, of GPUs, or of both."""
    from tokmill.bill.gpus import known_gpus
    from tokmill.bill.models.known import known_models
    from tokmill.words import memory

    names = known_models() if models else ()
    sizes = {gpu.name: gpu.memory_bytes for gpu in known_gpus()} if gpus else {}
    if as_json:
        listed = {"models": list(names)} if models else {}
        show_json({"schema": 1, **listed, **({"gpus": sizes} if gpus else {})})
        return
    for name in names:
        show(name)
    if sizes:
        show_rows([(name, memory(n_bytes)) for name, n_bytes in sizes.items()])
