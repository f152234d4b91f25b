"""A case of the page's bill in words and bars; `script.js` says the same of the same table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS, Gpu
from tokmill.bill.inputs import model_notes, stored_notes, training_notes
from tokmill.bill.remedies.savings import options
from tokmill.bill.text.tables import bounded
from tokmill.page.report.bill.axes import Axes, place, spread_training
from tokmill.page.report.bill.cases import Cases
from tokmill.page.report.bill.chart import FITS_KINDS, NO_AMOUNT, Bar, Limit, shown
from tokmill.page.report.bill.groups import TRAINING_GROUPS
from tokmill.settings.training import TrainingSettings
from tokmill.words.units import count, memory

AS_SET = "as chosen"
NONE_ALONE = (
    "no single change below is enough; several together, more GPUs (ZeRO), shorter sequences or a "
    "smaller model need less"
)
NONE_NEEDED = "no change needed"
NOT_ALL = "parts are not included, which the command below names"
_CHOSEN = ("gpu", "gpus", "sharding", "micro_batch", "sequence")

At = tuple[int, int, int, int, int]
"""A case: the indices of its model, GPU, number of GPUs and sharding, micro batch and sequence."""


@dataclass(frozen=True, slots=True)
class View:
    """What the words of all cases need besides the table.

    `command` is the beginning of the command that prints a case. `trained` says how many tokens
    are trained, "" without a dataset, and `speed` at which speed.
    """

    axes: Axes
    cases: Cases
    command: str
    trained: str
    speed: str
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Words:
    """A case in words; `kind` is a value of `FITS_KINDS`. A text may be empty."""

    kind: str
    verdict: str
    memory: str
    remedies: str
    time: str
    command: str
    notes: tuple[str, ...]


def view_of(
    axes: Axes,
    cases: Cases,
    size: DatasetSize | None,
    settings: BillSettings,
    command: tuple[str, Mapping[str, Any]],
) -> View:
    """Return the view of a table.

    Args:
        axes: the choices.
        cases: the table.
        size: of the dataset, if there is one.
        settings: of the bill.
        command: a directory, and the training settings of its run.
    """
    how = settings.training
    trained = "" if size is None else f"{count(round(size.train_tokens * how.epochs))} tokens"
    return View(
        axes, cases, _command(axes, settings, *command), trained, f"at {how.mfu:.0%} MFU",
        0 if size is None else size.vocabulary,
    )  # fmt: skip


def words(view: View, at: At) -> Words:
    """Return a case in words."""
    axes, cases = view.axes, view.cases
    model, gpu, spread, batch, sequence = at
    number = case_number(axes, at)
    name, where = axes.models[model].model.name, axes.spreads[spread]
    command = " ".join((
        view.command, *axes.models[model].options, f"--gpu {shlex.quote(axes.gpu_names[gpu])}",
        *spread_options(axes, spread), f"--micro-batch {axes.batches[batch]}",
        f"--sequence {axes.sequences[sequence]}",
    ))  # fmt: skip
    if number in cases.why:
        reason = cases.reasons[cases.why[number]]
        return Words("no", f"{name}: {NO_AMOUNT}: {reason}", "", "", "", command, ())
    groups, low, high = cases.amounts_of(number)
    total = sum(groups) + cases.workspaces[gpu]
    digit = digit_of(axes, cases, number, gpu)
    each = f", each of {where.gpus:,} GPUs:" if where.gpus > 1 else ":" if digit > 2 else ""
    verdict = verdict_words(digit, total, axes.gpus[gpu])
    moment = cases.moments[ord(cases.peaks[number]) - ord("a")]
    per = " per GPU" if where.gpus > 1 else ""
    return Words(
        FITS_KINDS[digit],
        f"{name}{each} {verdict}",
        f"{bounded(low, total, high)}{per}; peak: {moment}",
        _remedies(axes, cases, at, digit),
        _time(view, at),
        command,
        notes_of(view, at),
    )


def title(axes: Axes, at: At) -> str:
    """Return the choices of a case as text."""
    model, gpu, spread, batch, sequence = at
    return (
        f"{axes.models[model].model.name} on {axes.gpus[gpu].name}: {axes.spreads[spread].label}, "
        f"micro batch {axes.batches[batch]:,}, sequence {axes.sequences[sequence]:,}"
    )


def bars(view: View, at: At) -> tuple[list[Bar], Limit]:
    """Return a bar for each row of a case, and the memory of its GPU."""
    axes, cases, gpu = view.axes, view.cases, at[1]
    found = []
    for row, name in enumerate((AS_SET, *(name for name, _ in axes.remedies))):
        number = case_number(axes, at) + row
        if number in cases.why:
            reason = cases.reasons[cases.why[number]]
            nothing = (0,) * len(TRAINING_GROUPS)
            found.append(Bar(name, "", nothing, 0, 0, NO_AMOUNT, why=reason))
            continue
        groups, low, high = cases.amounts_of(number)
        amounts = with_workspaces(groups, cases.workspaces[gpu])
        digit = digit_of(axes, cases, number, gpu)
        note = duration_of(view, at, row).partition(", ")[0]
        text = shown(sum(amounts), digit)
        found.append(Bar(name, note, amounts, low, high, text, FITS_KINDS[digit]))
    chosen = axes.gpus[gpu]
    return found, Limit(chosen.memory_bytes, f"{chosen.name}, {memory(chosen.memory_bytes)}")


def case_number(axes: Axes, at: At) -> int:
    """Return the number of row 0 of a case."""
    model, _, spread, batch, sequence = at
    lengths = (len(axes.models), *map(len, (axes.spreads, axes.batches, axes.sequences)))
    return place((model, spread, batch, sequence), lengths) * (1 + len(axes.remedies))


def with_workspaces(groups: tuple[int, ...], n_bytes: int) -> tuple[int, ...]:
    """Return the groups with the workspaces of cuBLAS; the group of CUDA is the last but one."""
    return (*groups[:-2], groups[-2] + n_bytes, groups[-1])


def digit_of(axes: Axes, cases: Cases, number: int, gpu: int) -> int:
    """Return the digit of the verdict on a case."""
    return int(cases.verdicts[number * len(axes.gpus) + gpu])


def verdict_words(digit: int, n_bytes: int, gpu: Gpu) -> str:
    """Return a verdict as `tokmill memory` writes it."""
    where = f"{gpu.name} ({memory(gpu.memory_bytes)})"
    if digit == 1:
        return f"fits on {where} by the estimate, not by the upper bound"
    if digit > 2:
        return f"at least {memory(n_bytes)} on {where}; {NOT_ALL}"
    said = (FITS, BARELY, DOES_NOT_FIT)[digit]
    room = gpu.memory_bytes - n_bytes
    return f"{said} on {where}: {memory(abs(room))} {'left' if room >= 0 else 'missing'}"


def spread_options(axes: Axes, spread: int) -> tuple[str, ...]:
    """Return the options of a number of GPUs and their sharding."""
    where = axes.spreads[spread]
    found = (f"--gpus {where.gpus}", f"--sharding {where.sharding}")
    if not axes.training.nodes:
        return found
    return (*found, f"--nodes {spread_training(axes.training, where).nodes}")


def duration_of(view: View, at: At, row: int) -> str:
    """Return time, GPU hours and cost of a row of a case; "" if unknown."""
    axes, cases = view.axes, view.cases
    if not cases.times:
        return ""
    model, gpu, spread, _, sequence = at
    choices = (axes.models, axes.spreads, axes.sequences)
    lengths = (*map(len, choices), 1 + len(axes.remedies), len(axes.gpus))
    return cases.durations[cases.times[place((model, spread, sequence, row, gpu), lengths)]]


def steps_of(view: View, at: At) -> str:
    """Return the steps of a case; "" without a dataset."""
    axes, cases = view.axes, view.cases
    lengths = tuple(map(len, (axes.spreads, axes.batches, axes.sequences)))
    return cases.steps[place(at[2:], lengths)] if cases.steps else ""


def notes_of(view: View, at: At) -> tuple[str, ...]:
    """Return the notes on a case."""
    axes = view.axes
    model, training = axes.models[at[0]].model, spread_training(axes.training, axes.spreads[at[2]])
    length = axes.sequences[at[4]]
    return (
        *model.warnings,
        *model_notes(model, sequence=length, context=0, ids=view.vocabulary),
        *training_notes(training, axes.gpus[at[1]]),
        *stored_notes(model, training),
    )


def _remedies(axes: Axes, cases: Cases, at: At, digit: int) -> str:
    """Return the rows that fit, with their totals; none does if a part of it is not known."""
    if digit == 0:
        return NONE_NEEDED
    fitting = []
    unknown = digit > 2
    for row, (name, _) in enumerate(axes.remedies, start=1):
        number = case_number(axes, at) + row
        found = digit_of(axes, cases, number, at[1])
        unknown = unknown or found > 2
        if found == 0 or (digit == 2 and found == 1):
            total = sum(cases.amounts_of(number)[0]) + cases.workspaces[at[1]]
            fitting.append(f"{name} ({memory(total)})")
    return ", ".join(fitting) or (NOT_ALL if unknown else NONE_ALONE)


def _time(view: View, at: At) -> str:
    if not view.trained:
        return ""
    found, steps = duration_of(view, at, 0), steps_of(view, at)
    if not found:
        return f"{view.trained}; {steps}"
    return f"{found} for {view.trained} {view.speed}; {steps}"


def _command(
    axes: Axes, settings: BillSettings, directory: str, recorded: Mapping[str, Any]
) -> str:
    """Return the command without the options that the choices give."""
    default, how = TrainingSettings(), settings.training
    changed = {}
    for field in fields(how):
        value = getattr(how, field.name)
        before = recorded.get(field.name, getattr(default, field.name))
        derived = field.name == "epochs" and how.tokens
        if value != before and field.name not in (*_CHOSEN, "nodes") and not derived:
            changed[field.name] = value
    return " ".join(("tokmill report", shlex.quote(directory), *options(changed)))
