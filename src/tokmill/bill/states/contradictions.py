"""Check settings of training that contradict each other or the model."""

from __future__ import annotations

from collections.abc import Iterator

from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import is_counted
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.optimizers import PRECISION_AWARE
from tokmill.bill.states.parallel import SHARDINGS, expert_tensor_parallel, sharding_of, state_ranks
from tokmill.errors import UsageError
from tokmill.settings.training import WEIGHTS, TrainingSettings
from tokmill.words import plural

KERNEL = ("megatron", "kernel")
"""Megatron-LM's cross_entropy_loss_fusion splits the logits."""

ONLY_HF = {
    "adapter": (("qlora", "dora"), "choose lora"),
    "weights": (set(WEIGHTS) - {"auto", *PLAIN_BYTES}, "choose auto"),
    "sharding": (
        set(SHARDINGS) - {"ddp", "distributed-optimizer"},
        "expected ddp or distributed-optimizer with framework megatron",
    ),
    "precision": (("amp",), "Megatron-LM has no autocast, choose mixed-18"),
    "optimizer": (("adamw-8bit", "adafactor"), "choose adamw"),
    "attention": (("sdpa-mask",), "choose flash or eager"),
}
"""Values of settings that Megatron-LM does not have, and what to do."""


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
    for problems in CHECKS:
        for problem in problems(model, training):
            raise UsageError(problem)


def _of_widths(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield what tensor-parallel GPUs cannot divide, and GPUs that no layout fills."""
    t, p, c = (training.tensor_parallel, training.pipeline_parallel, training.context_parallel)
    heads, kv_heads = model.attention.heads, model.attention.kv_heads
    if training.gpus % (t * p * c):
        yield (
            f"gpus: expected a multiple of {t * p * c} (tensor_parallel {t} x pipeline_parallel "
            f"{p} x context_parallel {c}), found {training.gpus}"
        )
    if heads % t:
        yield (
            f"tensor_parallel: expected a divisor of the {plural(heads, 'head')} of a layer, "
            f"found {t}"
        )
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
    """Yield what pipeline stages cannot divide or have."""
    p, v = training.pipeline_parallel, training.virtual_stages
    if v > 1 and p == 1:
        yield f"virtual_stages: {v} chunks need pipeline_parallel of 2 or more, found 1"
    if p > 1 and p > model.layers:
        yield f"pipeline_parallel: expected at most the {plural(model.layers, 'layer')}, found {p}"
    if (v > 1 or training.framework == "megatron") and model.layers % (p * v):
        yield (
            f"pipeline_parallel: {plural(p, 'stage')} of {v} chunks do not divide the "
            f"{model.layers} "
            f"layers; choose stages x chunks that divide them (layouts of unequal stages are "
            f"not modelled)"
        )
    if p > 1 and training.sharding in ("zero-2", "zero-3"):
        yield (
            f"sharding: {training.sharding} does not work with pipeline stages, "
            f"found pipeline_parallel {p}; choose zero-1"
        )


def _of_experts(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield ways to share experts that the model or the GPUs do not allow."""
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
        yield f"expert_parallel: the model has no experts to share among {plural(ep, 'GPU')}"
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


def _of_backward_step(_: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield what a step in the backward pass excludes."""
    if training.optimizer_step != "backward":
        return
    if training.accumulation > 1:
        yield f"optimizer_step: backward needs accumulation 1, found {training.accumulation}"
    if training.framework == "megatron" or training.offload != "none":
        yield "optimizer_step: backward has no framework megatron and no offload; choose fused"
    alone = state_ranks(training) == 1 and training.sharding == "ddp"
    if training.sharding != "fsdp2" and not alone:
        yield f"optimizer_step: backward needs one GPU or sharding fsdp2, found {training.sharding}"


def _of_settings(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield settings that exclude each other, whatever the model is."""
    offload, sharding = training.offload, training.sharding
    split = "sequence_parallel" if training.sequence_parallel else ""
    split = "framework megatron" if training.framework == "megatron" else split
    parts = training.context_parallel
    parts *= training.tensor_parallel if training.sequence_parallel else 1
    if training.sequence % parts:
        yield (
            f"sequence: expected a multiple of {parts}, the GPUs that share it "
            f"(context_parallel, and tensor_parallel with sequence_parallel), "
            f"found {training.sequence}"
        )
    if offload != "none" and sharding == "ddp":
        yield (
            f"offload: {offload} needs sharding zero-1, zero-2, zero-3, fsdp or "
            "distributed-optimizer, found ddp"
        )
    elif offload == "all" and not sharding_of(training).weights:
        yield f"offload: weights need sharding zero-3 or fsdp, found {sharding}"
    elif offload == "optimizer" and sharding_of(training).program == "fsdp":
        yield "offload: fsdp offloads weights and optimizer states together; choose all"
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
    for setting, (values, instead) in ONLY_HF.items():
        if (value := getattr(training, setting)) in values:
            yield f"{setting}: {value} needs framework hf; {instead}"
    if training.metric_batches:
        yield "metric_batches: expected 0 with framework megatron: its evaluation keeps no logits"
    if model.experts and training.tensor_parallel > 1 and not training.sequence_parallel:
        yield (
            "sequence_parallel: Megatron-LM trains experts with tensor_parallel "
            f"{training.tensor_parallel} only with it; add sequence_parallel"
        )


CHECKS = (_of_widths, _of_stages, _of_experts, _of_backward_step, _of_settings, _of_megatron)
"""What is checked of every model with a shape, in this order."""
