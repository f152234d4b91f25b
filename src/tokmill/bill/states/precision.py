"""Bytes per parameter: the named precision schemes, and what frozen weights take.

"20 bytes per parameter" has two meanings. One is the scheme mixed-20: fp16 weights and gradients, a
fp32 copy of the gradients, a fp32 copy of the weights and Adam's two moments, 2 + 2 + 4 + 12. The
other is fp32 with AdamW, 4 + 4 + 8, at the moment of a foreach step, which takes 4 more for a
while.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.bill.models.model import Model, Tensor
from tokmill.bill.models.weight_types import PLAIN_BYTES, weight_bytes
from tokmill.settings.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class Scheme:
    """Bytes of a trained element: what is kept of it, and what a layer computes with.

    `master` is a copy of the weight in fp32, `main_gradient` one of the gradient; both live with
    the optimizer. `moment` is an element of a moment. `computed` is a weight as matrices are
    multiplied.
    """

    weight: int
    gradient: int
    master: int
    main_gradient: int
    moment: int
    computed: int


SCHEMES = {
    "fp32": Scheme(4, 4, 0, 0, 4, 4),
    "amp": Scheme(4, 4, 0, 0, 4, 2),
    "pure-16": Scheme(2, 2, 0, 0, 2, 2),
    "mixed-16": Scheme(2, 2, 4, 0, 4, 2),
    "mixed-18": Scheme(2, 4, 4, 0, 4, 2),
    "mixed-20": Scheme(2, 2, 4, 4, 4, 2),
    "bf16-states": Scheme(4, 4, 0, 0, 2, 4),
}

UNSTACKED = ("fp8", "int8", "int4", "nf4", "nf4-double")
"""Types that trainers give to modules: experts that are stacked in one tensor stay in 16 bit."""


def precision_of(training: TrainingSettings) -> str:
    """Return the name of the scheme: as asked, or the one that the framework uses by default."""
    if training.precision != "auto":
        return training.precision
    if training.framework == "megatron" or training.sharding == "distributed-optimizer":
        return "mixed-18"
    return "mixed-16" if training.sharding.startswith("zero") else "amp"


def scheme_of(training: TrainingSettings) -> Scheme:
    """Return the scheme of what is trained.

    Adapters on a 16-bit base are fp32: peft makes them so (`autocast_adapter_dtype`).
    """
    name = precision_of(training)
    return SCHEMES["amp" if training.adapter != "none" and name == "pure-16" else name]


def frozen_type(training: TrainingSettings) -> str:
    """Return the type of weights that are not trained: as asked, or the one that layers compute in.

    The scheme amp takes a 16-bit base: what is not trained needs no more.
    """
    if training.weights != "auto":
        return training.weights
    if training.adapter == "qlora":
        return "nf4"
    return "bf16" if SCHEMES[precision_of(training)].computed == PLAIN_BYTES["bf16"] else "fp32"


def stored_note(model: Model, training: TrainingSettings) -> str:
    """Return what a model's files decide about its frozen weights, in words; '' for nothing."""
    if model.stored is None or training.weights != "auto" or training.adapter == "none":
        return ""
    if not model.stored.trains:
        return f"{model.stored.note}: made 16 bit first, trainers train nothing on it"
    return model.stored.note


def frozen_bytes(tensor: Tensor, model: Model, training: TrainingSettings) -> float:
    """Return the bytes of an element of a frozen tensor: as asked, or as the model's files have it.

    mxfp4 becomes 16 bit first: transformers trains nothing on it (quantizer_mxfp4.is_trainable).
    """
    kind = frozen_type(training)
    stored = model.stored
    is_stored = stored is None or (
        stored.trains and (kind != "nf4" or stored.kind.startswith(kind))
    )
    if training.weights == "auto" and tensor.stored_bytes and is_stored:
        return tensor.stored_bytes
    if tensor.kind == "experts" and kind in UNSTACKED:
        return PLAIN_BYTES["bf16"]
    return weight_bytes(kind, tensor, model)
