"""Bytes per parameter: the named precision schemes, and the types of frozen weights.

"20 bytes per parameter" has two meanings: the scheme mixed-20, 2 + 2 + 4 + 4 + 8, and fp32 with
AdamW, 4 + 4 + 8, during a foreach step, which needs 4 more temporarily.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.bill.models.model import Model, Tensor
from tokmill.bill.models.weight_types import PLAIN_BYTES, is_matrix, weight_bytes
from tokmill.settings.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class Scheme:
    """Bytes per trained element.

    `master` is a fp32 copy of the weight and `main_gradient` one of the gradient; both belong to
    the optimizer states. `moment` is one moment of Adam. `computed` is the type in which matrices
    are multiplied.
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
"""Types into which trainers convert linear modules. Experts that transformers 5 stacks in one
tensor stay 16 bit; before, each was a module."""


def precision_of(training: TrainingSettings) -> str:
    """Return the name of the scheme: the setting, or for auto the default of the framework."""
    if training.precision != "auto":
        return training.precision
    if training.framework == "megatron" or training.sharding == "distributed-optimizer":
        return "mixed-18"
    return "mixed-16" if training.sharding.startswith("zero") else "amp"


def scheme_of(training: TrainingSettings) -> Scheme:
    """Return the scheme of the trained weights.

    Adapters on a 16-bit base are fp32, as peft makes them (`autocast_adapter_dtype`), unless they
    are set to 16 bit.
    """
    name = precision_of(training)
    if training.adapter == "none" or name not in ("amp", "pure-16"):
        return SCHEMES[name]
    return SCHEMES["pure-16" if training.adapter_type == "bf16" else "amp"]


def frozen_type(training: TrainingSettings) -> str:
    """Return the type of frozen weights: the setting, or for auto the type that layers compute in.

    With amp that is 16 bit: frozen weights need no fp32 copy.
    """
    if training.weights != "auto":
        return training.weights
    if training.adapter == "qlora":
        return "nf4"
    return "bf16" if SCHEMES[precision_of(training)].computed == PLAIN_BYTES["bf16"] else "fp32"


def is_prepared(training: TrainingSettings) -> bool:
    """Return whether peft's prepare_model_for_kbit_training has made a 4- or 8-bit base ready.

    Norms, embedding and head are then fp32, and so is the residual. Sharded weights need one type.
    """
    bitsandbytes = frozen_type(training) in ("int8", "nf4", "nf4-double")
    asked = training.adapter == "qlora" and training.prepare_kbit
    sharded = training.sharding.startswith(("fsdp", "zero-3"))
    return asked and bitsandbytes and precision_of(training) == "amp" and not sharded


def stored_note(model: Model, training: TrainingSettings) -> str:
    """Return a note on frozen weights whose type the model's files decide; '' for none."""
    if model.stored is None or training.weights != "auto" or training.adapter == "none":
        return ""
    if not model.stored.trains:
        return f"{model.stored.note}: converted to 16 bit, because trainers cannot train on it"
    return model.stored.note


def frozen_bytes(tensor: Tensor, model: Model, training: TrainingSettings) -> float:
    """Return bytes per element of a frozen tensor: of the setting, for auto of the model's files.

    mxfp4 is converted to 16 bit: transformers cannot train on it (quantizer_mxfp4.is_trainable).
    """
    kind = frozen_type(training)
    stored = model.stored
    is_stored = stored is None or (
        stored.trains and (kind != "nf4" or stored.kind.startswith(kind))
    )
    if training.weights == "auto" and tensor.stored_bytes and is_stored:
        return tensor.stored_bytes
    if is_prepared(training) and tensor.kind != "experts":
        return max(weight_bytes(kind, tensor, model), 4.0 * (not is_matrix(tensor)))
    stacked = tensor.kind == "experts" and training.transformers != "4"
    if stacked and kind in UNSTACKED:
        return PLAIN_BYTES["bf16"]
    return weight_bytes(kind, tensor, model)
