"""How transformers 5.23 computes a family's layer; this decides which tensors training keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kernel = Literal["flash", "sdpa", "eager"]
KERNELS: tuple[Kernel, ...] = ("flash", "sdpa", "eager")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a family's layer is computed. The defaults are those of Llama."""

    kernels: tuple[Kernel, ...]  # implementations of attention that exist
    measured: bool  # its activations were compared with the tensors that autograd saves
    # rms and rms32 compute in fp32 from a copy, rms32 with its weight in fp32 too; t5 keeps copy
    # and original; layer is torch's LayerNorm.
    norm: Literal["rms", "rms32", "t5", "layer"] = "rms"
    norms_before: int = 2  # norms before attention and feed-forward layer
    norms_after: int = 0  # norms of the outputs of attention and feed-forward layer
    inputs: tuple[int, int] = (3, 2)  # linear layers that read attention's norm, and the other norm
    one_norm: bool = False  # attention and feed-forward layer read the same norm
    parallel: bool = False  # attention and feed-forward layer read two norms of the same residual
    # One matrix makes queries, keys and values. A view keeps its whole output: all three are views
    # ("all", GPT-2), or only the values, because rotary positions make the others anew ("value").
    fused: Literal["", "all", "value"] = ""
    heads: Literal["", "each", "all"] = ""  # norms of queries and keys, per head or over all heads
    copied: bool = False  # the attention output is copied before the output matrix
    gated: bool = True  # the feed-forward layer has a gate
    softmax_fp32: bool = True  # eager attention computes the softmax in fp32
    soft_cap: bool = False  # tanh limits scores and logits
    dropouts: int = 0  # dropouts of the hidden size in a layer
    embedding_norm: bool = False  # a norm follows the embedding
    shared_gate: bool = False  # the output of the shared expert has a gate
    final_norm: bool = True  # a norm follows the last layer
    transform: bool = False  # matrix, activation and norm precede the head of a language model
    inner_dropout: bool = False  # dropout and a cast precede the feed-forward layer's last matrix
    position_bias: bool = False  # learned biases of positions are added to the scores
    loss_fp32: bool = True  # the loss is computed in fp32, whatever type the logits have
    sinks: bool = False  # eager attention has a learned score per head that joins the softmax
    clamped: bool = False  # separate operations clamp the gate of experts
    router_fp32: bool = False  # the router computes in fp32
    # Modules that adapters find in the stacked tensors of experts and router -> end of the name of
    # the tensor.
    stacked: Mapping[str, str] = field(default_factory=dict, hash=False)
    leaves_out: str = ""  # activations of the layer that are not counted

    def attention(self, asked: str) -> str:
        """Return the attention that runs: flash (also sdpa), sdpa-mask or eager.

        auto is the choice of transformers: sdpa, or eager for families without sdpa.
        """
        if asked == "auto":
            return "flash" if "sdpa" in self.kernels else "eager"
        exists = "sdpa" in self.kernels or (asked == "flash" and "flash" in self.kernels)
        return asked if exists else "eager"


LLAMA = Style(kernels=KERNELS, measured=True)

STACKED_EXPERTS = {
    "gate": "gate.weight",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
"""`stacked` of experts that were modules named gate_proj, up_proj and down_proj before."""
