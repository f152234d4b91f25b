"""How a family's layer is written in transformers: what decides which tensors it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kernel = Literal["flash", "sdpa", "eager"]
KERNELS: tuple[Kernel, ...] = ("flash", "sdpa", "eager")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """A family's layer, as transformers 5.23 writes it.

    `kernels` are the implementations of attention that exist; `measured`: the rows of its layer
    were compared with what autograd saves.

    `norm`: rms and rms32 compute in fp32 from a copy (rms32 its weight too), t5 keeps the original
    beside it; layer is torch's.
    `norms_before` act on the residual, `norms_after` on what attention and the feed-forward layer
    give. `inputs` are the linear layers fed by attention's norm and by that of the feed-forward
    layer; `one_norm`: both are fed by the same; `parallel`: two norms of the same residual.
    `fused`: one matrix makes queries, keys and values, and what is a view of its result keeps all
    of it: "all" three (GPT-2), or the "value" after rotary positions made the others anew.
    `heads`: norms of each head's queries and keys, or of all at once. `copied`: the result of
    attention is copied for the output layer. `softmax_fp32`: eager attention makes the scores
    fp32. `soft_cap`: scores and logits are capped by tanh. `dropouts` a layer, of width d.
    `shared_gate`: what the shared expert gives is weighed.

    `final_norm` stands behind the last layer; `transform`: a matrix, an activation and a norm stand
    before the head of a language model. `inner_dropout`: dropout and a cast to the
    weights' type stand before the last matrix of the feed-forward layer.
    `position_bias`: what is learned of positions is added to the scores of every layer.
    `loss_fp32`: the loss is computed in fp32, whatever the logits are.

    `sinks`: eager attention has a learned score that takes a share of the softmax. `clamped`: the
    gate of experts is clamped, in operations of its own. `router_fp32`: the router's are in fp32.
    `stacked` are the modules that adapters find in the stacked tensors of experts and router:
    name -> end of the tensor's name. `leaves_out` says what the rows of its layer do not cover.
    """

    kernels: tuple[Kernel, ...]
    measured: bool
    norm: Literal["rms", "rms32", "t5", "layer"] = "rms"
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
    shared_gate: bool = False
    final_norm: bool = True
    transform: bool = False
    inner_dropout: bool = False
    position_bias: bool = False
    loss_fp32: bool = True
    sinks: bool = False
    clamped: bool = False
    router_fp32: bool = False
    stacked: Mapping[str, str] = field(default_factory=dict, hash=False)
    leaves_out: str = ""

    def attention(self, asked: str) -> str:
        """Return the attention that runs: flash (also sdpa), sdpa-mask or eager.

        Without a word (auto) transformers takes sdpa, and eager for families that lack it.
        """
        if asked == "auto":
            return "flash" if "sdpa" in self.kernels else "eager"
        exists = "sdpa" in self.kernels or (asked == "flash" and "flash" in self.kernels)
        return asked if exists else "eager"


LLAMA = Style(kernels=KERNELS, measured=True)
"""The layer of Llama, which many families have."""

STACKED_EXPERTS = {
    "gate": "gate.weight",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
"""The stacked modules of experts that were gate_proj, up_proj and down_proj."""
