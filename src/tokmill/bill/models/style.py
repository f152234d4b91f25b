"""How a family's layer is written in transformers: what decides which tensors it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model


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


def style_of(model: Model) -> Style:
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
