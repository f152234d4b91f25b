"""A model for the bill: its shape, and every tensor that it holds.

All counts come from the tensors: parameters by module, the matrices that an adapter adapts, the
parts that tensor parallelism splits, the optimizer states of each matrix. Files in `families` make
the tensors from a configuration; names and shapes are those of Hugging Face transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tokmill.bill.models.style import LLAMA, Style

Kind = Literal["embedding", "linear", "experts", "vector"]
"""embedding: a lookup table (vocabulary or positions). linear: a matrix of nn.Linear or Conv1D.
experts: matrices of all experts of a layer, stacked on the first axis. vector: biases, norms."""

Split = Literal["columns", "rows", "vocabulary", "none"]
"""How tensor parallelism splits a tensor: by output features, input features, ids, or not."""

Module = Literal["embedding", "attention", "mlp", "experts", "router", "norm", "head", "other"]
"""other: a tensor of a model whose architecture is not known."""


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
    first: int = 0  # the layer that is number 0 in names: not 0 in a decoder behind an encoder

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all copies."""
        if self.layers is None:
            return (self.name,)
        return tuple(self.name.format(layer - self.first) for layer in self.layers)

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return math.prod(self.shape)

    @property
    def copies(self) -> int:
        """Number of copies in the model."""
        return 1 if self.layers is None else len(self.layers)

    @property
    def count(self) -> int:
        """Elements of all copies."""
        return self.size * self.copies


@dataclass(frozen=True, slots=True)
class Attention:
    """The shape of attention; in MLA (DeepSeek), kv_heads equals heads."""

    heads: int
    kv_heads: int
    head_dim: int
    windows: tuple[int, ...] = ()  # of each layer in tokens, 0: no window; (): no layer has one
    kv_rank: int = 0  # of MLA; 0: other attention
    q_rank: int = 0  # of MLA; 0: queries are not compressed
    rope_dim: int = 0
    nope_dim: int = 0
    value_dim: int = 0


@dataclass(frozen=True, slots=True)
class Experts:
    """The shape of a mixture of experts."""

    count: int
    active: int  # experts per token
    ffn: int  # width of an expert
    shared_ffn: int  # width of the shared experts, which every token passes; 0: none
    layers: tuple[int, ...]  # the layers with experts


@dataclass(frozen=True, slots=True)
class Stored:
    """How a model's files store its weights."""

    kind: str  # the nearest weight type
    note: str
    trains: bool = True  # False: trainers dequantize the weights to 16 bit to train adapters


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
    dropout: float = 0.0  # the largest dropout probability
    buffer_bytes: int = 0  # tensors on the GPU that are not parameters
    leaves_out: tuple[str, ...] = ()  # parts of the model that are not counted
    stored: Stored | None = None
    warnings: tuple[str, ...] = ()  # about its configuration, for the first screen
    style: Style = LLAMA
    labels: int | None = None  # outputs of a classifier, 0 without a head; None: language model
    encoder_layers: int = 0  # the first layers; the others are a decoder, which attends to them

    @property
    def decoder_layers(self) -> int:
        """Layers that generate tokens and cache their keys and values."""
        return self.layers - self.encoder_layers

    @property
    def cross_layers(self) -> int:
        """Decoder layers that attend to an encoder."""
        return self.decoder_layers if self.encoder_layers else 0

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
        """Return the parameters of each module, in the order of the model."""
        found: dict[str, int] = {}
        for tensor in self.tensors:
            found[tensor.module] = found.get(tensor.module, 0) + tensor.count
        return found
