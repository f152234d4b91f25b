"""What decides which tensors a layer keeps: its family's style, trained weights, types, kernels.

And the values of the rows' symbols, of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tokmill.bill.models.adapters import adapted
from tokmill.bill.states.parallel import SHARDED_WEIGHTS
from tokmill.bill.states.precision import SCHEMES, frozen_type, scheme_of

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model, Tensor
    from tokmill.settings.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class Style:
    """A family's layer, as transformers 5.23 writes it.

    `norm`: rms and rms32 compute in fp32 from a copy (rms32 its weight too); layer is torch's.
    `norms_before` act on the residual, `norms_after` on what attention and the feed-forward layer
    give. `inputs` are the linear layers fed by attention's norm and by that of the feed-forward
    layer; `one_norm`: both are fed by the same; `parallel`: two norms of the same residual.
    `fused`: one matrix makes queries, keys and values, and what is a view of its result keeps all
    of it: "all" three (GPT-2), or the "value" after rotary positions made the others anew.
    `heads`: norms of each head's queries and keys, or of all at once. `copied`: the result of
    attention is copied for the output layer. `softmax_fp32`: eager attention makes the scores
    fp32. `soft_cap`: scores and logits are capped by tanh. `dropouts` a layer, of width d.
    `shared_gate`: what the shared expert gives is weighed.
    """

    norm: Literal["rms", "rms32", "layer"] = "rms"
    norms_before: int = 2
    norms_after: int = 0
    inputs: tuple[int, int] = (3, 2)
    one_norm: bool = False
    parallel: bool = False
    fused: Literal["", "all", "value"] = ""
    heads: Literal["", "each", "all"] = ""
    copied: bool = False
    gated: bool = True
    softmax_fp32: bool = True
    soft_cap: bool = False
    dropouts: int = 0
    embedding_norm: bool = False
    always_eager: bool = False
    shared_gate: bool = False


LLAMA = Style()
GPT2 = Style(norm="layer", inputs=(1, 1), fused="all", gated=False, softmax_fp32=False, dropouts=2)
STYLES = {
    "plain": GPT2,
    "gpt2": GPT2,
    "gpt_neox": Style(
        norm="layer", inputs=(1, 1), parallel=True, fused="value", copied=True, gated=False,
        dropouts=2,
    ),
    "opt": Style(norm="layer", inputs=(3, 1), gated=False, dropouts=2),
    "bloom": Style(
        norm="layer", inputs=(1, 1), gated=False, dropouts=2, embedding_norm=True, always_eager=True
    ),
    "falcon": Style(
        norm="layer", inputs=(1, 1), fused="value", copied=True, gated=False, softmax_fp32=False,
        dropouts=2,
    ),
    "phi": Style(norm="layer", inputs=(3, 1), one_norm=True, copied=True, gated=False, dropouts=2),
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "qwen2": LLAMA,
    "qwen2_moe": Style(shared_gate=True),
    "qwen3": Style(heads="each"),
    "qwen3_moe": Style(heads="each"),
    "gemma": Style(norm="rms32"),
    "gemma2": Style(norm="rms32", norms_after=2, soft_cap=True),
    "gemma3_text": Style(norm="rms32", norms_after=2, heads="each"),
    "phi3": Style(inputs=(1, 1), fused="value", copied=True),
    "olmo2": Style(norm="rms32", norms_before=0, norms_after=2, heads="all"),
    "gpt_oss": LLAMA,
    "deepseek_v2": LLAMA,
    "deepseek_v3": LLAMA,
    "baichuan": Style(inputs=(1, 2), fused="value"),
    "chatglm": Style(inputs=(1, 1), fused="value", copied=True),
    "minimind": LLAMA,
}  # fmt: skip


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


DEFAULT_SEQUENCE = 2048


def default_sequence(model: Model) -> int:
    """Return the tokens of a sequence where nothing says them."""
    return min(DEFAULT_SEQUENCE, model.positions or DEFAULT_SEQUENCE)


def activation_symbols(model: Model, training: TrainingSettings, at: Situation) -> dict[str, float]:
    """Return the values; heads and widths are a rank's share, but for Megatron's formulas.

    Those divide by t themselves. With context parallelism a rank sees s / c tokens of a sequence.
    """
    ranks = 1 if training.framework == "megatron" else training.tensor_parallel
    attention, experts = model.attention, model.experts
    return {
        "V": model.vocabulary,
        "a": attention.heads / ranks,
        "b": training.micro_batch,
        "d": model.hidden,
        "f": model.ffn / ranks,
        "h": attention.head_dim,
        "k": max(attention.kv_heads / ranks, 1),
        "n": training.micro_batch * training.sequence / training.context_parallel,
        "q": at.product,
        "r": training.adapter_rank,
        "s": training.sequence,
        "t": training.tensor_parallel,
        "x": at.residual,
        "y": at.adapter or at.product,
        "r_kv": attention.kv_rank,
        "r_q": attention.q_rank,
        "r_rope": attention.rope_dim,
        "h_nope": attention.nope_dim,
        "h_v": attention.value_dim,
        "E": experts.count if experts else 0,
        "e": experts.active if experts else 0,
        "m": experts.ffn / ranks if experts else 0,
        "f_shared": experts.shared_ffn / ranks if experts else 0,
    }
