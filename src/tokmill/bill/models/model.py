"""A model for the bill: its shape, its tensors, and the style of its layers.

All counts come from the tensors: parameters by module, the matrices that an adapter adapts, the
parts that tensor parallelism splits, the optimizer states of each matrix. Files in `families` make
the tensors from a configuration; names and shapes are those of Hugging Face transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["embedding", "linear", "experts", "vector"]
"""embedding: a lookup table (vocabulary or positions). linear: a matrix of nn.Linear or Conv1D.
experts: matrices of all experts of a layer, stacked on the first axis. vector: biases, norms."""

Split = Literal["columns", "rows", "vocabulary", "none"]
"""How tensor parallelism splits a tensor: by output features, input features, ids, or not."""

Module = Literal[
    "embedding", "attention", "mixer", "mlp", "experts", "router", "norm", "head", "other"
]
"""mixer: what mixes tokens without attention. other: a tensor of an unknown architecture."""

BlockKind = Literal[
    "attention", "latent", "cross", "indexer", "compressed", "delta", "lightning", "mamba",
    "mamba-2", "convolution", "rwkv", "inputs", "mlp", "experts", "other",
]  # fmt: skip
"""latent: DeepSeek's compressed attention (MLA). cross: a decoder's attention to an encoder. delta:
linear attention with a gated delta rule. lightning: linear attention with a fixed decay. mamba,
mamba-2: state spaces. convolution: a short one between two gates. mlp: a feed-forward layer.
other: what only has parameters."""

Kernel = Literal["flash", "sdpa", "eager"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter outside the layers, or one that some layers have a copy of."""

    name: str  # the Hugging Face name, with "{}" for the number of the layer
    shape: tuple[int, ...]  # as stored
    module: Module
    kind: Kind
    split: Split = "none"
    n_in: int = 0  # input features of a matrix, whichever way it is stored; of each expert
    n_out: int = 0
    layers: tuple[int, ...] | None = None  # the layers that have a copy
    stored_bytes: float = 0.0  # per element in the model's files, with scales; 0: not known

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """Elements of all copies."""
        return self.size * (1 if self.layers is None else len(self.layers))


@dataclass(frozen=True, slots=True)
class Attention:
    """The shape of attention; in MLA (DeepSeek), kv_heads equals heads."""

    heads: int
    kv_heads: int
    head_dim: int
    kv_rank: int = 0  # of MLA; 0: other attention
    q_rank: int = 0  # of MLA; 0: queries are not compressed
    rope_dim: int = 0
    nope_dim: int = 0
    value_dim: int = 0

    @property
    def sizes(self) -> dict[str, float]:
        """The values of the symbols of attention."""
        plain = {"a": self.heads, "k": self.kv_heads, "h": self.head_dim}
        if not self.kv_rank:
            return dict(plain)
        return {
            **plain, "r_kv": self.kv_rank, "r_q": self.q_rank, "r_rope": self.rope_dim,
            "h_nope": self.nope_dim, "h_v": self.value_dim,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """A part of some layers, from which its parameters, activations and cache follow.

    `sizes` are the values of the symbols in the formulas of its kind, of the whole model. `window`
    is the number of tokens that attention looks back, 0 for all. Traits of attention: "gate" (its
    output has one), "shared" (keys and values are those of an earlier layer), "keys" (values are
    the keys). Trait of all kinds: "beside" (it reads the norm of the block before it).
    """

    kind: BlockKind
    layers: tuple[int, ...]
    sizes: Mapping[str, float] = field(default_factory=dict, hash=False)
    window: int = 0
    traits: frozenset[str] = frozenset()
    reads: int = 0  # matrices that read the norm; 0: as the style says


@dataclass(frozen=True, slots=True)
class Experts:
    """The shape of a mixture of experts."""

    count: int
    active: int  # experts per token
    ffn: int  # width of an expert
    shared_ffn: int  # width of the shared experts, which every token passes; 0: none
    layers: tuple[int, ...]  # the layers with experts

    @property
    def sizes(self) -> dict[str, float]:
        """The values of the symbols of experts."""
        return {"E": self.count, "e": self.active, "m": self.ffn, "f_shared": self.shared_ffn}


@dataclass(frozen=True, slots=True)
class Stored:
    """How a model's files store its weights."""

    kind: str  # the nearest weight type
    note: str
    trains: bool = True  # False: trainers dequantize the weights to 16 bit to train adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How transformers 5.23 computes a family's layer; this decides which tensors training keeps.

    The defaults are those of Llama.
    """

    measured: bool = True  # its activations were compared with the tensors that autograd saves
    kernels: tuple[Kernel, ...] = ("flash", "sdpa", "eager")  # that exist for its attention
    # rms and rms32 compute in fp32 from a copy, rms32 with its weight in fp32 too; t5 keeps copy
    # and original; layer is torch's LayerNorm, centered Cohere's own in fp32.
    norm: Literal["rms", "rms32", "t5", "layer", "centered"] = "rms"
    norms_before: int = 2  # norms before attention and feed-forward layer
    norms_after: int = 0  # norms of the outputs of attention and feed-forward layer
    inputs: tuple[int, int] = (3, 2)  # linear layers that read attention's norm, and the other norm
    one_norm: bool = False  # attention and feed-forward layer read the same norm
    parallel: bool = False  # attention and feed-forward layer read two norms of the same residual
    # One matrix makes queries, keys and values. A view keeps its whole output: all three are views
    # ("all", GPT-2), or only the values, because rotary positions make the others anew ("value").
    fused: Literal["", "all", "value"] = ""
    repeated: bool = False  # keys and values are made and cached for every query head
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


LLAMA = Style()
OTHER_PARTS = "parts besides the text model (vision, audio)"
"""What `Model.leaves_out` says of a model of text and more."""
XIELU = "what the activation xIELU keeps"
UNKNOWN_LAYERS = "what the layers of an unknown architecture keep besides Llama's"
UNCOUNTED = (OTHER_PARTS, XIELU, UNKNOWN_LAYERS)
"""Sentences of `Model.leaves_out` that may be large: a verdict names them."""


@dataclass(frozen=True, slots=True)
class Model:
    """Shape and tensors of a model."""

    name: str
    family: str
    layers: int
    hidden: int
    ffn: int
    vocabulary: int
    positions: int
    tied: bool  # the head is the embedding, which is in `tensors` once
    activation: str  # activation function of the feed-forward layer, named as in the configuration
    attention: Attention
    tensors: tuple[Tensor, ...]
    experts: Experts | None = None
    dropout: float = 0.0  # the largest probability of dropout between matrices
    attention_dropout: float = 0.0  # the probability of dropout after softmax
    buffer_bytes: int = 0  # tensors on the GPU that are not parameters
    leaves_out: tuple[str, ...] = ()  # parts of the model that are not counted
    stored: Stored | None = None
    warnings: tuple[str, ...] = ()  # about its configuration, for the first screen
    style: Style = LLAMA
    labels: int | None = None  # outputs of a classifier, 0 without a head; None: language model
    encoder_layers: int = 0  # the first layers; the others are a decoder, which attends to them
    blocks: tuple[Block, ...] = ()  # what its layers are made of; (): not known

    @property
    def decoder_layers(self) -> int:
        """Layers that generate tokens and cache their keys and values."""
        return self.layers - self.encoder_layers

    @property
    def cross_layers(self) -> int:
        """Decoder layers that attend to an encoder."""
        return self.decoder_layers if self.encoder_layers else 0

    @property
    def windows(self) -> tuple[int, ...]:
        """The windows of layers that do not attend to all tokens, each once."""
        return tuple(sorted({block.window for block in self.blocks if block.window}))

    @property
    def outputs(self) -> int:
        """Outputs of the head for a token, 0 without a head."""
        return self.vocabulary if self.labels is None else self.labels

    @property
    def has_shape(self) -> bool:
        """Whether layers and widths are known; activations and KV cache need them."""
        return self.hidden > 0

    @property
    def parameters(self) -> int:
        """P: elements of all tensors; a tied head is counted once."""
        return sum(tensor.count for tensor in self.tensors)

    @property
    def active_parameters(self) -> int:
        """Parameters that a token uses: all but those of inactive experts."""
        if self.experts is None:
            return self.parameters
        idle = 1 - self.experts.active / self.experts.count
        stacked = sum(t.count for t in self.tensors if t.kind == "experts")
        return self.parameters - round(stacked * idle)

    def by_module(self) -> dict[str, int]:
        """Return the parameters of each module, in the order of the model.

        Tensors of an unknown architecture are counted by the name of their part of a layer.
        """
        by_module: dict[str, int] = {}
        for tensor in self.tensors:
            part = tensor.name.partition(".{}.")[2].partition(".")[0]
            module = part if tensor.module == "other" and part else tensor.module
            by_module[module] = by_module.get(module, 0) + tensor.count
        return by_module
