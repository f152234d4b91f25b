"""Notes on settings that are allowed, and probably not what the user wants."""

from __future__ import annotations

from collections.abc import Iterator

from tokmill.bill.gpus import Gpu
from tokmill.bill.models.model import Model
from tokmill.bill.states.parallel import state_ranks
from tokmill.bill.states.precision import SCHEMES, precision_of
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural

HALF_BYTES = 2
INTEGERS = ("int8", "int4", "nf4", "nf4-double")


def model_notes(model: Model, *, sequence: int, context: int, ids: int) -> Iterator[str]:
    """Yield a note for each length over the model's positions, and for ids it cannot embed."""
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
    """Yield a note where all weights of a model are trained whose files hold integers."""
    if model.stored and model.stored.kind in INTEGERS and training.adapter == "none":
        yield (
            f"weights: {model.stored.note} cannot be trained; all weights are billed as "
            f"{precision_of(training)}; --adapter lora keeps them as stored"
        )


def training_notes(training: TrainingSettings, gpu: Gpu | None) -> Iterator[str]:
    """Yield a note for GPUs that stay idle, sharding without ranks, and types a GPU lacks."""
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
    precision = precision_of(training)
    if gpu and gpu.matrix_type == "fp16" and SCHEMES[precision].computed == HALF_BYTES:
        other = "--precision amp with fp16, or fp32" if precision == "pure-16" else "fp16"
        yield f"precision: {gpu.name} has no bf16; use {other}" + (
            " (fp16 needs fp32 weights)" if precision == "pure-16" else " (the memory is the same)"
        )
