"""The bill on the page: its verdict for the head, then moments, alternatives, host RAM and disk.

It says what `tokmill report` prints of the same settings.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tokmill.bill.gpus import FITS, gpu_verdict, known_gpus
from tokmill.bill.remedies.comparison import Comparison, compare, default_axes
from tokmill.bill.text.rows import (
    GROUPS,
    VERDICTS,
    by_group,
    inference_table,
    moment,
    of_bill,
    of_moments,
)
from tokmill.bill.text.summary import asked_parts, summary_rows
from tokmill.page.markup import (
    Bar,
    Number,
    Said,
    Section,
    details,
    facts,
    keys,
    label,
    note,
    panel,
    panels,
    table,
    tiles,
)
from tokmill.urls import shown_place
from tokmill.words import amount, memory, plural, seconds, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokmill.bill.full_bill import FullBill, ModelBill
    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.comparison import Alternative
    from tokmill.bill.text.rows import Amounts
    from tokmill.inspect.summary import Rows
    from tokmill.page.markup import Cell

_ADVICE = ("largest", "fits with", "safer with", "may fit", "advice")
_IN_HEAD = ("verdict", "note", *_ADVICE)
"""Rows of the bill that the head of the page has."""
_FIRST_ROWS = 8


def verdict(directory: Path, bill: FullBill) -> str:
    """Return whether the model fits, on which GPU, and what training costs, as HTML."""
    of_model = bill.of_model
    if of_model is None:
        place = shlex.quote(shown_place(directory))
        command = f"tokmill report {place} --model llama-3.2-1b --gpu 'RTX 4090'"
        return (
            '<div class="verdict"><h2>Which GPU trains a model on this?</h2><p class="remark">'
            f"Name a model and a GPU: <code>{label(command, 200)} --html FILE</code></p></div>"
        )
    rows = list(summary_rows(bill, asked_parts(bill.settings)))
    said = next(row for row in rows if row.label == "verdict")
    told = [(row.label, row.text) for row in rows if row.label in _ADVICE]
    heading = of_model.model.name
    if of_model.gpu:
        heading += f" {said.text}"
    else:
        told.insert(0, (said.label, said.text))
    return (
        f'<div class="verdict {said.style}"><h2>{label(heading)}</h2>'
        f"{facts(told)}{tiles(_tiles(bill, of_model))}</div>"
    )


def _tiles(bill: FullBill, of_model: ModelBill) -> Iterator[tuple[str, str | Number, str]]:
    """Yield the memory, the smallest GPU that has it, time, cost and checkpoints."""
    trains, how = bill.settings.trains, bill.settings.training
    need = of_model.training.peak if trains else of_model.inference
    each = " of each GPU" if how.gpus > 1 else ""
    yield (
        f"GPU memory{each}",
        Number(memory(need.n_bytes), need.n_bytes),
        f"{memory(need.low_bytes)} to {memory(need.high_bytes)}",
    )
    fitting = [gpu for gpu in known_gpus() if gpu_verdict(need, gpu) == FITS]
    fitting.sort(key=lambda gpu: gpu.memory_bytes)
    if fitting:
        following = f"; then {fitting[1].name}" if fitting[1:] else ""
        remark = f"{memory(fitting[0].memory_bytes)}{following}"
        yield "smallest GPU it fits on", fitting[0].name, remark
    elif not need.missing:
        yield "smallest GPU it fits on", "none", "of those that tokmill knows"
    spent = of_model.compute
    if not trains or spent is None:
        return
    steps = f"{amount(spent.trained_tokens, 'token')}, {plural(spent.steps, 'step')}"
    taken, cost = spent.seconds, spent.cost
    yield "training time", "unknown" if taken is None else seconds(taken), steps
    if cost is not None:
        price = f"at {how.price_per_hour:g} an hour of a GPU"
        yield "cost", Number(f"{cost:,.2f}" if cost >= 0.01 else f"{cost:.1g}", cost), price
    elif taken is not None:
        yield "cost", "unknown", "add --price-per-hour"
    kept = f"{how.checkpoints:,} kept, 1 being written"
    yield "checkpoints on disk", f"up to {size(of_model.checkpoints.high_bytes)}", kept


def bill_section(directory: Path, bill: FullBill) -> Section:
    """Return the section of a dataset's bill: amounts, a chart of moments, alternatives, disk."""
    of_model = bill.of_model
    command = f"tokmill report {shlex.quote(shown_place(directory))} --explain"
    how = facts(_told(bill)) + note(f"Estimates by formulas, which {command} shows.")
    drawn = [_moments(of_model, bill)] if of_model else [panel("In words", how)]
    if bill.disk is not None:
        files = _amounts("Disk", "files", of_bill("disk", bill.disk.bill), size)
        drawn.append(panel("The dataset on disk", files))
    if of_model is None:
        return Section("bill", "Bill", panels(*drawn))
    alternatives = _alternatives(_compared(bill, of_model.model), of_model)
    host = of_moments("host", "Host RAM", bill.host.moments)
    other = details("Host RAM by moment", _amounts("Host RAM", "moment", host, memory))
    return Section("bill", "Bill", how + panels(*drawn) + alternatives + other)


def _told(bill: FullBill) -> Rows:
    """Return the rows of the command that the head lacks, and lines without a label below them."""
    told: list[list[str]] = []
    for name, text, _ in summary_rows(bill, asked_parts(bill.settings)):
        if name or not told:
            told.append([name, text])
        else:
            told[-1][1] += f"\n{text}"
    return [(name, text) for name, text in told if name not in _IN_HEAD]


def _moments(of_model: ModelBill, bill: FullBill) -> str:
    """Return the memory of a GPU by moment of a training step, or by its kind in inference."""
    gpu = of_model.gpu
    limit = gpu.memory_bytes if gpu else 0
    if not bill.settings.trains:
        drawn = _amounts("Inference", "kind", inference_table(of_model), memory)
        return panel("GPU memory of inference", drawn)
    moments = of_model.training.moments
    full = max([limit, *(each.n_bytes for each in moments)])
    rows: list[tuple[Cell, ...]] = []
    numbers: list[tuple[Cell, ...]] = []
    for each in moments:
        amounts = by_group(each)
        bar = Bar(amounts, full, limit=limit)
        rows.append((moment(each), bar, Number(memory(each.n_bytes), each.n_bytes)))
        numbers.append((moment(each), *(Number(memory(n), n) for n in amounts)))
    line = f"<li><b></b>{label(gpu.name)}, {memory(limit)}</li>" if gpu else ""
    by_kind = table("GPU memory by kind", ("moment", *GROUPS), numbers)
    return panel(
        "GPU memory of training",
        keys(GROUPS, line),
        table("GPU memory of training", ("moment", "", "expected"), rows),
        details("Amounts by kind", by_kind),
    )


def _compared(bill: FullBill, model: Model) -> Comparison:
    """Return the usual alternatives of training, or of inference if only that is billed."""
    settings = bill.settings
    if settings.trains:
        return compare(settings, default_axes(settings.training), model)
    contexts = (2048, 4096, 8192, 16384, 32768)
    return compare(settings, {"weight_type": ("bf16", "int8", "int4"), "context": contexts}, model)


def _alternatives(comparison: Comparison, of_model: ModelBill) -> str:
    """Return a row for each alternative: its settings, memory and verdict; what fits is first."""
    limit = of_model.gpu.memory_bytes if of_model.gpu else 0
    full = max([limit, *(each.n_bytes for each in comparison.alternatives)])
    rows: list[tuple[Cell, ...]] = []
    for each in sorted(comparison.alternatives, key=_rank):
        first, *others = map(str, each.values)
        if each.why_not:
            rows.append((first, *others, f"not possible: {each.why_not}", "", "", ""))
            continue
        told = VERDICTS.get(each.verdict)
        said = Said(told.page, told.colour) if told else Said(each.verdict, "")
        expected, most = (Number(memory(n), n) for n in (each.n_bytes, each.high_bytes))
        rows.append((first, *others, said, Bar((each.n_bytes,), full, limit=limit), expected, most))
    options = (f"--{name.replace('_', '-')}" for name in comparison.axes)
    head = (*options, "fits", "", "expected", "at most")
    drawn = table("Alternatives", head, rows, first=_FIRST_ROWS)
    return panels(panel("Alternatives", note(comparison.title), drawn))


def _rank(each: Alternative) -> int:
    """Return the place of an alternative: what fits comes first, what is not possible last."""
    if each.why_not:
        return len(VERDICTS) + 1
    return [*VERDICTS, each.verdict].index(each.verdict)


def _amounts(name: str, kind: str, amounts: Amounts, written: Callable[[float], str]) -> str:
    """Return named amounts of bytes with bars, whose scale is the largest of them."""
    full = max((each.n_bytes for _, each in amounts.rows), default=1)
    rows = [
        (each, Bar((of.n_bytes,), full), Number(written(of.n_bytes), of.n_bytes))
        for each, of in amounts.rows
    ]
    return table(name, (kind, "", ""), rows)
