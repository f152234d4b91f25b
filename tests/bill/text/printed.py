"""A bill made of settings, and what the terminal shows of it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.full_bill import FullBill, full_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.on_disk import DatasetDisk, DatasetSize, OnDisk, predicted_disk
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

GPT2 = ModelSettings(name="gpt2")
SIZE = DatasetSize(
    "pretrain", 10_000_000, 2000, 2, vocabulary=50_257, length_histogram=(0,) * 12 + (2000,)
)
PLANNED = OnDisk("out", SIZE, predicted_disk(SIZE, slices=1), 50 * 10**9)
EXACT = tuple(
    replace(line, low_bytes=line.n_bytes, high_bytes=line.n_bytes) for line in PLANNED.bill.lines
)
FOUND = DatasetDisk(
    replace(PLANNED.bill, lines=EXACT), (), (), (".lock",), "uint16", 10_000_000, 10**7, 0
)


def bill(
    disk: OnDisk | None = None,
    model: ModelSettings = GPT2,
    machine: Machine | None = None,
    asked: dict[str, Any] | None = None,
    **training: Any,
) -> FullBill:
    """Return the bill of settings of training; `asked`: other fields of `BillSettings`."""
    how = {"inference": InferenceSettings(), **(asked or {})}
    settings = BillSettings(model, TrainingSettings(**training), **how)
    return full_bill(complete_inputs(settings, disk, machine or Machine()))


def printed(tables: Iterable[RenderableType], width: int = 150) -> str:
    """Return what a terminal of a width shows, without spaces at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in tables:
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
