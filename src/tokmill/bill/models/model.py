"""A model as the bill sees it: its shape, and every tensor that it holds.

All counts derive from the tensors: parameters by module, what an adapter adapts, what tensor
parallelism splits, what an optimizer keeps of each matrix. `families` makes the tensors from a
configuration; names and shapes are those of the Hugging Face implementation.
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
    """A parameter that stands once, or once in each of some layers.

    `name` is the Hugging Face name with "{}" for the layer's number. `shape` is as stored. A linear
    maps `n_in` to `n_out` features whichever way it is stored (experts: each of them). `layers` are
    those that hold it; None for a tensor outside the layers. A decoder behind an encoder counts its
    layers from 0 again in names: `first` is its first. `stored_bytes` are those of an element
    in the model's files, scales included, where the files say; 0 where they do not.
    """

    name: str
    shape: tuple[int, ...]
    module: Module
    kind: Kind
    split: Split = "none"
    n_in: int = 0
    n_out: int = 0
    layers: tuple[int, ...] | None = None
    stored_bytes: float = 0.0
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its copies."""
        if self.layers is None:
            return (self.name,)
        return tuple(self.name.format(layer - self.first) for layer in self.layers)

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return math.prod(self.shape)

    @property
    def copies(self) -> int:
        """Layers that hold it, or 1."""
        return 1 if self.layers is None else len(self.layers)

    @property
    def count(self) -> int:
        """Elements in the whole model."""
        return self.size * self.copies


@dataclass(frozen=True, slots=True)
class Attention:
    """The shape of attention. `windows[i]` is the sliding window of layer i in tokens, 0 for none.

    MLA (DeepSeek) has `kv_rank` > 0: `q_rank` (0: queries are not compressed), `rope_dim`,
    `nope_dim`, `value_dim`; heads and kv_heads are then equal.
    """

    heads: int
    kv_heads: int
    head_dim: int
    windows: tuple[int, ...] = ()
    kv_rank: int = 0
    q_rank: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    value_dim: int = 0


@dataclass(frozen=True, slots=True)
class Experts:
    """The shape of a mixture: `count` experts of width `ffn`, `active` for a token.

    `shared_ffn` is the width of what every token passes (0: nothing). `layers` hold experts.
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """How a model's files store its weights, in words, and the weight type nearest to that.

    Not `trains`: trainers turn the weights back into 16 bit before they train adapters on them.
    """

    kind: str
    note: str
    trains: bool = True


@dataclass(frozen=True, slots=True)
class Model:
    """Shape and tensors. `tied`: the head is the embedding, which then stands once in `tensors`.

    `activation` is the name of the feed-forward's activation function as in the configuration;
    `dropout` the largest of its dropout probabilities; `buffer_bytes` those of tensors that are no
    parameters and live on the GPU all the time. `leaves_out` names what of it is not counted.
    The first `encoder_layers` see all tokens; the layers behind them are a decoder that attends to
    them.
    `labels`: its head classifies, None for a language model, 0 without a head.
    `warnings` are sentences on its configuration for the first screen.
    """

    name: str
    family: str
    layers: int
    hidden: int
    ffn: int
    vocabulary: int
    positions: int
    tied: bool
    activation: str
    attention: Attention
    tensors: tuple[Tensor, ...]
    experts: Experts | None = None
    dropout: float = 0.0
    buffer_bytes: int = 0
    leaves_out: tuple[str, ...] = ()
    stored: Stored | None = None
    warnings: tuple[str, ...] = ()
    style: Style = LLAMA
    labels: int | None = None
    encoder_layers: int = 0

    @property
    def decoder_layers(self) -> int:
        """The layers that make one token after another, and keep keys and values of them."""
        return self.layers - self.encoder_layers

    @property
    def cross_layers(self) -> int:
        """The layers of a decoder that attend to an encoder."""
        return self.decoder_layers if self.encoder_layers else 0

    @property
    def outputs(self) -> int:
        """The features that the head gives for a token, 0 without a head."""
        return self.vocabulary if self.labels is None else self.labels

    @property
    def has_shape(self) -> bool:
        """Whether layers and widths are known; activations and KV cache need them."""
        return self.hidden > 0

    @property
    def parameters(self) -> int:
        """P: elements of all tensors, a tied one counted once."""
        return sum(tensor.count for tensor in self.tensors)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes: all but the experts that it does not choose."""
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
