"""The bill's section of the page: training, serving, host RAM and disk of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from tokmill.bill.full_bill import FullBill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.measuring.machine import this_machine
from tokmill.bill.text.summary import missing_disk_bytes, other_problems
from tokmill.page.markup import label
from tokmill.page.report.bill.axes import Axes, axes_of
from tokmill.page.report.bill.cases import cases_of
from tokmill.page.report.bill.chart import Chart, figure
from tokmill.page.report.bill.choices import choices, segments, selection
from tokmill.page.report.bill.groups import LOADING_GROUPS, SERVING_GROUPS, TRAINING_GROUPS
from tokmill.page.report.bill.others import (
    disk_chart,
    loading_bars,
    own_rows,
    own_text,
    serving_bars,
    serving_words,
)
from tokmill.page.report.bill.plain import plain_data
from tokmill.page.report.bill.style import STYLE
from tokmill.page.report.bill.tables import Loading, Serving, loading_of, serving_of
from tokmill.page.report.bill.words import View, bars, title, view_of, words
from tokmill.page.report.section import Section, facts, note

ID = "bill"
WEIGHT_NAMES = {"auto": "as stored"}
TRAINING = Chart(
    "bill-training",
    "",
    "A stacked bar for the settings and for each of some alternatives: expected memory of the "
    "fullest GPU at the peak of a training step. A vertical line marks the memory of the GPU.",
    TRAINING_GROUPS,
    (1, 2, 3, 5, 4, 7, 8, 6),
    "settings",
)
SERVING = Chart(
    "bill-serving",
    "",
    "A stacked bar for each context: expected memory of a GPU that serves the model. A vertical "
    "line marks the memory of the GPU.",
    SERVING_GROUPS,
    (1, 3, 5, 4, 8, 6),
    "context",
)
LOADING_CHART = Chart(
    "bill-loading",
    "Committed host RAM of loading this dataset, at its peak",
    "A stacked bar for each way to load the dataset: expected committed memory of a machine that "
    "trains, without the model.",
    LOADING_GROUPS,
    (1, 3, 4, 5),
    "strategy",
)


def bill_section(
    directory: Path,
    manifest: Mapping[str, Any],
    bill: FullBill,
    *,
    machine: Machine | None = None,
) -> Section:
    """Return the section of a dataset and its bill; `data` has every case that can be chosen.

    Args:
        directory: the dataset.
        manifest: of the dataset.
        bill: of the dataset; without a model, models are chosen by the vocabulary.
        machine: where it is loaded; None: this machine, if it has the GPUs of the settings.
    """
    model = bill.of_model.model if bill.of_model else None
    size = bill.disk.size if bill.disk else None
    axes = axes_of(bill.settings, model, size.vocabulary if size else 0)
    recorded = manifest.get("config", {}).get("training") or {}
    command = (str(directory), recorded)
    view = view_of(axes, cases_of(axes, size), size, bill.settings, command)
    serving = serving_of(axes, bill.settings.inference)
    loading = None
    if size is not None:
        training = bill.settings.training
        loading = loading_of(training, size, machine or this_machine())
    html = (
        f"{_intro()}{_training(view, bill)}{_serving(axes, serving)}{_host(bill, loading)}"
        f"{_disk(bill)}"
    )
    data = plain_data(view, serving, loading)
    script = Path(__file__).with_name("script.js").read_text(encoding="utf-8")
    return Section(ID, "Bill: memory, time and disk", html, data, script, STYLE, "Bill")


def _intro() -> str:
    return note(
        "Amounts are estimates by formulas; tokmill memory --explain shows them. The thin line at "
        "the end of a bar reaches from the lower to the upper bound."
    )


def _training(view: View, bill: FullBill) -> str:
    axes, (model, gpu, spread, batch, sequence) = view.axes, view.axes.start
    controls = choices("Model and machine", (
        selection("model", "Model", (each.model.name for each in axes.models), model),
        selection("gpu", "GPU", (each.name for each in axes.gpus), gpu),
        selection("spread", "GPUs and sharding", (each.label for each in axes.spreads), spread),
        segments("batch", "Micro batch", map("{:,}".format, axes.batches), batch),
        segments("sequence", "Sequence", map("{:,}".format, axes.sequences), sequence),
    ))  # fmt: skip
    found = words(view, axes.start)
    rows, limit = bars(view, axes.start)
    chart = figure(_titled(TRAINING, title(axes, axes.start)), rows, limit)
    own = (
        own_rows(bill, "gpu", ("largest", "fits with", "may fit", "safer with"))
        if bill.of_model
        else []
    )
    texts = (
        ("GPU memory", "memory", found.memory),
        ("to make it fit", "remedies", found.remedies),
        ("time", "time", found.time),
    )
    items = "".join(
        f"<div{'' if text else ' hidden'}><dt>{name}</dt>"
        f'<dd data-text="{key}">{escape(text)}</dd></div>'
        for name, key, text in texts
    )
    notes = "".join(f"<li>{label(text)}</li>" for text in found.notes)
    return (
        f"<h3>GPU memory of training</h3>{_unnamed(axes)}{controls}"
        f'<p class="verdict {found.kind}" role="status" data-text="verdict">'
        f"{escape(found.verdict)}</p>{_problems(bill)}"
        f'<dl class="facts">{items}</dl>'
        f'<ul class="list remark" data-text="notes">{notes}</ul>{chart}'
        f'<div class="own">{facts(_renamed(own)) if own else ""}</div>'
        '<p class="remark">Everything about this case, with formulas:</p>'
        f'<pre><code data-text="command">{escape(found.command)} --explain</code></pre>'
    )


def _problems(bill: FullBill) -> str:
    """Return what else stops the settings' own case, as the command says it in its verdict."""
    found = "; ".join(other_problems(bill)) if bill.of_model else ""
    return f'<p class="verdict no own">{label(found[:1].upper() + found[1:])}</p>' if found else ""


def _renamed(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the rows of the settings' own case; the remedies there are chosen by a search."""
    names = {"fits with": "simplest way to fit", "safer with": "surely fits with"}
    return [(names.get(name, name), text) for name, text in rows]


def _unnamed(axes: Axes) -> str:
    """Return what the settings lack, and what is shown for it."""
    has_model, has_gpu = axes.chosen
    lacking = [] if has_model else ["model"]
    lacking += [] if has_gpu else ["GPU"]
    if not lacking:
        return ""
    options = " and ".join(f"--{name.lower()}" for name in lacking)
    chosen = (
        "" if has_model else " The models listed have an embedding for every id of the tokenizer."
    )
    return note(
        f"The settings name no {' and no '.join(lacking)}: this is an example.{chosen} "
        f"Run tokmill report with {options} to see yours."
    )


def _serving(axes: Axes, table: Serving) -> str:
    kind, batch, _ = table.start
    at = (axes.start[0], axes.start[1], kind, batch)
    controls = choices("Serving", (
        segments("weights", "Weights", (WEIGHT_NAMES.get(n, n) for n in table.weights), kind),
        segments("served", "Sequences at once", map("{:,}".format, table.batches), batch),
    ))  # fmt: skip
    said, verdict = serving_words(axes, table, at)
    rows, limit = serving_bars(axes, table, at)
    named = f"{axes.models[at[0]].model.name} on {axes.gpus[at[1]].name}: memory by context"
    return (
        f"<h3>GPU memory of serving</h3>{controls}"
        f'<p class="verdict {verdict}" role="status" data-text="served">{escape(said)}</p>'
        f"{figure(_titled(SERVING, named), rows, limit)}"
    )


def _host(bill: FullBill, table: Loading | None) -> str:
    text = note(f"With the settings of the report: {own_text(bill, 'host', 'host RAM')}.")
    if table is None:
        return f"<h3>Host RAM</h3>{text}"
    controls = choices("Loading", (
        segments("workers", "Loader workers", map("{:,}".format, table.workers), table.start[1]),
        segments("starts", "Workers start by", table.starts, table.start[0]),
    ))  # fmt: skip
    rows, limit = loading_bars(table, table.start[:2])
    return f"<h3>Host RAM</h3>{text}{controls}{figure(LOADING_CHART, rows, limit)}"


def _disk(bill: FullBill) -> str:
    text = own_text(bill, "disk", "disk")
    if not text:
        return ""
    said = f'<p class="verdict no">{label(text)}</p>' if missing_disk_bytes(bill) else note(text)
    return f"<h3>Disk</h3>{said}{disk_chart(bill)}"


def _titled(chart: Chart, text: str) -> Chart:
    return Chart(chart.id, text, chart.about, chart.groups, chart.tones, chart.key)
