"""The facts that decide which tensors a layer keeps: model, trained weights, types, kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokmill.memory.activations.styles import STYLES
from tokmill.memory.adapters import adapted
from tokmill.memory.parallel import SHARDED_WEIGHTS
from tokmill.memory.precision import SCHEMES, frozen_type, scheme_of

if TYPE_CHECKING:
    from tokmill.memory.activations.styles import Style
    from tokmill.memory.model import Model, Tensor
    from tokmill.settings.bill import TrainingSettings

FP32_BYTES = 4
HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts besides the family that decide which activations a layer keeps.

    `trained`: the base's weights are. `residual`, `product` and `adapter` are the bytes x, q and y
    of the rows; `adapter` is 0 where adapters read what is there anyway. `own_copies`: each linear
    layer casts its input itself. `targets` are the adapted matrices.
    """

    model: Model
    style: Style
    trained: bool
    autocast: bool
    residual: int
    product: int
    adapter: int
    eager: bool
    masked: bool
    targets: tuple[Tensor, ...]

    @property
    def own_copies(self) -> bool:
        """Return whether every linear layer keeps a 16-bit copy of a fp32 input."""
        return self.residual != self.product

    @property
    def dropout(self) -> bool:
        """Return whether dropout makes masks."""
        return self.model.dropout > 0


def situation(model: Model, training: TrainingSettings) -> Situation:
    """Read from model and settings what decides about the rows."""
    trained = training.adapter == "none"
    product = SCHEMES[training.precision].computed
    style = _style(model)
    return Situation(
        model=model,
        style=style,
        trained=trained,
        autocast=training.precision == "amp",
        residual=_residual_bytes(training, trained=trained),
        product=product,
        adapter=0 if trained else _adapter_bytes(training, product),
        eager=training.attention == "eager" or style.always_eager,
        masked=training.attention == "sdpa-mask",
        targets=() if trained else adapted(model, training.adapter_targets),
    )


def _style(model: Model) -> Style:
    """Return the style of the family; Falcon's depends on its norms and on grouped heads."""
    style = STYLES[model.family]
    if model.family != "falcon":
        return style
    names = {t.name.rsplit(".", 2)[-2] for t in model.tensors if t.module == "norm" and t.layers}
    grouped = 1 < model.attention.kv_heads < model.attention.heads
    return replace(
        style,
        one_norm=names == {"input_layernorm"},
        parallel="post_attention_layernorm" not in names,
        fused="" if grouped else "value",
    )


def _adapter_bytes(training: TrainingSettings, product: int) -> int:
    """Return the bytes of an element of the copies that adapters make of their inputs.

    peft casts an input to the adapter's type, which is fp32 on a 16-bit base; under autocast the
    product casts it back. Every adapted layer keeps a copy of its own.
    """
    if training.precision == "amp":
        return product
    weight = scheme_of(training).weight
    return 0 if weight == product else weight


def _residual_bytes(training: TrainingSettings, *, trained: bool) -> int:
    """Return the bytes of an element between the layers: those of the embedding as it is computed.

    Sharded weights are gathered in the type of the products (FSDP's mixed precision).
    """
    if trained:
        held = scheme_of(training).weight
    else:
        held = FP32_BYTES if frozen_type(training) == "fp32" else HALF_BYTES
    if training.sharding in SHARDED_WEIGHTS:
        return min(held, SCHEMES[training.precision].computed)
    return held
