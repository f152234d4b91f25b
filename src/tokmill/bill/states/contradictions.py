"""Check settings of training that contradict each other or the model."""

from __future__ import annotations

from collections.abc import Iterator

from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import is_counted
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.optimizers import PRECISION_AWARE
from tokmill.bill.states.parallel import expert_tensor_parallel, sharding_of
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

KERNEL = ("megatron", "kernel")
"""Megatron-LM's cross_entropy_loss_fusion splits the logits."""


def check_parallelism(model: Model, training: TrainingSettings) -> None:
    """Check that a run with these settings and this model is possible.

    Allowed: fewer key-value heads than tensor-parallel GPUs, if they divide them (each GPU holds
    one); a vocabulary that does not divide (it is padded); layers that do not divide (the first
    stages have one more), unless stages are interleaved or Megatron's.

    Raises:
        UsageError: with the setting, the expected value, and the numbers.
    """
    if not model.has_shape:
        for problem in _of_shape(model, training):
            raise UsageError(f"{problem}; give --model or --family")
    for problems in (_of_ranks, _of_tensors, _of_stages, _of_experts, _of_sequences, _of_sharing):
        for problem in problems(model, training):
            raise UsageError(problem)
    for problem in (*_of_adapters(training), *_of_loss(training), *_of_megatron(model, training)):
        raise UsageError(problem)


def _of_ranks(model: Model, training: TrainingSettings) -> Iterator[str]:
    t, p, c = (training.tensor_parallel, training.pipeline_parallel, training.context_parallel)
    if training.gpus % (t * p * c):
        yield (
            f"gpus: expected a multiple of {t * p * c} (tensor_parallel {t} x pipeline_parallel "
            f"{p} x context_parallel {c}), found {training.gpus}"
        )


def _of_tensors(model: Model, training: TrainingSettings) -> Iterator[str]:
    t, heads, kv_heads = training.tensor_parallel, model.attention.heads, model.attention.kv_heads
    if heads % t:
        yield f"tensor_parallel: expected a divisor of the {heads} heads of a layer, found {t}"
    if kv_heads % t and t % kv_heads:
        yield (
            f"tensor_parallel: expected a divisor or a multiple of the {kv_heads} key-value heads "
            f"of a layer, found {t}"
        )
    if model.ffn % t:
        yield f"tensor_parallel: expected a divisor of the ffn width {model.ffn}, found {t}"
    if training.sequence_parallel and t == 1:
        yield "sequence_parallel: needs tensor_parallel of 2 or more, found 1"


def _of_shape(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield the settings that need layers or shapes, of a model whose shape is not known."""
    if training.pipeline_parallel > 1:
        yield "pipeline_parallel: stages need the model's layers, which are not known"
    if not is_counted(model):
        return
    if training.adapter != "none":
        yield f"adapter: {training.adapter} needs the shapes of matrices, which are not known"
    if training.optimizer in ("adafactor", "muon"):
        yield f"optimizer: {training.optimizer} needs the shapes of matrices, which are not known"
    if training.optimizer_step == "for-loop":
        yield "optimizer_step: for-loop needs the size of the largest tensor, which is not known"


def _of_stages(model: Model, training: TrainingSettings) -> Iterator[str]:
    p, v = training.pipeline_parallel, training.virtual_stages
    if v > 1 and p == 1:
        yield f"virtual_stages: {v} chunks need pipeline_parallel of 2 or more, found 1"
    if p > 1 and p > model.layers:
        yield f"pipeline_parallel: expected at most the {model.layers} layers, found {p}"
    if (v > 1 or training.framework == "megatron") and model.layers % (p * v):
        yield (
            f"pipeline_parallel: {p} stages of {v} chunks do not divide the {model.layers} "
            f"layers; choose stages x chunks that divide them (layouts of unequal stages are "
            f"not modelled)"
        )
    if p > 1 and training.sharding in ("zero-2", "zero-3"):
        yield (
            f"sharding: {training.sharding} does not work with pipeline stages, "
            f"found pipeline_parallel {p}; choose zero-1"
        )


def _of_experts(model: Model, training: TrainingSettings) -> Iterator[str]:
    ep, etp = training.expert_parallel, expert_tensor_parallel(training)
    if training.expert_tensor_parallel and training.framework != "megatron":
        yield "expert_tensor_parallel: only Megatron splits experts by another number than layers"
    if training.expert_tensor_parallel and model.experts is None:
        yield "expert_tensor_parallel: the model has no experts to split"
    if model.experts and model.experts.ffn % etp:
        yield (
            f"expert_tensor_parallel: expected a divisor of the expert width {model.experts.ffn}, "
            f"found {etp}"
        )
    if ep > 1 and model.experts is None:
        yield f"expert_parallel: the model has no experts to share among {ep} GPUs"
    elif model.experts and model.experts.count % ep:
        yield (
            f"expert_parallel: expected a divisor of the {model.experts.count} experts of a "
            f"layer, found {ep}"
        )
    ranks = training.gpus // training.pipeline_parallel
    if ranks % (ep * etp) and model.experts:
        yield (
            f"expert_parallel: expected a divisor of the {ranks // etp} groups of GPUs that hold "
            f"the same layers and share each expert (gpus / pipeline_parallel / {etp}), found {ep}"
        )


def _of_sequences(model: Model, training: TrainingSettings) -> Iterator[str]:
    parts = training.context_parallel
    parts *= training.tensor_parallel if training.sequence_parallel else 1
    if training.sequence % parts:
        yield (
            f"sequence: expected a multiple of {parts}, the GPUs that share it "
            f"(context_parallel, and tensor_parallel with sequence_parallel), "
            f"found {training.sequence}"
        )


def _of_sharing(model: Model, training: TrainingSettings) -> Iterator[str]:
    offload, sharding = training.offload, training.sharding
    if offload == "none":
        return
    if sharding == "ddp":
        yield (
            f"offload: {offload} needs sharding zero-1, zero-2, zero-3, fsdp or "
            "distributed-optimizer, found ddp"
        )
    elif offload == "all" and not sharding_of(training).weights:
        yield f"offload: weights need sharding zero-3 or fsdp, found {sharding}"
    elif offload == "optimizer" and sharding_of(training).program == "fsdp":
        yield "offload: fsdp offloads weights and optimizer states together; choose all"


def _of_adapters(training: TrainingSettings) -> Iterator[str]:
    if training.adapter == "none" and training.weights != "auto":
        yield (
            f"weights: {training.weights} is for weights that are not trained, but adapter is "
            f"none and all are; choose an adapter, or set precision instead"
        )
    if training.adapter == "qlora" and training.weights in PLAIN_BYTES:
        yield (
            f"adapter: qlora has a quantized base, found weights {training.weights}; choose "
            f"adapter lora"
        )


def _of_loss(training: TrainingSettings) -> Iterator[str]:
    split = "sequence_parallel" if training.sequence_parallel else ""
    split = "framework megatron" if training.framework == "megatron" else split
    if training.loss != "full" and split and (training.framework, training.loss) != KERNEL:
        yield f"loss: {training.loss} needs logits of all ids, which {split} splits; choose full"


def _of_megatron(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield the settings that Megatron-LM does not have, and those that only it has."""
    if training.optimizer in PRECISION_AWARE and training.sharding != "distributed-optimizer":
        yield (
            f"optimizer: {training.optimizer} needs framework megatron and sharding "
            f"distributed-optimizer, found {training.framework} and {training.sharding}"
        )
    if training.framework != "megatron":
        return
    if model.cross_layers:
        yield f"framework: megatron has no encoder-decoder formulas ({model.family}); choose hf"
    if training.adapter in ("qlora", "dora"):
        yield f"adapter: {training.adapter} needs framework hf; choose lora"
    if training.weights not in ("auto", *PLAIN_BYTES):
        yield f"weights: {training.weights} needs framework hf; choose auto"
    if training.sharding not in ("ddp", "distributed-optimizer"):
        yield (
            f"sharding: {training.sharding} needs framework hf; expected ddp or "
            f"distributed-optimizer with framework megatron"
        )
    if training.precision == "amp":
        yield "precision: amp needs framework hf; Megatron-LM has no autocast, choose mixed-18"
    if training.optimizer in ("adamw-8bit", "adafactor"):
        yield f"optimizer: {training.optimizer} needs framework hf; choose adamw"
    if training.attention == "sdpa-mask":
        yield "attention: sdpa-mask needs framework hf; choose flash or eager"
    if training.metric_batches:
        yield "metric_batches: expected 0 with framework megatron: its evaluation keeps no logits"
    if model.experts and training.tensor_parallel > 1 and not training.sequence_parallel:
        yield (
            "sequence_parallel: Megatron-LM trains experts with tensor_parallel "
            f"{training.tensor_parallel} only with it; add sequence_parallel"
        )
