"""Notes on settings that are allowed, but probably not intended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokmill.bill.gpus import Gpu
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.parallel import state_ranks
from tokmill.bill.states.precision import SCHEMES, precision_of
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural
from tokmill.words.units import memory

INTEGERS = ("int8", "int4", "nf4", "nf4-double")


def model_notes(model: Model, *, sequence: int, context: int, ids: int) -> Iterator[str]:
    """Yield a note for each length beyond the model's positions, and for ids without an embedding.

    `sequence` and `context` are lengths in tokens, `ids` the size of the dataset's vocabulary.
    """
    most = model.positions
    for name, tokens in {"sequence": sequence, "context": context}.items():
        if tokens > most > 0:
            yield f"{name}: {tokens:,} tokens are more than the model's {plural(most, 'position')}"
    if ids > model.vocabulary > 0:
        yield (
            f"vocabulary: the dataset's tokenizer has {plural(ids, 'id')}, the model's embedding "
            f"{model.vocabulary:,}: resize the embedding to train on this dataset"
        )


def stored_notes(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield a note if all weights are to be trained, but the model's files have integers."""
    if model.stored and model.stored.kind in INTEGERS and training.adapter == "none":
        yield (
            f"weights: {model.stored.note} cannot be trained; all weights are billed as "
            f"{precision_of(training)}; --adapter=lora keeps them as stored"
        )


def version_notes(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield the needs of both versions of transformers, if none is given and they differ."""
    if training.transformers != "auto" or training.adapter == "none" or not model.has_shape:
        return
    old, new = (
        training_bill(model, replace(training, transformers=version)).peak.n_bytes
        for version in ("4", "5")
    )
    if old != new:
        yield (
            f"transformers: version 4 needs {memory(old)}, version 5 {memory(new)}; counted as the "
            "larger, set --transformers"
        )


def training_notes(training: TrainingSettings, gpu: Gpu | None) -> Iterator[str]:
    """Yield notes on idle pipeline stages, sharding on one GPU, and bf16 on a GPU without it."""
    stages, micro_batches = training.pipeline_parallel, training.accumulation
    if stages > 1 and micro_batches == 1:
        yield (
            f"pipeline_parallel: with 1 micro batch the {stages} stages work one after the other; "
            f"set accumulation to {stages} or more"
        )
    if training.sharding != "ddp" and state_ranks(training) == 1:
        yield (
            f"sharding: {training.sharding} shares nothing, each tensor is on 1 GPU; "
            "more GPUs (--gpus) would share it"
        )
    default = TrainingSettings()
    ranks = (training.adapter_rank, training.adapter_targets)
    if training.adapter == "none" and ranks != (default.adapter_rank, default.adapter_targets):
        yield "adapter_rank, adapter_targets: not used, all weights are trained; set --adapter=lora"
    precision = precision_of(training)
    if gpu and gpu.matrix_type == "fp16" and SCHEMES[precision].computed == PLAIN_BYTES["bf16"]:
        other = "--precision=amp with fp16, or fp32" if precision == "pure-16" else "fp16"
        yield f"precision: {gpu.name} has no bf16; use {other}" + (
            " (fp16 needs fp32 weights)" if precision == "pure-16" else " (the memory is the same)"
        )
