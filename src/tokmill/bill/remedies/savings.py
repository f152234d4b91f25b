"""Savings: settings that may need less memory, in the order in which they are offered.

`search` bills each, and offers it if it needs less than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tokmill.bill.states.parallel import sharding_of, state_ranks
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

S = TypeVar("S", bound=TrainingSettings | InferenceSettings)
Changes = Mapping[str, Any]
"""Settings by name."""

COSTLY, CHANGES_RESULT = 1, 2
"""Levels of savings: those that need host RAM and several times as long, or a program with parallel
layers; and those with which something else is trained or served (adapters, shorter texts)."""
MOST_PARALLEL = 16
"""GPUs proposed at most for a kind of parallelism: few trainings have more."""
GPUS_OF_A_NODE = 8
SHORTEST_SEQUENCE = 256
"""Shortest sequence proposed, in tokens."""
SMALL_CHUNK = 2048
"""Prompt tokens at once that small servers take."""


@dataclass(frozen=True, slots=True)
class Saving:
    """Changes that may help; those of one name are alternatives, the mildest first.

    A saving of a higher `level` is taken only if those below are not enough.
    """

    name: str
    changes: Changes
    level: int = 0


def options(changes: Changes) -> tuple[str, ...]:
    """Return changes as options of the command line ("--checkpointing full")."""
    texts = []
    for name, value in changes.items():
        option = "--" + name.replace("_", "-")
        if value is False:
            texts.append(option.replace("--", "--no-", 1))
        else:
            texts.append(option if value is True else f"{option} {value}")
    return tuple(texts)


def of_training(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings of GPU memory that settings do not have, the least speed first."""
    yield from _same_result(how)
    yield from _costly(how)
    yield from _other_result(how)


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
        yield Saving("QLoRA", {"adapter": "qlora"}, CHANGES_RESULT)
    elif how.adapter != "qlora" and how.weights not in ("nf4", "nf4-double"):
        yield Saving("QLoRA", {"weights": "nf4"}, CHANGES_RESULT)


def of_serving(how: InferenceSettings) -> Iterator[Saving]:
    """Yield the savings of GPU memory of inference that settings do not have, the cheapest first.

    `context` must be set.
    """
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
