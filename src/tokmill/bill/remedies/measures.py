"""Options that save GPU memory in training, in order of their cost, each as changed settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.parallel import data_parallel, ranks_per_node, state_ranks
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model
    from tokmill.settings.training import TrainingSettings

IN_LAYERS = "communication in every layer"
IDLE = "GPUs idle at the start and end of a batch"

MOST_STAGES = 16
"""Advice cuts a model into no more pipeline stages: few are, and every stage has a bill."""
SHORTEST_SEQUENCE = 256
"""Advice shortens no sequence below this."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model and its training; `training.sequence` is not 0."""

    model: Model
    training: TrainingSettings

    def having(self, *, model: Model | None = None, **settings: Any) -> Case:
        """Return the case with other training settings, or another model."""
        return Case(model or self.model, replace(self.training, **settings))


Fits = Callable[[Case], bool]
Change = Callable[[Case, Fits], Case | str]


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to need less memory.

    `change` gives the changed case, or why there is none here; `fits` tells it whether a candidate
    would do. `cost` says what one pays. `changes_result`: another model is trained, in
    other steps or on other texts; a plan has such a measure only if no others make it fit.
    """

    name: str
    cost: str
    change: Change
    changes_result: bool = False


def difference(before: Case, after: Case) -> dict[str, Any]:
    """Return the training settings that differ, and the model if it does, as in the case after."""
    found = {} if after.model is before.model else {"model": after.model}
    for field in fields(after.training):
        value = getattr(after.training, field.name)
        if value != getattr(before.training, field.name):
            found[field.name] = value
    return found


def options(changed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return changed settings as options of the command line ("--checkpointing full")."""
    found = []
    for name, value in changed.items():
        option = "--" + name.replace("_", "-")
        shown = value.name if name == "model" else value
        found.append(option if value is True else f"{option} {shown}")
    return tuple(found)


def measures(smaller_models: Callable[[Model], tuple[Model, ...]]) -> tuple[Measure, ...]:
    """Return all measures, the cheapest first.

    `smaller_models` gives other models of the same family, the largest first.
    """
    return (
        Measure(
            "no logits kept for metrics",
            "nothing (saves host RAM only)",
            _set("metric_batches", 0, "none are kept"),
        ),
        Measure(
            "fused optimizer step",
            "nothing",
            _set("optimizer_step", "fused", "the optimizer step is fused already"),
        ),
        Measure("mixed precision", "rounding of 16-bit products", _mixed_precision),
        Measure("flash attention", "nothing", _set("attention", "flash", "in use")),
        Measure("fused loss", "nothing (needs the kernel)", _set("loss", "fused", "in use")),
        Measure("smaller micro batch", "fewer sequences per step", _smaller_batch, True),
        Measure("gradient accumulation instead of batch", "speed", _accumulation),
        Measure("shorter context", "longer documents are truncated", _shorter, True),
        Measure("ZeRO stage 1", "little communication", _zero("zero-1")),
        Measure("ZeRO stage 2", "little communication", _zero("zero-2")),
        Measure("ZeRO stage 3", "speed: weights are gathered for each layer", _zero("zero-3")),
        Measure("8-bit optimizer states", "rounding of the moments", _eight_bit),
        Measure("optimizer offload", "speed and host RAM", _offload("zero-2", "optimizer")),
        Measure("offload of weights too", "more speed and host RAM", _offload("zero-3", "all")),
        Measure("smaller base model", "quality", _smaller_model(smaller_models), True),
        Measure("LoRA", "only low-rank updates are learned", _lora("auto"), True),
        Measure("QLoRA", "the same, with a quantized base", _lora("nf4"), True),
        Measure("checkpointing", "a third more computation", _checkpointing),
        Measure("tensor parallelism", IN_LAYERS, _shared("tensor_parallel", _most_in_node)),
        Measure("context parallelism", IN_LAYERS, _shared("context_parallel", _most_of_context)),
        Measure("expert parallelism", IN_LAYERS, _shared("expert_parallel", _most_experts)),
        Measure("pipeline parallelism", IDLE, _shared("pipeline_parallel", _most_stages)),
    )


def _set(setting: str, value: object, in_use: str) -> Change:
    """Make the measure that a setting gets a value; `in_use` says that it has it already."""
    changed: dict[str, Any] = {setting: value}

    def change(case: Case, _: Fits) -> Case | str:
        return in_use if getattr(case.training, setting) == value else case.having(**changed)

    return change


def _mixed_precision(case: Case, _: Fits) -> Case | str:
    if case.training.precision != "fp32":
        return f"matrix products are in 16 bit already ({case.training.precision})"
    return case.having(precision="amp")


def _smaller_batch(case: Case, fits: Fits) -> Case | str:
    candidates = [case.having(micro_batch=size) for size in _smaller(case.training.micro_batch)]
    return _first(candidates, fits, "the micro batch is 1")


def _accumulation(case: Case, fits: Fits) -> Case | str:
    batch, steps = case.training.micro_batch, case.training.accumulation
    candidates = [
        case.having(micro_batch=size, accumulation=steps * batch // size)
        for size in _smaller(batch)
        if batch % size == 0
    ]
    return _first(candidates, fits, "the micro batch is 1")


def _shorter(case: Case, fits: Fits) -> Case | str:
    candidates = [
        case.having(sequence=length)
        for length in _smaller(case.training.sequence)
        if length >= SHORTEST_SEQUENCE
    ]
    return _first(candidates, fits, f"{case.training.sequence:,} tokens are short already")


_STAGES = {"ddp": 0, "zero-1": 1, "distributed-optimizer": 1, "zero-2": 2, "zero-3": 3, "fsdp": 3}


def _zero(stage: str) -> Change:
    def change(case: Case, _: Fits) -> Case | str:
        if state_ranks(case.training) == 1:
            return "there is only one GPU"
        if _STAGES[case.training.sharding] >= _STAGES[stage]:
            return f"in use ({case.training.sharding})"
        return case.having(sharding=stage)

    return change


def _eight_bit(case: Case, _: Fits) -> Case | str:
    if case.training.optimizer not in ("adam", "adamw"):
        return f"only for Adam; the optimizer is {case.training.optimizer}"
    return case.having(optimizer="adamw-8bit")


def _offload(stage: str, what: str) -> Change:
    def change(case: Case, _: Fits) -> Case | str:
        if case.training.offload in (what, "all"):
            return f"in use ({case.training.offload})"
        if _STAGES[case.training.sharding] < _STAGES[stage]:
            case = case.having(sharding=stage)
        return case.having(offload=what)

    return change


def _smaller_model(smaller_models: Callable[[Model], tuple[Model, ...]]) -> Change:
    def change(case: Case, fits: Fits) -> Case | str:
        candidates = [case.having(model=model) for model in smaller_models(case.model)]
        return _first(candidates, fits, f"no smaller {case.model.family} is built in")

    return change


def _lora(weights: str) -> Change:
    def change(case: Case, _: Fits) -> Case | str:
        adapter = "lora" if case.training.adapter == "none" else case.training.adapter
        changed = case.having(adapter=adapter, weights=weights)
        return f"in use ({adapter})" if changed == case else changed

    return change


def _checkpointing(case: Case, fits: Fits) -> Case | str:
    ways = ("none", "selective", "full")
    more = ways[ways.index(case.training.checkpointing) + 1 :]
    return _first([case.having(checkpointing=way) for way in more], fits, "in use (full)")


def _shared(setting: str, most: Callable[[Case], int]) -> Change:
    """Make the measure that more GPUs share something; `most` says how many could."""

    def change(case: Case, fits: Fits) -> Case | str:
        if case.training.gpus == 1:
            return "there is only one GPU; set --gpus"
        degrees = _larger(getattr(case.training, setting), most(case))
        settings: list[dict[str, Any]] = [{setting: degree} for degree in degrees]
        candidates = [case.having(**each) for each in settings]
        return _first(
            candidates, fits, f"none of the {case.training.gpus} GPUs is left to share it"
        )

    return change


def _most_in_node(case: Case) -> int:
    training = case.training
    return min(ranks_per_node(training), state_ranks(training) * training.tensor_parallel)


def _most_stages(case: Case) -> int:
    free = data_parallel(case.training) * case.training.pipeline_parallel
    return min(free, MOST_STAGES)


def _most_of_context(case: Case) -> int:
    return data_parallel(case.training) * case.training.context_parallel


def _most_experts(case: Case) -> int:
    return case.model.experts.count if case.model.experts else 1


def _first(candidates: list[Case], fits: Fits, otherwise: str) -> Case | str:
    """Return the first candidate that fits, else the last that can be, which saves most."""
    possible = [each for each in candidates if not _contradiction(each)]
    if not possible:
        return _contradiction(candidates[0]) if candidates else otherwise
    return next((each for each in possible[:-1] if fits(each)), possible[-1])


def _contradiction(case: Case) -> str:
    try:
        check_parallelism(case.model, case.training)
    except UsageError as error:
        return str(error)
    return ""


def _smaller(number: int) -> list[int]:
    """Return the powers of two below a number, the largest first."""
    return [1 << i for i in reversed(range((number - 1).bit_length()))]


def _larger(number: int, most: int) -> list[int]:
    """Return the doubles of a number up to `most`."""
    found = []
    while (number := 2 * number) <= most:
        found.append(number)
    return found
