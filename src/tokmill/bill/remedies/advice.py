"""Advice on training: does it fit on the GPU, what is the most that fits, and what would make it.

All of it is asked of the bill: a measure saves what the bill says before less what it says after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.host_ram.machine import BARELY
from tokmill.bill.models.known import known_config, known_models
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.measures import Case, Measure, difference, measures, options
from tokmill.bill.training_bill import training_bill
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from tokmill.bill.formula import Bill
    from tokmill.bill.gpus import Gpu

LARGEST_MICRO_BATCH = 1 << 16
LARGEST_SEQUENCE = 1 << 22
FINEST_SEQUENCE = 64
"""Sequences are searched in steps of so many tokens."""

Peak = Callable[[Model, TrainingSettings], "Bill"]


@dataclass(frozen=True, slots=True)
class Step:
    """A measure applied: the options that change, and what it saves.

    `peak_bytes` is the expected peak with it, `saved_bytes` by how much that is less (0 where the
    peak is at another moment of a step, below 0: more). `why_not` says why it cannot be applied
    here; the other fields are then empty.
    """

    name: str
    cost: str
    options: tuple[str, ...] = ()
    saved_bytes: int = 0
    peak_bytes: int = 0
    fits: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether training fits, and what to do.

    `verdict` is "fits", BARELY or "does not fit"; `free_bytes` what the expected peak leaves (below
    0: lacks). The largest micro batch (sequences) and sequence (tokens) are those that fit with all
    else equal, 0 if none does; `is_bounded` tells that the sequence is the model's maximum, and
    more would fit. `steps` are all measures, each applied alone;
    `plan` those that together make it fit, the cheapest first, each of them needed; () if it fits
    or nothing helps.
    """

    gpu: Gpu
    verdict: str
    free_bytes: int
    largest_micro_batch: int
    largest_sequence: int
    is_bounded: bool
    steps: tuple[Step, ...] = ()
    plan: tuple[Step, ...] = ()


def training_peak(model: Model, training: TrainingSettings) -> Bill:
    """Return the bill of the moment of a training step that needs most."""
    return training_bill(model, training).peak


def verdict(bill: Bill, gpu: Gpu) -> str:
    """Return whether a bill fits on a GPU: expected, and at its upper bound."""
    if bill.n_bytes > gpu.memory_bytes:
        return "does not fit"
    if bill.high_bytes > gpu.memory_bytes:
        return BARELY
    return "fits"


def built_in_smaller(model: Model) -> tuple[Model, ...]:
    """Return the built-in models of a model's family with fewer parameters, the largest first."""
    found = [each for each in _built_in(model.family) if each.parameters < model.parameters]
    return tuple(sorted(found, key=lambda each: -each.parameters))


def advise(
    model: Model,
    training: TrainingSettings,
    gpu: Gpu,
    *,
    peak: Peak = training_peak,
    smaller_models: Callable[[Model], tuple[Model, ...]] = built_in_smaller,
) -> Advice:
    """Return what fits on the GPU and, where the upper bound does not, the measures.

    A sequence of 0 is what the bill takes for it. `peak` gives the bill of a rank's peak,
    `smaller_models` other models to choose from, the largest first.

    Raises:
        UsageError: the settings contradict each other or the model.
    """
    search = _Search(gpu, peak)
    case = Case(model, replace(training, sequence=training.sequence or default_sequence(model)))
    bill = peak(model, case.training)
    said = verdict(bill, gpu)
    most = model.positions or LARGEST_SEQUENCE
    sequence = _largest_sequence(search, case, most)
    advice = Advice(
        gpu=gpu,
        verdict=said,
        free_bytes=gpu.memory_bytes - bill.n_bytes,
        largest_micro_batch=_largest_micro_batch(search, case),
        largest_sequence=sequence,
        is_bounded=sequence == most,
    )
    if said == "fits":
        return advice
    listed = measures(smaller_models)
    steps = tuple(_alone(search, case, measure) for measure in listed)
    return replace(advice, steps=steps, plan=_plan(search, case, listed))


@cache
def _built_in(family: str) -> tuple[Model, ...]:
    configs = (known_config(name) for name in known_models())
    models = (
        model_from_config(config, name)
        for name, config in filter(None, configs)
        if config.get("model_type") == family
    )
    return tuple(models)


class _Search:
    """Asks for the bytes of a peak, each case once."""

    def __init__(self, gpu: Gpu, peak: Peak) -> None:
        self._memory_bytes = gpu.memory_bytes
        self._peak = peak
        self._known: dict[tuple[int, TrainingSettings], int] = {}

    def peak_bytes(self, case: Case) -> int:
        """Return the expected peak; raises UsageError if the case contradicts itself."""
        key = (id(case.model), case.training)  # a model is long to hash
        if key not in self._known:
            self._known[key] = self._peak(case.model, case.training).n_bytes
        return self._known[key]

    def fits(self, case: Case) -> bool:
        """Return whether the expected peak fits; a case that cannot be does not."""
        try:
            return self.peak_bytes(case) <= self._memory_bytes
        except UsageError:
            return False

    def is_no_more(self, before: Case, after: Case) -> bool:
        """Return whether a case can be and needs no more than the one before."""
        try:
            return self.peak_bytes(after) <= self.peak_bytes(before)
        except UsageError:
            return False


def _largest_micro_batch(search: _Search, case: Case) -> int:
    return _largest(lambda size: search.fits(case.having(micro_batch=size)), LARGEST_MICRO_BATCH)


def _largest_sequence(search: _Search, case: Case, most: int) -> int:
    """Return the longest sequence that fits, a multiple of what divides it or `most` itself."""
    training = case.training
    shared = training.context_parallel * (
        training.tensor_parallel if training.sequence_parallel else 1
    )
    unit = math.lcm(FINEST_SEQUENCE, shared)

    def length(units: int) -> int:
        return min(units * unit, most)

    units = _largest(
        lambda units: search.fits(case.having(sequence=length(units))), -(-most // unit)
    )
    return length(units)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, 0 if 1 does not; what is less fits too."""
    below, above = 0, 1
    while above <= most and fits(above):
        below, above = above, 2 * above
    above = min(above, most + 1)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below


def _alone(search: _Search, case: Case, measure: Measure) -> Step:
    """Return a measure applied to the case as it is."""
    changed = measure.change(case, search.fits)
    if isinstance(changed, str):
        return Step(measure.name, measure.cost, why_not=changed)
    try:
        return _step(search, case, changed, measure)
    except UsageError as error:
        return Step(measure.name, measure.cost, why_not=str(error))


def _step(search: _Search, before: Case, after: Case, measure: Measure) -> Step:
    peak = search.peak_bytes(after)
    saved = search.peak_bytes(before) - peak
    changed = options(difference(before, after))
    return Step(measure.name, measure.cost, changed, saved, peak, search.fits(after))


def _plan(search: _Search, case: Case, listed: tuple[Measure, ...]) -> tuple[Step, ...]:
    """Return the first measures that together make it fit, without those that are not needed."""
    same_result = tuple(measure for measure in listed if not measure.changes_result)
    for allowed in (same_result, listed):
        chosen = _first_that_fit(search, case, allowed)
        if chosen:
            return _steps(search, case, _needed(search, case, chosen))
    return ()


_Chosen = list[tuple[Measure, dict[str, Any]]]
"""Measures with the settings that each changes."""


def _first_that_fit(search: _Search, case: Case, listed: Iterable[Measure]) -> _Chosen:
    """Apply measures on top of one another until it fits; give none if it never does.

    What saves nothing yet is applied too: the peak may be at a moment that others deal with.
    """
    chosen: _Chosen = []
    for measure in listed:
        changed = measure.change(case, search.fits)
        if isinstance(changed, str) or not search.is_no_more(case, changed):
            continue
        chosen.append((measure, difference(case, changed)))
        case = changed
        if search.fits(case):
            return chosen
    return []


def _needed(search: _Search, case: Case, chosen: _Chosen) -> _Chosen:
    """Drop the measures that the others can do without, the costliest first."""
    for each in reversed(chosen):
        rest = [other for other in chosen if other is not each]
        if search.fits(_together(case, rest)):
            chosen = rest
    return chosen


def _together(case: Case, chosen: _Chosen) -> Case:
    for _, changed in chosen:
        case = case.having(**changed)
    return case


def _steps(search: _Search, case: Case, chosen: _Chosen) -> tuple[Step, ...]:
    steps = []
    for measure, changed in chosen:
        after = case.having(**changed)
        steps.append(_step(search, case, after, measure))
        case = after
    return tuple(steps)
