"""Defaults of trainers: what each sets of the settings that are not given.

They are those of the trainers' own configuration classes and example files, autumn 2026.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tokmill.settings.training import TrainingSettings

Values = Mapping[str, Any]
"""Settings of training by name."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """What a trainer sets: always, with all weights trained, with adapters, on several GPUs.

    `quantized` are adapters on a quantized base.

    `source` says where that is written.
    """

    source: str
    always: Values
    full: Values = field(default_factory=dict)
    adapted: Values = field(default_factory=dict)
    quantized: Values = field(default_factory=dict)
    several: Values = field(default_factory=dict)


_RECOMPUTED = {"checkpointing": "full"}
TRAINERS = {
    "trl": Trainer(
        "SFTConfig: gradient_checkpointing, bf16; transformers' adamw_torch_fused; adapters on a "
        "quantized base in bf16 (SFTTrainer)",
        {**_RECOMPUTED, "precision": "amp", "optimizer_step": "fused"},
        adapted={"prepare_kbit": False},
        quantized={"adapter_type": "bf16"},
    ),
    "axolotl": Trainer(
        "its examples: gradient_checkpointing, adamw_bnb_8bit, cut cross entropy; the model is "
        "loaded in bf16",
        {**_RECOMPUTED, "loss": "fused", "optimizer": "adamw-8bit"},
        full={"precision": "pure-16"},
        adapted={"prepare_kbit": False},
        several={"sharding": "fsdp2", "initialization": "meta"},
    ),
    "ms-swift": Trainer(
        "TrainingArguments: gradient_checkpointing, adamw_torch_fused; torch_dtype bf16 of the "
        "model's configuration",
        {**_RECOMPUTED, "optimizer_step": "fused"},
        full={"precision": "pure-16"},
        adapted={"prepare_kbit": False},
    ),
    "unsloth": Trainer(
        "its notebooks: use_gradient_checkpointing 'unsloth' (activations in host RAM), "
        "adamw_8bit, cross entropy in chunks; adapters in fp32",
        {**_RECOMPUTED, "activation_offload": True, "loss": "fused", "optimizer": "adamw-8bit"},
        full={"precision": "pure-16"},
        adapted={"prepare_kbit": False},
    ),
    "torchtune": Trainer(
        "its configurations: enable_activation_checkpointing, dtype bf16, "
        "LinearCrossEntropyLoss, AdamW fused; full on one GPU in 8 bit",
        {**_RECOMPUTED, "precision": "pure-16", "loss": "fused", "optimizer_step": "fused"},
        adapted={"prepare_kbit": False, "adapter_type": "bf16"},
        several={"sharding": "fsdp2", "initialization": "meta"},
    ),
    "megatron": Trainer(
        "its examples: distributed optimizer, bf16 with fp32 gradients, fused cross entropy, "
        "recompute of core attention",
        {
            "framework": "megatron", "sharding": "distributed-optimizer", "precision": "mixed-18",
            "checkpointing": "selective", "loss": "kernel",
        },
    ),
    "deepspeed": Trainer(
        "its examples with Hugging Face's Trainer: bf16, ZeRO-3 on several GPUs, "
        "gradient_checkpointing",
        {**_RECOMPUTED, "precision": "mixed-16"},
        several={"sharding": "zero-3", "initialization": "meta"},
    ),
}  # fmt: skip
USUAL = {"checkpointing": "full"}
"""What all of them set for adapters on a quantized base."""


def set_by_trainer(training: TrainingSettings, given: Collection[str]) -> dict[str, Any]:
    """Return the settings that the trainer sets, by name: those that are not `given`.

    Without a trainer they are those that most set.
    """
    if training.trainer == "auto":
        values: dict[str, Any] = dict(USUAL) if training.adapter == "qlora" else {}
    else:
        trainer = TRAINERS[training.trainer]
        values = dict(trainer.always)
        values |= trainer.full if training.adapter == "none" else trainer.adapted
        values |= trainer.quantized if training.adapter == "qlora" else {}
        values |= trainer.several if training.gpus > 1 else {}
    return {name: value for name, value in values.items() if name not in given}


def as_trainer(training: TrainingSettings, given: Collection[str]) -> TrainingSettings:
    """Return the settings as the trainer has them; those that are `given` stay."""
    return replace(training, **set_by_trainer(training, given))
