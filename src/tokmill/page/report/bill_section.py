"""The bill's section of the page: its text, moments and files as bars, and a table of alternatives.

It says what `tokmill report` prints of the same settings.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tokmill.bill.overhead import CUDA_CONTEXT, FRAGMENTATION, WORKSPACES
from tokmill.bill.remedies.comparison import Comparison, compare, default_axes
from tokmill.bill.states.optimizers import STATES
from tokmill.bill.states.states import GRADIENTS, REFERENCE, WEIGHTS
from tokmill.bill.text.summary import asked_parts, summary_rows
from tokmill.bill.text.tables import moment
from tokmill.page.report.charts import Chart, Line, Row, bars, stacks
from tokmill.page.report.section import Cell, Section, facts, note, table
from tokmill.words.units import memory, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.formula import Bill
    from tokmill.bill.full_bill import FullBill, ModelBill
    from tokmill.bill.models.model import Model
    from tokmill.page.summary import Rows

_GROUPS: Mapping[str, str] = {
    **dict.fromkeys((WEIGHTS.name, REFERENCE.name), "weights"),
    GRADIENTS.name: "gradients",
    **dict.fromkeys(STATES, "optimizer states"),
    **dict.fromkeys(
        (WORKSPACES.name, CUDA_CONTEXT.name, FRAGMENTATION.name), "CUDA and fragmentation"
    ),
}
"""The group of a line by its name; others are activations if they grow with a batch's tokens."""
_ACTIVATIONS, _OTHERS = "activations and logits", "temporary and buffers"
_MOMENTS = Chart(
    "bill-moments",
    "GPU memory of training by moment",
    "A stacked bar for each moment of a training step: expected memory of the fullest GPU. A line "
    "marks the memory of the GPU.",
    tuple(dict.fromkeys((*_GROUPS.values(), _ACTIVATIONS, _OTHERS))),
    key="moment",
    written=memory,
    tones=(1, 2, 3, 7, 5, 8),
)
_HOST = Chart(
    "bill-host",
    "Host RAM of a machine by moment",
    "A bar for each moment of training: expected committed memory of a machine.",
    ("host RAM",),
    key="moment",
    written=memory,
)
_DISK = Chart(
    "bill-disk",
    "Disk by kind of file",
    "A bar for each kind of file of the dataset, and for the checkpoints of training.",
    ("on disk",),
    key="files",
    written=size,
)


def bill_section(directory: Path, bill: FullBill) -> Section:
    """Return the section of a dataset's bill; `data` has its moments and alternatives in bytes."""
    command = f"tokmill report {shlex.quote(str(directory))} --explain"
    html = note(f"Amounts are estimates by formulas, which {command} shows.")
    html += facts(_text_rows(bill))
    data: dict[str, object] = {"moments": {}, "alternatives": []}
    if bill.of_model is not None:
        comparison = _alternatives(bill.settings, bill.of_model.model)
        html += _moments(bill.of_model) + _table(comparison)
        data["moments"] = {moment(each): each.n_bytes for each in bill.of_model.training.moments}
        data["alternatives"] = comparison.as_json()["alternatives"]
    host = bill.host.moments
    html += bars(_HOST, [Row(moment(each), (each.n_bytes,), memory(each.n_bytes)) for each in host])
    rows = list(_disk_rows(bill))
    html += bars(_DISK, rows) if rows else ""
    return Section("bill", "Bill: memory, time and disk", html, data, menu="Bill")


def _text_rows(bill: FullBill) -> Rows:
    """Return the rows of the command, those without a label as lines of the row above."""
    rows: list[tuple[str, str]] = []
    for name, text, _ in summary_rows(bill, asked_parts(bill.settings)):
        if name or not rows:
            rows.append((name, text))
        else:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]}\n{text}")
    return rows


def _moments(of_model: ModelBill) -> str:
    gpu = of_model.gpu
    line = Line(gpu.memory_bytes, f"{gpu.name}, {memory(gpu.memory_bytes)}") if gpu else None
    rows = [
        Row(moment(each), _by_group(each), memory(each.n_bytes))
        for each in of_model.training.moments
    ]
    return stacks(_MOMENTS, rows, line=line)


def _by_group(bill: Bill) -> tuple[int, ...]:
    """Return the expected bytes of each group of lines."""
    amounts = dict.fromkeys(_MOMENTS.names, 0)
    for line in bill.lines:
        default = _ACTIVATIONS if "n" in line.symbols else _OTHERS
        amounts[_GROUPS.get(line.name, default)] += line.n_bytes
    return tuple(amounts.values())


def _alternatives(settings: BillSettings, model: Model) -> Comparison:
    """Return the usual alternatives of training, or of inference if only that is billed."""
    if settings.trains:
        return compare(settings, default_axes(settings.training), model)
    contexts = (2048, 4096, 8192, 16384, 32768)
    return compare(settings, {"weight_type": ("bf16", "int8", "int4"), "context": contexts}, model)


def _table(comparison: Comparison) -> str:
    """Return a row for each alternative: its settings, memory and verdict."""
    names = (name.replace("_", "-") for name in comparison.axes)
    rows = [
        (
            ", ".join(map(str, each.values)),
            "" if each.why_not else Cell(memory(each.n_bytes)),
            "" if each.why_not else Cell(memory(each.high_bytes)),
            f"not possible: {each.why_not}" if each.why_not else each.verdict,
        )
        for each in comparison.alternatives
    ]
    head = (", ".join(names), "expected", "at most", "fits")
    return f"<h3>Alternatives</h3>{table(head, rows, comparison.title)}"


def _disk_rows(bill: FullBill) -> Iterator[Row]:
    if bill.disk is not None:
        for line in bill.disk.bill.lines:
            yield Row(line.name, (line.n_bytes,), size(line.n_bytes))
    if bill.of_model is not None and bill.settings.trains:
        n_bytes = bill.of_model.checkpoints.high_bytes
        yield Row("checkpoints", (n_bytes,), f"up to {size(n_bytes)}")
