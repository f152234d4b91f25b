"""The remedies: settings that may need less memory, in order of what they cost.

A remedy proposes; whether it helps is computed, never assumed: what `search` offers has been billed
and needs less than before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.bill.states.parallel import data_parallel, ranks_per_node, state_ranks
from tokmill.bill.states.sharding import sharding_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.case import Case, Changes
    from tokmill.settings.training import TrainingSettings

    Candidates = Callable[[Case], Iterable[Changes]]

MOST_STAGES = 16
"""No more pipeline stages are proposed: few trainings have more, and every stage has a bill."""
SHORTEST_SEQUENCE = 256
"""No shorter sequence is proposed."""

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
"""What one pays for a setting, by name and value or by name."""


def cost(changes: Changes) -> str:
    """Return what changes cost, "nothing" if only time to set them."""
    found = dict.fromkeys(
        COSTS.get((name, value), COSTS.get(name, "nothing"))
        for name, value in changes.items()
        if not (name == "micro_batch" and "accumulation" in changes)
    )
    return ", ".join(each for each in found if each != "nothing") or "nothing"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A way to need less memory.

    `candidates` returns the changes that may help, the mildest first. `changes_result`: another
    model is trained, in other steps or on other texts; such a remedy is taken only if no others are
    enough.
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
        Remedy("8-bit optimizer states", _eight_bit),
        Remedy("shared weights", _sharding(3)),
        Remedy("tensor parallelism", _doubled("tensor_parallel", _most_in_node)),
        Remedy("context parallelism", _doubled("context_parallel", _most_of_context)),
        Remedy("expert parallelism", _doubled("expert_parallel", _most_experts)),
        Remedy("pipeline parallelism", _doubled("pipeline_parallel", _most_stages)),
        Remedy("activations in host RAM", _instead("activation_offload", True)),
        Remedy("offload", _offload),
        Remedy("smaller micro batch", _smaller_batch, True),
        Remedy("16-bit weights", _instead("precision", "pure-16"), True),
        Remedy("shorter sequences", _shorter, True),
        Remedy("LoRA", _lora, True),
        Remedy("QLoRA", _qlora, True),
        Remedy("smaller base model", _smaller_model(smaller_models), True),
    )


def _instead(setting: str, value: object) -> Candidates:
    """Propose one value, unless it is set."""

    def candidates(case: Case) -> list[Changes]:
        return [] if getattr(case.training, setting) == value else [{setting: value}]

    return candidates


def _after(setting: str, *values: str) -> Candidates:
    """Propose the values that follow the one that is set."""

    def candidates(case: Case) -> list[Changes]:
        found = getattr(case.training, setting)
        later = values[values.index(found) + 1 :] if found in values else ()
        return [{setting: value} for value in later]

    return candidates


def _stage(training: TrainingSettings) -> int:
    """Return how many of optimizer states, gradients and weights are shared: ZeRO's stage."""
    shared = sharding_of(training)
    return shared.weights + shared.gradients + shared.optimizer


def _sharding(*stages: int) -> Candidates:
    """Propose ZeRO's stages that share more than now; Megatron has the first only."""

    def candidates(case: Case) -> Iterator[Changes]:
        training = case.training
        megatron = training.framework == "megatron"
        for stage in stages if state_ranks(training) > 1 else ():
            if _stage(training) < stage and not (megatron and stage > 1):
                yield {"sharding": "distributed-optimizer" if megatron else f"zero-{stage}"}
        if training.sharding == "fsdp-grad-op" and 3 in stages:
            yield {"sharding": "fsdp"}

    return candidates


def _metrics(case: Case) -> Iterator[Changes]:
    if case.training.metric_batches and case.training.eval_accumulation != 1:
        yield {"eval_accumulation": 1}
    if case.training.metric_batches:
        yield {"metric_batches": 0}


def _accumulation(case: Case) -> Iterator[Changes]:
    batch, steps = case.training.micro_batch, case.training.accumulation
    for size in _smaller(batch):
        if batch % size == 0:
            yield {"micro_batch": size, "accumulation": steps * batch // size}


def _smaller_batch(case: Case) -> Iterator[Changes]:
    return ({"micro_batch": size} for size in _smaller(case.training.micro_batch))


def _shorter(case: Case) -> Iterator[Changes]:
    lengths = _smaller(case.training.sequence)
    return ({"sequence": length} for length in lengths if length >= SHORTEST_SEQUENCE)


def _eight_bit(case: Case) -> list[Changes]:
    is_adam = case.training.optimizer in ("adam", "adamw")
    return [{"optimizer": "adamw-8bit"}] if is_adam else []


def _offload(case: Case) -> Iterator[Changes]:
    training = case.training
    stage = _stage(training)
    if training.offload == "none" and sharding_of(training).program != "fsdp":
        more = {"sharding": "zero-2"} if stage < 2 else {}
        yield {**more, "offload": "optimizer"}
    if training.offload != "all":
        more = {"sharding": "zero-3"} if stage < 3 else {}
        yield {**more, "offload": "all"}


def _lora(case: Case) -> list[Changes]:
    return [{"adapter": "lora"}] if case.training.adapter == "none" else []


def _qlora(case: Case) -> list[Changes]:
    kinds = [kind for kind in ("nf4", "nf4-double") if case.training.weights != kind]
    if case.training.adapter == "none":
        return [{"adapter": "qlora"}, {"adapter": "qlora", "weights": "nf4-double"}]
    return [{"weights": kind} for kind in kinds]


def _smaller_model(smaller_models: Callable[[Model], tuple[Model, ...]]) -> Candidates:
    def candidates(case: Case) -> list[Changes]:
        models = smaller_models(case.model) if case.model else ()
        return [{"model": model} for model in models]

    return candidates


def _doubled(setting: str, most: Callable[[Case], int]) -> Candidates:
    """Propose that twice, four times … as many GPUs share something, `most` at most."""

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
    free = data_parallel(case.training) * case.training.pipeline_parallel
    return min(free, MOST_STAGES)


def _most_of_context(case: Case) -> int:
    return data_parallel(case.training) * case.training.context_parallel


def _most_experts(case: Case) -> int:
    return case.model.experts.count if case.model and case.model.experts else 1


def _smaller(number: int) -> list[int]:
    """Return the powers of two below a number, the largest first."""
    return [1 << i for i in reversed(range((number - 1).bit_length()))]


def _lazier(case: Case) -> list[Changes]:
    spawned = case.training.loader_workers > 0 and case.training.start_method == "spawn"
    loading = "lazy" if spawned else "memmap"
    return [] if case.training.loading in ("lazy", loading) else [{"loading": loading}]


def _forked(case: Case) -> list[Changes]:
    spawned = case.training.loader_workers > 0 and case.training.start_method == "spawn"
    return [{"start_method": "fork"}] if spawned else []


def _prefetch(case: Case) -> list[Changes]:
    ahead = case.training.loader_workers > 0 and case.training.prefetch > 1
    return [{"prefetch": 1}] if ahead else []


def _fewer_workers(case: Case) -> list[Changes]:
    fewer = (case.training.loader_workers // 2, 1, 0)
    found = dict.fromkeys(n for n in fewer if n < case.training.loader_workers)
    return [{"loader_workers": n} for n in found]


ON_HOST = (
    Remedy("memory-mapped dataset", _lazier),
    Remedy("no logits kept for metrics", _instead("metric_batches", 0)),
    Remedy("weights created once", _instead("initialization", "meta")),
    Remedy("no pinned memory", _instead("pin_memory", False)),
    Remedy("forked workers", _forked),
    Remedy("fewer batches ahead", _prefetch),
    Remedy("fewer workers", _fewer_workers),
)
"""The remedies for host RAM, the cheapest first."""
