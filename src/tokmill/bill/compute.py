"""Training on a dataset: tokens per parameter, steps, FLOP, time and cost.

Operations are those of matrix products; a multiply-add counts as two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokmill.bill.formula import Formula
from tokmill.bill.gpus import Gpu
from tokmill.bill.models.model import Model
from tokmill.bill.on_disk import DatasetSize
from tokmill.bill.states.parallel import data_parallel
from tokmill.bill.states.precision import scheme_of
from tokmill.settings.training import TrainingSettings
from tokmill.words import plural

CHINCHILLA_TOKENS = 20
"""Tokens per parameter of a compute-optimal run (Hoffmann et al. 2022, table A3: 18 to 22)."""

NO_PEAK = "no time estimate: the peak FLOP/s of the GPU is not known; give --gpu a name"

TRAINING_OPERATIONS = Formula(
    "FLOP of a trained token",
    "6 * P_used + 12 * a * h * s_layers",
    "PaLM, appendix B: 6 N + 12 L H Q T; forward 2, backward 4 a parameter; attention not halved "
    "for the causal mask",
    "leaves out norms, activations, softmax: under 1% from d = 1,024 on",
)
ADAPTER_OPERATIONS = Formula(
    "FLOP of a trained token, frozen base",
    "4 * P_used + 12 * a * h * s_layers",
    "PaLM's count without the gradients of frozen matrices",
    "leaves out the adapters: under 2% up to rank 64",
)
FORWARD_OPERATIONS = Formula(
    "FLOP of recomputing a token's forward pass",
    "2 * P_layers + 4 * a * h * s_layers",
    "checkpointing runs the layers, not the head, forward twice",
)
ATTENTION_OPERATIONS = Formula(
    "FLOP of recomputing a token's attention",
    "4 * a * h * s_layers",
    "selective checkpointing runs scores and their product with the values twice (Korthikanti)",
)


@dataclass(frozen=True, slots=True)
class Compute:
    """The computation of all epochs of training.

    Attributes:
        tokens: tokens of an epoch, without validation.
        trained_tokens: tokens of all epochs.
        parameters: parameters of the model.
        tokens_per_parameter: tokens of an epoch per parameter.
        chinchilla_tokens: tokens of a compute-optimal run.
        sequence: tokens per sequence.
        step_sequences: sequences of an optimizer step on all GPUs.
        step_tokens: tokens of an optimizer step on all GPUs, at most.
        steps_per_epoch: complete optimizer steps of an epoch, 0 if the dataset is smaller.
        steps: optimizer steps of all epochs.
        operations_per_token: FLOP of a trained token.
        operations: FLOP of all epochs.
        operations_with_recompute: the same with the FLOP that checkpointing adds.
        seconds: time; None if the peak speed is not known, like the next two.
        gpu_hours: time multiplied by the number of GPUs.
        cost: `gpu_hours` times the price per hour; None without a price.
        notes: why there is no time, and other remarks.
    """

    tokens: int
    trained_tokens: int
    parameters: int
    tokens_per_parameter: float
    chinchilla_tokens: int
    sequence: int
    step_sequences: int
    step_tokens: int
    steps_per_epoch: int
    steps: int
    operations_per_token: int
    operations: float
    operations_with_recompute: float
    seconds: float | None
    gpu_hours: float | None
    cost: float | None
    notes: tuple[str, ...] = ()


def compute(
    model: Model, training: TrainingSettings, dataset: DatasetSize, gpu: Gpu | None = None
) -> Compute:
    """Return steps, operations, time and cost of training the model on the dataset.

    `training` is completed. The time is that of the executed operations at `training.mfu`
    of the peak.
    """
    sequence, parameters = training.sequence, model.parameters
    step_sequences = training.micro_batch * training.accumulation * data_parallel(training)
    per_epoch = _sequences(dataset, sequence) // step_sequences
    per_token, again = operations_per_token(model, training, sequence)
    trained = round(dataset.train_tokens * training.epochs)
    executed = (per_token + again) * trained
    peak = 0.0 if gpu is None else gpu.peak(scheme_of(training).computed)
    seconds = executed / (training.mfu * peak * training.gpus) if peak else None
    hours = None if seconds is None else seconds * training.gpus / 3600
    notes = [] if peak else [NO_PEAK]
    if not per_epoch:
        step = plural(step_sequences, "sequence")
        notes.append(f"the dataset is smaller than a step of {step}")
    return Compute(
        tokens=dataset.train_tokens,
        trained_tokens=trained,
        parameters=parameters,
        tokens_per_parameter=dataset.train_tokens / max(1, parameters),
        chinchilla_tokens=CHINCHILLA_TOKENS * parameters,
        sequence=sequence,
        step_sequences=step_sequences,
        step_tokens=step_sequences * sequence,
        steps_per_epoch=per_epoch,
        steps=math.floor(per_epoch * training.epochs),
        operations_per_token=per_token,
        operations=float(per_token * trained),
        operations_with_recompute=float(executed),
        seconds=seconds,
        gpu_hours=hours,
        cost=hours * training.price_per_hour if hours and training.price_per_hour else None,
        notes=tuple(notes),
    )


def operations_per_token(
    model: Model, training: TrainingSettings, sequence: int
) -> tuple[int, int]:
    """Return the operations of a trained token, and those that checkpointing adds.

    They count the parameters that a token is multiplied with: active experts, and a tied embedding,
    which is also the head, but no other embedding.
    """
    symbols = _symbols(model, sequence)
    is_adapted = training.adapter != "none"
    formula = ADAPTER_OPERATIONS if is_adapted else TRAINING_OPERATIONS
    again = {"full": FORWARD_OPERATIONS, "selective": ATTENTION_OPERATIONS}
    added = again.get(training.checkpointing)
    return formula.evaluate(symbols), added.evaluate(symbols) if added else 0


def operations_of_rows(model: Model) -> tuple[int, int]:
    """Return the FLOP of training on a row: for each token, and for each square of a length.

    The squares are those of the lengths of documents that attend to nothing else. The causal mask
    spares half of them, which kernels leave out. A layer with a window costs as much for each token
    as with a full window.
    """
    longest = 1 << 40  # longer than any window
    once, twice = (_symbols(model, n)["s_layers"] for n in (longest, 2 * longest))
    full_layers = round((twice - once) / longest, 6)
    windows = round(once - full_layers * longest)
    symbols = _symbols(model, 1)
    width = symbols["a"] * symbols["h"]
    token = 6 * symbols["P_used"] + 12 * width * windows
    return round(token), round(12 * width * full_layers / 2)


def _symbols(model: Model, sequence: int) -> dict[str, float]:
    """Return the values of the symbols of FLOP, for sequences of a length."""
    layers = sum(tensor.count for tensor in model.tensors if tensor.layers is not None)
    idle = model.parameters - model.active_parameters
    tables = sum(
        tensor.count
        for tensor in model.tensors
        if tensor.kind == "embedding" and not (model.tied and tensor.split == "vocabulary")
    )
    shape, head_dim = model.attention, float(model.attention.head_dim)
    if shape.kv_rank:  # MLA: the mean of the sizes for scores and for values
        head_dim = (shape.nope_dim + shape.rope_dim + shape.value_dim) / 2
    attended = 0.0
    for block in model.blocks:
        if block.kind in ("attention", "latent"):
            share = block.sizes["a"] * block.sizes["h"] / (shape.heads * shape.head_dim)
            attended += share * len(block.layers) * min(block.window or sequence, sequence)
    return {
        "P_used": model.active_parameters - tables,
        "P_layers": layers - idle,
        "a": shape.heads,
        "h": head_dim,
        "s_layers": attended,
    }


def _sequences(dataset: DatasetSize, sequence: int) -> int:
    """Return the samples of an epoch: packed rows, conversations, or windows of tokens."""
    if dataset.train_rows and sequence == dataset.capacity:
        return dataset.train_rows
    if dataset.kind == "sft" and not dataset.capacity:
        return dataset.documents - dataset.val_documents
    return dataset.train_tokens // sequence
