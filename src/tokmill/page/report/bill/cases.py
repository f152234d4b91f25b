"""Every case of the page's bill: GPU memory of training for all choices, in one table of integers.

The GPU changes only its limit and the workspaces of cuBLAS, so a case is billed once for all GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from tokmill.bill.bill_settings import complete_training
from tokmill.bill.compute import compute, compute_on_each
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.formula import Bill
from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS, Gpu, Need, verdict
from tokmill.bill.models.model import Model
from tokmill.bill.overhead import WORKSPACES, workspace_line
from tokmill.bill.remedies.savings import Case
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.text.summary import duration
from tokmill.bill.text.tables import moment
from tokmill.bill.training_bill import training_bill
from tokmill.errors import UsageError
from tokmill.page.report.bill.axes import Axes, applied, spread_training
from tokmill.page.report.bill.groups import TRAINING_GROUPS, grouped, training_group
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural
from tokmill.words.units import count

VERDICTS = (FITS, BARELY, DOES_NOT_FIT)
"""A verdict is stored as its place here, and 3 more if a part of the bill is not known."""
IMPOSSIBLE = str(VERDICTS.index(DOES_NOT_FIT))
UNCHANGED = "changes nothing here"
_NO_PEAK = "-"


@dataclass(frozen=True, slots=True)
class Cases:
    """The table of all cases; the last choice changes fastest: model, GPUs, batch, sequence, row.

    Row 0 of a case has the settings as they are, the others a remedy each.

    Attributes:
        amounts: of each case the expected bytes of `TRAINING_GROUPS`, without workspaces of cuBLAS,
            then the lower and the upper bound of the total; all 0 where the case is not possible.
        verdicts: of each case a digit for each GPU, an index of `VERDICTS`.
        peaks: of each case the moment of its peak, a letter for `moments`.
        moments: names of moments.
        why: of each impossible case, by its number, an index of `reasons`.
        reasons: why cases are not possible.
        workspaces: bytes of cuBLAS on each GPU.
        times: of each model, GPUs, sequence, row and GPU an index of `durations`; () without a
            dataset, or if the time depends on the batch too.
        durations: times, GPU hours and costs, as text; the first is "".
        steps: of each GPUs, batch and sequence the number of steps and their size, as text; ()
            without a dataset.
    """

    amounts: tuple[int, ...]
    verdicts: str
    peaks: str
    moments: tuple[str, ...]
    why: dict[int, int]
    reasons: tuple[str, ...]
    workspaces: tuple[int, ...]
    times: tuple[int, ...] = ()
    durations: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def amounts_of(self, number: int) -> tuple[tuple[int, ...], int, int]:
        """Return the bytes of each group without workspaces, and the bounds of the total."""
        width = len(TRAINING_GROUPS) + 2
        *groups, low, high = self.amounts[number * width : (number + 1) * width]
        return tuple(groups), low, high

    def data(self) -> dict[str, Any]:
        """Return the table as plain values; amounts are indices of `pool`, which has each once."""
        pool = sorted(set(self.amounts))
        places = {n_bytes: place for place, n_bytes in enumerate(pool)}
        return {
            "pool": pool,
            "amounts": [places[n_bytes] for n_bytes in self.amounts],
            "verdicts": self.verdicts,
            "peaks": self.peaks,
            "moments": self.moments,
            "why": self.why,
            "reasons": self.reasons,
            "workspaces": self.workspaces,
            "times": self.times,
            "durations": self.durations,
            "steps": self.steps,
        }


def cases_of(axes: Axes, size: DatasetSize | None) -> Cases:
    """Return all cases; `size` is the dataset that is trained on, for the time."""
    times, durations = _times(axes, size)
    return replace(_billed(axes), times=times, durations=durations, steps=_steps(axes, size))


@lru_cache(maxsize=8)
def _billed(axes: Axes) -> Cases:
    """Return all cases without their times: 2,048 bills take 2 s, so a few tables are kept."""
    megatron = axes.training.framework == "megatron"
    workspaces = tuple(
        workspace_line(name, megatron=megatron, attention_bytes=0).n_bytes
        for name in axes.gpu_names
    )
    amounts: list[int] = []
    verdicts: list[str] = []
    peaks: list[str] = []
    moments: dict[str, int] = {}
    reasons: dict[str, int] = {}
    why: dict[int, int] = {}
    for number, (model, training) in enumerate(_all(axes)):
        try:
            bill = _bill(model, training)
        except UsageError as error:
            amounts += [0] * (len(TRAINING_GROUPS) + 2)
            verdicts.append(IMPOSSIBLE * len(axes.gpus))
            peaks.append(_NO_PEAK)
            why[number] = reasons.setdefault(str(error), len(reasons))
            continue
        lines = [line for line in bill.lines if line.name != WORKSPACES.name]
        groups = grouped(lines, TRAINING_GROUPS, training_group)
        amounts += [*groups, bill.low_bytes, bill.high_bytes]
        verdicts.append(_verdicts(bill, sum(groups), axes.gpus, workspaces))
        peaks.append(chr(ord("a") + moments.setdefault(moment(bill), len(moments))))
    return Cases(
        amounts=tuple(amounts),
        verdicts="".join(verdicts),
        peaks="".join(peaks),
        moments=tuple(moments),
        why=why,
        reasons=tuple(reasons),
        workspaces=workspaces,
    )


def remedied(axes: Axes, model: Model, training: TrainingSettings, row: int) -> TrainingSettings:
    """Return the settings of a row of a case: 0 as they are, else with a remedy.

    Raises:
        UsageError: the remedy changes nothing.
    """
    found = training if row == 0 else applied(Case(model, training), axes.remedies[row - 1][1])
    if found is None:
        raise UsageError(UNCHANGED)
    return found


def settings_of(axes: Axes, spread: int, batch: int, sequence: int) -> TrainingSettings:
    """Return the settings of a case, given the indices of its choices."""
    training = spread_training(axes.training, axes.spreads[spread])
    return replace(
        training, micro_batch=axes.batches[batch], sequence=axes.sequences[sequence]
    )  # fmt: skip


def _all(axes: Axes) -> Iterator[tuple[Model, TrainingSettings | None]]:
    """Yield model and settings of every case; None where a remedy changes nothing."""
    choices = (axes.spreads, axes.batches, axes.sequences)
    for each in axes.models:
        for indices in product(*map(range, map(len, choices))):
            training = settings_of(axes, *indices)
            yield each.model, training
            for _, steps in axes.remedies:
                yield each.model, applied(Case(each.model, training), steps)


def _bill(model: Model, training: TrainingSettings | None) -> Bill:
    if training is None:
        raise UsageError(UNCHANGED)
    return training_bill(model, training).peak


def _verdicts(bill: Bill, n_bytes: int, gpus: tuple[Gpu, ...], workspaces: tuple[int, ...]) -> str:
    """Return a digit for each GPU; `n_bytes` is the expected total without workspaces."""
    digits = []
    for gpu, workspace in zip(gpus, workspaces, strict=True):
        digits.append(verdict_digit(bill, n_bytes + workspace, gpu))
    return "".join(digits)


def verdict_digit(bill: Bill, n_bytes: int, gpu: Gpu) -> str:
    """Return the digit of the verdict on a bill whose expected bytes are `n_bytes`."""
    found = verdict(Need(n_bytes, bill.high_bytes), gpu.memory_bytes)
    is_known = not bill.missing or found == DOES_NOT_FIT
    return str(VERDICTS.index(found) + (0 if is_known else len(VERDICTS)))


def _times(axes: Axes, size: DatasetSize | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if size is None:
        return (), ()
    durations = {"": 0}
    found = []
    choices = (axes.models, axes.spreads, axes.sequences, (0, *axes.remedies))
    for model, spread, sequence, row in product(*map(range, map(len, choices))):
        named = axes.models[model].model
        try:
            training = settings_of(axes, spread, axes.start[3], sequence)
            training = remedied(axes, named, training, row)
            training = complete_training(training, named, None)
            check_parallelism(named, training)
            on_each = compute_on_each(named, training, size, axes.gpus)
            texts = [", ".join(duration(each, training)) for each in on_each]
        except UsageError:
            texts = [""] * len(axes.gpus)
        found += [durations.setdefault(text, len(durations)) for text in texts]
    return tuple(found), tuple(durations)


def _steps(axes: Axes, size: DatasetSize | None) -> tuple[str, ...]:
    if size is None:
        return ()
    model = axes.models[axes.start[0]].model
    choices = (axes.spreads, axes.batches, axes.sequences)
    found = []
    for indices in product(*map(range, map(len, choices))):
        try:
            training = settings_of(axes, *indices)
            check_parallelism(model, training)
            each = compute(model, training, size)
            text = f"{plural(each.steps, 'step')} of {count(each.step_tokens)} tokens"
        except UsageError:
            text = ""
        found.append(text)
    return tuple(found)
