"""The remedies: settings that may need less memory, in order of their cost.

A remedy only proposes. `search` bills each proposal, and offers it if it needs less than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tokmill.bill.models.model import Model
from tokmill.bill.remedies.case import Case, Changes
from tokmill.bill.states.parallel import data_parallel, ranks_per_node, state_ranks
from tokmill.bill.states.sharding import sharding_of
from tokmill.settings.training import TrainingSettings

Candidates = Callable[[Case], Iterable[Changes]]

MOST_STAGES = 16
"""Pipeline stages proposed at most: few trainings have more, and each stage is billed."""
SHORTEST_SEQUENCE = 256
"""Shortest sequence proposed, in tokens."""

COSTS = {
    ("optimizer_step", "fused"): "nothing",
    ("attention", "flash"): "nothing",
    ("loss", "fused"): "needs a fused kernel",
    ("eval_accumulation", 1): "slower evaluation, host RAM",
    ("metric_batches", 0): "no metrics from logits",
    ("precision", "amp"): "rounding in matrix products",
    ("precision", "pure-16"): "rounding of weights and moments",
    ("sharding", "zero-1"): "little communication",
    ("sharding", "zero-2"): "little communication",
    ("sharding", "zero-3"): "weights sent for each layer",
    ("sharding", "fsdp"): "weights sent for each layer",
    ("sharding", "distributed-optimizer"): "little communication",
    ("checkpointing", "selective"): "part of each layer computed twice",
    ("checkpointing", "full"): "a third more computation",
    ("optimizer", "adamw-8bit"): "rounding of the moments",
    ("offload", "optimizer"): "speed, host RAM",
    ("offload", "all"): "more speed, host RAM",
    ("activation_offload", True): "speed, host RAM",
    ("adapter", "lora"): "learns low-rank updates only",
    ("adapter", "qlora"): "low-rank updates only, rounded base",
    ("adapter", "dora"): "learns low-rank updates only",
    ("weights", "nf4"): "rounding of the base",
    ("weights", "nf4-double"): "rounding of the base",
    ("initialization", "meta"): "nothing",
    ("loading", "memmap"): "nothing",
    ("loading", "lazy"): "nothing",
    ("start_method", "fork"): "nothing",
    ("pin_memory", False): "slower copies to the GPU",
    ("prefetch", 1): "less is loaded ahead",
    "accumulation": "speed",
    "micro_batch": "fewer sequences per pass",
    "sequence": "longer documents are truncated",
    "tensor_parallel": "communication in every layer",
    "context_parallel": "communication in every layer",
    "expert_parallel": "communication in every layer",
    "pipeline_parallel": "GPUs idle between batches",
    "model": "quality",
    "loader_workers": "slower loading",
}
"""The disadvantage of a setting, by name and value or by name."""


def cost(changes: Changes) -> str:
    """Return the disadvantages of changes in words, "nothing" if there are none."""
    found = dict.fromkeys(
        COSTS.get((name, value), COSTS.get(name, "nothing"))
        for name, value in changes.items()
        if not (name == "micro_batch" and "accumulation" in changes)
    )
    return ", ".join(each for each in found if each != "nothing") or "nothing"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A way to need less memory.

    `candidates` returns changes that may help, the mildest first. `changes_result`: the result of
    training changes (another model, other steps, other texts); such a remedy is applied only if no
    others are enough.
    """

    name: str
    candidates: Candidates
    changes_result: bool = False


def on_gpu(smaller_models: Callable[[Model], tuple[Model, ...]]) -> tuple[Remedy, ...]:
    """Return the remedies for GPU memory, the cheapest first.

    `smaller_models` returns other models of the same family, the largest first.
    """
    return (
        Remedy("logits of an evaluation in host RAM", _metrics),
        Remedy("fused optimizer step", _instead("optimizer_step", "fused")),
        Remedy("flash attention", _instead("attention", "flash")),
        Remedy("fused loss", _instead("loss", "fused")),
        Remedy("shared optimizer states", _sharding(1, 2)),
        Remedy("activation checkpointing", _after("checkpointing", "none", "selective", "full")),
        Remedy("mixed precision", _after("precision", "fp32", "amp")),
        Remedy("gradient accumulation instead of batch", _accumulation),
        Remedy("8-bit optimizer states", _if(_is_adam, {"optimizer": "adamw-8bit"})),
        Remedy("shared weights", _sharding(3)),
        Remedy("tensor parallelism", _doubled("tensor_parallel", _most_in_node)),
        Remedy("context parallelism", _doubled("context_parallel", _most_of_context)),
        Remedy("expert parallelism", _doubled("expert_parallel", _most_experts)),
        Remedy("pipeline parallelism", _doubled("pipeline_parallel", _most_stages)),
        Remedy("activations in host RAM", _instead("activation_offload", True)),
        Remedy("offload", _offload),
        Remedy("smaller micro batch", _halved("micro_batch", 1), True),
        Remedy("16-bit weights", _instead("precision", "pure-16"), True),
        Remedy("shorter sequences", _halved("sequence", SHORTEST_SEQUENCE), True),
        Remedy("LoRA", _after("adapter", "none", "lora"), True),
        Remedy("QLoRA", _qlora, True),
        Remedy("smaller base model", _smaller_model(smaller_models), True),
    )


def _if(applies: Callable[[TrainingSettings], bool], changes: Changes) -> Candidates:
    """Propose changes to settings to which they apply."""
    return lambda case: [changes] if applies(case.training) else []


def _instead(setting: str, value: object) -> Candidates:
    """Propose one value, unless it is set."""
    return _if(lambda training: getattr(training, setting) != value, {setting: value})


def _after(setting: str, *values: str) -> Candidates:
    """Propose the values that follow the one that is set."""

    def candidates(case: Case) -> list[Changes]:
        found = getattr(case.training, setting)
        later = values[values.index(found) + 1 :] if found in values else ()
        return [{setting: value} for value in later]

    return candidates


def _halved(setting: str, least: int) -> Candidates:
    """Propose the powers of two below the number that is set, the largest first."""

    def candidates(case: Case) -> list[Changes]:
        numbers = _powers_below(getattr(case.training, setting))
        return [{setting: number} for number in numbers if number >= least]

    return candidates


def _powers_below(number: int) -> list[int]:
    return [1 << i for i in reversed(range((number - 1).bit_length()))]


def _doubled(setting: str, most: Callable[[Case], int]) -> Candidates:
    """Propose twice, four times … the number of GPUs that is set, `most` at most."""

    def candidates(case: Case) -> Iterator[Changes]:
        degree, limit = 2 * getattr(case.training, setting), most(case)
        while case.training.gpus > 1 and degree <= limit:
            yield {setting: degree}
            degree *= 2

    return candidates


def _most_in_node(case: Case) -> int:
    training = case.training
    return min(ranks_per_node(training), state_ranks(training) * training.tensor_parallel)


def _most_stages(case: Case) -> int:
    return min(data_parallel(case.training) * case.training.pipeline_parallel, MOST_STAGES)


def _most_of_context(case: Case) -> int:
    return data_parallel(case.training) * case.training.context_parallel


def _most_experts(case: Case) -> int:
    return case.model.experts.count if case.model and case.model.experts else 1


def _stage(training: TrainingSettings) -> int:
    """Return how many of optimizer states, gradients and weights are shared: ZeRO's stage."""
    shared = sharding_of(training)
    return shared.weights + shared.gradients + shared.optimizer


def _sharding(*stages: int) -> Candidates:
    """Propose ZeRO's stages that share more than now; Megatron-LM has only the first."""

    def candidates(case: Case) -> Iterator[Changes]:
        training = case.training
        megatron = training.framework == "megatron"
        for stage in stages if state_ranks(training) > 1 else ():
            if _stage(training) < stage and not (megatron and stage > 1):
                yield {"sharding": "distributed-optimizer" if megatron else f"zero-{stage}"}
        if training.sharding == "fsdp-grad-op" and 3 in stages:
            yield {"sharding": "fsdp"}

    return candidates


def _offload(case: Case) -> Iterator[Changes]:
    training = case.training
    stage = _stage(training)
    if training.offload == "none" and sharding_of(training).program != "fsdp":
        yield {**({"sharding": "zero-2"} if stage < 2 else {}), "offload": "optimizer"}
    if training.offload != "all":
        yield {**({"sharding": "zero-3"} if stage < 3 else {}), "offload": "all"}


def _metrics(case: Case) -> Iterator[Changes]:
    if case.training.metric_batches and case.training.eval_accumulation != 1:
        yield {"eval_accumulation": 1}
    if case.training.metric_batches:
        yield {"metric_batches": 0}


def _accumulation(case: Case) -> Iterator[Changes]:
    batch, steps = case.training.micro_batch, case.training.accumulation
    for size in _powers_below(batch):
        if batch % size == 0:
            yield {"micro_batch": size, "accumulation": steps * batch // size}


def _is_adam(training: TrainingSettings) -> bool:
    return training.optimizer in ("adam", "adamw")


def _qlora(case: Case) -> list[Changes]:
    if case.training.adapter == "none":
        return [{"adapter": "qlora"}, {"adapter": "qlora", "weights": "nf4-double"}]
    kinds = ("nf4", "nf4-double")
    return [{"weights": kind} for kind in kinds if kind != case.training.weights]


def _smaller_model(smaller_models: Callable[[Model], tuple[Model, ...]]) -> Candidates:
    def candidates(case: Case) -> list[Changes]:
        return [{"model": model} for model in (smaller_models(case.model) if case.model else ())]

    return candidates


def _spawns(training: TrainingSettings) -> bool:
    return training.loader_workers > 0 and training.start_method == "spawn"


def _prefetches(training: TrainingSettings) -> bool:
    return training.loader_workers > 0 and training.prefetch > 1


def _lazier(case: Case) -> list[Changes]:
    loading = "lazy" if _spawns(case.training) else "memmap"
    return [] if case.training.loading in ("lazy", loading) else [{"loading": loading}]


def _fewer_workers(case: Case) -> list[Changes]:
    workers = case.training.loader_workers
    fewer = dict.fromkeys(n for n in (workers // 2, 1, 0) if n < workers)
    return [{"loader_workers": n} for n in fewer]


ON_HOST = (
    Remedy("memory-mapped dataset", _lazier),
    Remedy("no logits kept for metrics", _instead("metric_batches", 0)),
    Remedy("weights created once", _instead("initialization", "meta")),
    Remedy("no pinned memory", _instead("pin_memory", False)),
    Remedy("forked workers", _if(_spawns, {"start_method": "fork"})),
    Remedy("fewer batches ahead", _if(_prefetches, {"prefetch": 1})),
    Remedy("fewer workers", _fewer_workers),
)
"""The remedies for host RAM, the cheapest first."""
