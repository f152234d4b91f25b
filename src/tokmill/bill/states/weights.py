"""Weights and their gradients on the fullest rank."""

from __future__ import annotations

from collections.abc import Iterable

from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import RankTensor, count_among, sharding_of, shards
from tokmill.bill.states.precision import precision_of, scheme_of, stored_note
from tokmill.settings.training import TrainingSettings

ZERO = "ZeRO (Rajbhandari et al. 2020), figure 1; Megatron-LM's distributed optimizer"
WEIGHTS = Formula(
    "weights",
    "(q_trained * P_trained + q_frozen * P_frozen + q_quantized * P_quantized) / shards + buffers",
    f"{ZERO}; 4 bit: QLoRA (Dettmers et al. 2023)",
    "exact, scales included; upper bound: weights that are not quantized in fp32, as peft "
    "prepares them",
)
GRADIENTS = Formula(
    "gradients",
    "q_gradient * P_trained / shards",
    ZERO,
    "exact; upper bound: also a fp32 buffer for accumulation (DeepSpeed's BF16_Optimizer)",
)

REFERENCE = Formula(
    "weights of the reference model",
    "q_trained * P_reference / shards",
    "trl's DPOTrainer (1.16): in the type of the trained model, shared where its weights are",
    "not measured",
)


def weights_line(tensors: tuple[RankTensor, ...], model: Model, training: TrainingSettings) -> Line:
    """Return the weights of a rank's `tensors`, and the model's buffers."""
    symbols = weight_symbols(tensors, training) | {"buffers": model.buffer_bytes}
    more = 0.0
    if symbols["P_quantized"]:
        more = (FP32_BYTES - symbols["q_frozen"]) * symbols["P_frozen"] / symbols["shards"]
    return WEIGHTS.line(
        symbols,
        high_bytes=WEIGHTS.evaluate(symbols) + round(more),
        note=stored_note(model, training),
    )


def reference_symbols(
    tensors: tuple[RankTensor, ...], training: TrainingSettings
) -> dict[str, float]:
    """Return the symbols of the reference model, whose tensors are those of the trained model.

    With adapters it has no tensors: the reference is the model with its adapters switched off.
    """
    ranks = shards(training, shared=sharding_of(training).weights)
    copied = tensors if training.reference_model and training.adapter == "none" else ()
    return {
        "q_trained": scheme_of(training).weight,
        "P_reference": count_among(copied, ranks),
        "shards": ranks,
    }


def weight_symbols(tensors: Iterable[RankTensor], training: TrainingSettings) -> dict[str, float]:
    """Return bytes per element, and elements, of trained, frozen and quantized weights."""
    ranks = shards(training, shared=sharding_of(training).weights)
    symbols: dict[str, float] = {"shards": ranks}
    parts: dict[str, list[RankTensor]] = {"trained": [], "frozen": [], "quantized": []}
    for share in tensors:
        quantized = share.weight_bytes < PLAIN_BYTES["bf16"]
        part = "trained" if share.trained else "quantized" if quantized else "frozen"
        parts[part].append(share.among(ranks))
    for part, shares in parts.items():
        symbols[f"P_{part}"] = elements = sum(share.count for share in shares)
        n_bytes = sum(share.count * share.weight_bytes for share in shares)
        symbols[f"q_{part}"] = n_bytes / elements if elements else 0.0
    return symbols


def gradients_line(trained: tuple[RankTensor, ...], training: TrainingSettings) -> Line:
    """Return the gradients of all `trained` tensors."""
    ranks = shards(training, shared=sharding_of(training).gradients)
    elements = count_among(trained, ranks)
    symbols = {"q_gradient": scheme_of(training).gradient, "P_trained": elements, "shards": ranks}
    expected = GRADIENTS.evaluate(symbols)
    buffered = training.accumulation > 1 and precision_of(training) == "mixed-16"
    buffer = round(FP32_BYTES * elements / ranks) if buffered else 0
    return GRADIENTS.line(symbols, high_bytes=expected + buffer)
