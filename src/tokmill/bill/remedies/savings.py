"""Savings: settings that may need less memory, in the order in which they are offered.

`search` bills each, and offers it if it needs less than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tokmill.bill.models.model import Model
from tokmill.bill.states.parallel import sharding_of, state_ranks
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

S = TypeVar("S", bound=TrainingSettings | InferenceSettings)
Changes = Mapping[str, Any]
"""Settings by name; "model" is another model."""

COSTLY, CHANGES_RESULT = 1, 2
"""Levels of savings: those that need host RAM and several times as long, or a program with parallel
layers; and those with which something else is trained or served (another model, shorter texts)."""
MOST_PARALLEL = 16
"""GPUs proposed at most for a kind of parallelism: few trainings have more."""
GPUS_OF_A_NODE = 8
SHORTEST_SEQUENCE = 256
"""Shortest sequence proposed, in tokens."""
SMALL_CHUNK = 2048
"""Prompt tokens at once that small servers take."""

COSTS: Mapping[str, str | Mapping[Any, str]] = {
    "accumulation": "speed",
    "activation_offload": {True: "speed, host RAM"},
    "adapter": {
        **dict.fromkeys(("lora", "dora"), "learns low-rank updates only"),
        "qlora": "low-rank updates only, rounded base",
    },
    "batch": "fewer sequences at once",
    "checkpointing": {
        "selective": "part of each layer computed twice",
        "full": "a third more computation",
    },
    "context": "shorter texts",
    "eval_accumulation": {1: "slower evaluation, host RAM"},
    "kv_type": dict.fromkeys(("fp8", "int8", "int4"), "rounding of keys and values"),
    "loader_workers": "slower loading",
    "loss": {"fused": "needs a fused kernel"},
    "metric_batches": {0: "no metrics from logits"},
    "micro_batch": "fewer sequences per pass",
    "model": "quality",
    "offload": {"optimizer": "speed, host RAM", "all": "more speed, host RAM"},
    "optimizer": {"adamw-8bit": "rounding of the moments"},
    "pin_memory": {False: "slower copies to the GPU"},
    "pipeline_parallel": "GPUs idle between batches",
    "precision": {
        "amp": "rounding in matrix products",
        "pure-16": "rounding of weights and moments",
    },
    "prefetch": {1: "less is loaded ahead"},
    "prefill_chunk": "slower prompts",
    "sequence": "longer documents are truncated",
    "serving_gpus": "more GPUs",
    "sharding": {
        **dict.fromkeys(("zero-1", "zero-2", "distributed-optimizer"), "little communication"),
        **dict.fromkeys(("zero-3", "fsdp", "fsdp2"), "weights sent for each layer"),
    },
    "weight_type": dict.fromkeys(("fp8", "int8", "int4"), "rounding of weights"),
    "weights": dict.fromkeys(("nf4", "nf4-double"), "rounding of the base"),
    **dict.fromkeys(
        ("tensor_parallel", "context_parallel", "expert_parallel"), "communication in every layer"
    ),
}
"""The disadvantage of a setting, of each value or of some; all others have none."""


@dataclass(frozen=True, slots=True)
class Case(Generic[S]):
    """A model and its settings; without a model, only the loading of a dataset is billed."""

    model: Model | None
    settings: S

    def having(self, changes: Changes) -> Case[S]:
        """Return the case with these changes."""
        settings = {name: value for name, value in changes.items() if name != "model"}
        return Case(changes.get("model", self.model), replace(self.settings, **settings))


@dataclass(frozen=True, slots=True)
class Saving:
    """Changes that may help; those of one name are alternatives, the mildest first.

    A saving of a higher `level` is taken only if those below are not enough.
    """

    name: str
    changes: Changes
    level: int = 0


def cost(changes: Changes) -> str:
    """Return the disadvantages of changes in words, "nothing" if there are none."""
    texts = {}
    for name, value in changes.items():
        text = COSTS.get(name, "")
        if not (name == "micro_batch" and "accumulation" in changes):
            texts[text if isinstance(text, str) else text.get(value, "")] = True
    return ", ".join(filter(None, texts)) or "nothing"


def options(changes: Changes) -> tuple[str, ...]:
    """Return changes as options of the command line ("--checkpointing full")."""
    texts = []
    for name, value in changes.items():
        option = "--" + name.replace("_", "-")
        shown = value.name if name == "model" else value
        if value is False:
            texts.append(option.replace("--", "--no-", 1))
        else:
            texts.append(option if value is True else f"{option} {shown}")
    return tuple(texts)


def of_training(
    case: Case[TrainingSettings], smaller_models: Callable[[Model], tuple[Model, ...]]
) -> Iterator[Saving]:
    """Yield the savings of GPU memory that a case does not have, those that cost least speed first.

    `smaller_models` returns other models of the same family, the largest first.
    """
    yield from _same_result(case.settings)
    yield from _costly(case.settings)
    yield from _other_result(case.settings)
    for model in smaller_models(case.model) if case.model else ():
        yield Saving("smaller base model", {"model": model}, CHANGES_RESULT)


def _same_result(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings that train the same, at nearly the same speed."""
    if how.metric_batches:
        name = "logits of an evaluation in host RAM"
        yield from _after("eval_accumulation", how.eval_accumulation, name, 1)
        yield Saving(name, {"metric_batches": 0})
    yield from _after("optimizer_step", how.optimizer_step, "fused optimizer step", "fused")
    yield from _after("attention", how.attention, "flash attention", "flash")
    yield from _after("loss", how.loss, "fused loss", "fused")
    yield from _sharding(how, "shared optimizer states", 1, 2)
    name = "activation checkpointing"
    yield from _after("checkpointing", how.checkpointing, name, "selective", "full")
    if how.precision == "fp32":
        yield Saving("mixed precision", {"precision": "amp"})
    for size in _powers_below(how.micro_batch):
        if how.micro_batch % size == 0:
            steps = how.accumulation * how.micro_batch // size
            changes = {"micro_batch": size, "accumulation": steps}
            yield Saving("gradient accumulation instead of batch", changes)
    if how.optimizer in ("adam", "adamw"):
        yield Saving("8-bit optimizer states", {"optimizer": "adamw-8bit"})
    yield from _sharding(how, "shared weights", 3)


def _costly(how: TrainingSettings) -> Iterator[Saving]:
    """Yield kinds of parallelism, whose contradictions the bill refuses, and offload."""
    for kind in ("tensor", "context", "expert", "pipeline"):
        degree = 2 * getattr(how, f"{kind}_parallel")
        while degree <= min(how.gpus, GPUS_OF_A_NODE if kind == "tensor" else MOST_PARALLEL):
            yield Saving(f"{kind} parallelism", {f"{kind}_parallel": degree}, COSTLY)
            degree *= 2
    if not how.activation_offload:
        yield Saving("activations in host RAM", {"activation_offload": True}, COSTLY)
    yield from _offload(how)


def _other_result(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings with which something else is trained."""
    for size in _powers_below(how.micro_batch):
        yield Saving("smaller micro batch", {"micro_batch": size}, CHANGES_RESULT)
    if how.precision != "pure-16":
        yield Saving("16-bit weights", {"precision": "pure-16"}, CHANGES_RESULT)
    for length in _powers_below(how.sequence, SHORTEST_SEQUENCE):
        yield Saving("shorter sequences", {"sequence": length}, CHANGES_RESULT)
    if how.adapter == "none":
        yield Saving("LoRA", {"adapter": "lora"}, CHANGES_RESULT)
    for kind in ("nf4", "nf4-double"):
        if how.adapter == "none":
            weights = {} if kind == "nf4" else {"weights": kind}
            yield Saving("QLoRA", {"adapter": "qlora", **weights}, CHANGES_RESULT)
        elif how.weights != kind:
            yield Saving("QLoRA", {"weights": kind}, CHANGES_RESULT)


def of_serving(case: Case[InferenceSettings]) -> Iterator[Saving]:
    """Yield the savings of GPU memory of inference that a case does not have, the cheapest first.

    `context` must be set.
    """
    how = case.settings
    if (how.prefill_chunk or how.batch * how.context) > SMALL_CHUNK:
        yield Saving("smaller chunks of prompts", {"prefill_chunk": SMALL_CHUNK})
    yield from _after("kv_type", how.kv_type, "rounded KV cache", "fp8", "int8", "int4")
    yield from _after("weight_type", how.weight_type, "rounded weights", "int8", "int4")
    for size in _powers_below(how.batch):
        yield Saving("smaller batch", {"batch": size}, CHANGES_RESULT)
    for length in _powers_below(how.context, SHORTEST_SEQUENCE):
        yield Saving("shorter context", {"context": length}, CHANGES_RESULT)
    for gpus in (2, 4, GPUS_OF_A_NODE):
        if gpus > how.serving_gpus:
            yield Saving("more GPUs", {"serving_gpus": gpus}, CHANGES_RESULT)


def on_host(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings of host RAM that settings do not have, the cheapest first."""
    workers = how.loader_workers
    spawns = workers > 0 and how.start_method == "spawn"
    loading = "lazy" if spawns else "memmap"
    if how.loading not in ("lazy", loading):
        yield Saving("memory-mapped dataset", {"loading": loading})
    if how.metric_batches:
        yield Saving("no logits kept for metrics", {"metric_batches": 0})
    yield from _after("initialization", how.initialization, "weights created once", "meta")
    if how.pin_memory:
        yield Saving("no pinned memory", {"pin_memory": False})
    if spawns:
        yield Saving("forked workers", {"start_method": "fork"})
    if workers > 0 and how.prefetch > 1:
        yield Saving("fewer batches ahead", {"prefetch": 1})
    for fewer in dict.fromkeys(n for n in (workers // 2, 1, 0) if n < workers):
        yield Saving("fewer workers", {"loader_workers": fewer})


def _after(setting: str, current: object, name: str, *values: object) -> Iterator[Saving]:
    """Yield the values that follow the current one; if it is none of them, all."""
    for value in values[values.index(current) + 1 :] if current in values else values:
        yield Saving(name, {setting: value})


def _powers_below(number: int, least: int = 1) -> list[int]:
    """Return the powers of two below a number, the largest first."""
    powers = [1 << i for i in reversed(range((number - 1).bit_length()))]
    return [power for power in powers if power >= least]


def _sharding(how: TrainingSettings, name: str, *stages: int) -> Iterator[Saving]:
    """Yield ZeRO's stages that share more than now; Megatron-LM has only the first."""
    megatron, shared = how.framework == "megatron", sharding_of(how)
    now = shared.weights + shared.gradients + shared.optimizer
    for stage in stages if state_ranks(how) > 1 else ():
        if now < stage and not (megatron and stage > 1):
            kind = "distributed-optimizer" if megatron else f"zero-{stage}"
            yield Saving(name, {"sharding": kind})
    if how.sharding == "fsdp-grad-op" and 3 in stages:
        yield Saving(name, {"sharding": "fsdp"})


def _offload(how: TrainingSettings) -> Iterator[Saving]:
    """Yield offload: alone on one GPU, else with a sharding that can."""
    shared = sharding_of(how)
    alone = state_ranks(how) == 1 and how.sharding == "ddp"
    if how.offload == "none" and shared.program != "fsdp":
        zero_2 = {} if alone or shared.gradients else {"sharding": "zero-2"}
        yield Saving("offload", {**zero_2, "offload": "optimizer"}, COSTLY)
    if how.offload != "all":
        zero_3 = {} if alone or shared.weights else {"sharding": "zero-3"}
        yield Saving("offload", {**zero_3, "offload": "all"}, COSTLY)
