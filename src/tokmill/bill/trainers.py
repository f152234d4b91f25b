"""Defaults of trainers: what each sets of the settings that are not given.

They are those of the trainers' own configuration classes and example files, autumn 2026.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tokmill.settings.training import TrainingSettings

Values = Mapping[str, Any]
"""Settings of training by name."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """What a trainer sets: always, with all weights trained, with adapters, on several GPUs.

    `quantized` are adapters on a quantized base, `unquantized` others; `alone`: all weights are
    trained, on one GPU.

    `source` says where that is written: the files that were read, and what they set.
    """

    source: str
    always: Values
    full: Values = field(default_factory=dict)
    alone: Values = field(default_factory=dict)
    adapted: Values = field(default_factory=dict)
    quantized: Values = field(default_factory=dict)
    unquantized: Values = field(default_factory=dict)
    several: Values = field(default_factory=dict)


_RECOMPUTED = {"checkpointing": "full"}
TRAINERS = {
    "trl": Trainer(
        "trl 1.16, trainer/base_config.py: gradient_checkpointing, bf16; sft_config.py: loss "
        "chunked_nll; utils.py, create_model_from_path: weights in fp32; sft_trainer.py: adapters "
        "on a quantized base in bf16; transformers 5.23, training_args.py: adamw_torch_fused",
        {**_RECOMPUTED, "precision": "amp", "loss": "fused", "optimizer_step": "fused"},
        adapted={"prepare_kbit": False},
        quantized={"adapter_type": "bf16"},
        unquantized={"weights": "fp32"},
    ),
    "axolotl": Trainer(
        "axolotl 0.19, examples: gradient_checkpointing in 203 of 220, adamw_bnb_8bit in 103 of "
        "240 (its schema: adamw_torch_fused), cut cross entropy, FSDP2 in 37; loaders/model.py: "
        "bf16, norms and embeddings too",
        {**_RECOMPUTED, "loss": "fused", "optimizer": "adamw-8bit"},
        full={"precision": "pure-16"},
        adapted={"prepare_kbit": False},
        several={"sharding": "fsdp2", "initialization": "meta"},
    ),
    "ms-swift": Trainer(
        "ms-swift 4.6, trainers/arguments.py: gradient_checkpointing, no Liger kernel; "
        "base_args/model_args.py: torch_dtype of the model's configuration; transformers: "
        "adamw_torch_fused; tuner_args.py: lora_dtype of peft, fp32",
        {**_RECOMPUTED, "optimizer_step": "fused"},
        full={"precision": "pure-16"},
        adapted={"prepare_kbit": False},
    ),
    "unsloth": Trainer(
        "unsloth, models/loader.py: use_gradient_checkpointing 'unsloth' (activations in host "
        "RAM); models/llama.py: cross entropy in chunks; its notebooks: adamw_8bit; adapters in "
        "fp32",
        {**_RECOMPUTED, "activation_offload": True, "loss": "fused", "optimizer": "adamw-8bit"},
        full={"precision": "pure-16"},
        adapted={"prepare_kbit": False},
    ),
    "torchtune": Trainer(
        "torchtune, recipes/configs/llama3_1: enable_activation_checkpointing, dtype bf16, "
        "LinearCrossEntropyLoss, AdamW fused; 8B_full_single_device.yaml: PagedAdamW8bit, "
        "optimizer_in_bwd",
        {**_RECOMPUTED, "precision": "pure-16", "loss": "fused", "optimizer_step": "fused"},
        alone={"optimizer": "adamw-8bit", "optimizer_step": "backward"},
        adapted={"prepare_kbit": False, "adapter_type": "bf16"},
        several={"sharding": "fsdp2", "initialization": "meta"},
    ),
    "megatron": Trainer(
        "Megatron-LM, examples/*/*.sh: --use-distributed-optimizer, --bf16 (fp32 gradients), "
        "--cross-entropy-loss-fusion, --recompute-activations (of core attention)",
        {
            "framework": "megatron", "sharding": "distributed-optimizer", "precision": "mixed-18",
            "checkpointing": "selective", "loss": "kernel",
        },
    ),
    "deepspeed": Trainer(
        "DeepSpeedExamples, DeepSpeed-Chat, run_llama2_7b.sh: --gradient_checkpointing, ZeRO-3; "
        "dschat/utils/ds_utils.py: bf16 or fp16; rlhf_engine.py: FusedAdam",
        {**_RECOMPUTED, "precision": "mixed-16", "optimizer_step": "fused"},
        several={"sharding": "zero-3", "initialization": "meta"},
    ),
}  # fmt: skip
QUANTIZED = ("fp8", "int8", "int4", "nf4", "nf4-double", "mxfp4")
"""Types of a base that is quantized."""
USUAL = {"checkpointing": "full"}
"""What all of them set for adapters on a quantized base."""


def set_by_trainer(training: TrainingSettings, given: Collection[str]) -> dict[str, Any]:
    """Return the settings that the trainer sets, by name: those that are not `given`.

    Without a trainer they are those that most set.
    """
    if training.trainer == "auto":
        values: dict[str, Any] = dict(USUAL) if training.adapter == "qlora" else {}
    else:
        values = dict(TRAINERS[training.trainer].always)
        for more in _by_kind(TRAINERS[training.trainer], training):
            values |= more
    return {name: value for name, value in values.items() if name not in given}


def _by_kind(trainer: Trainer, training: TrainingSettings) -> Iterator[Values]:
    """Yield what a trainer sets for this kind of training."""
    if training.adapter == "none":
        yield trainer.full
        if training.gpus == 1:
            yield trainer.alone
    else:
        yield trainer.adapted
        is_quantized = training.adapter == "qlora" or training.weights in QUANTIZED
        yield trainer.quantized if is_quantized else trainer.unquantized
    if training.gpus > 1:
        yield trainer.several


def as_trainer(training: TrainingSettings, given: Collection[str]) -> TrainingSettings:
    """Return the settings as the trainer has them; those that are `given` stay."""
    return replace(training, **set_by_trainer(training, given))
