"""One decoder for most families: the tensors of a model, from what differs between families.

The defaults of `Layer` are those of Llama. A family is a function that reads its configuration
into a `Layer`; `decoder` makes the model of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tokmill.bill.models.family import FLOAT_BYTES, Fields, Head, Shape, rotary_bytes
from tokmill.bill.models.model import Attention, Experts, Model, Style
from tokmill.bill.models.tensors import (
    Part,
    embedding,
    feed_forward,
    head,
    in_layers,
    linear,
    norm,
    norms,
    stacked_experts,
)
from tokmill.errors import UsageError

DROPOUTS = (
    "dropout", "dropout_rate", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop",
    "residual_dropout",
)  # fmt: skip
ATTENTION_DROPOUTS = (
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout_rate"
)  # fmt: skip
PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
GATED = ("mlp.gate_proj", "mlp.up_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The experts of some layers, and what these layers have instead of a feed-forward layer."""

    experts: Experts
    tensors: Part
    buffer_bytes: int = 0

    @property
    def shared_gate(self) -> bool:
        """Whether a gate limits the output of the shared expert."""
        return any("shared_expert_gate" in tensor.name for tensor in self.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The layer of a decoder, and the names of its tensors; those around the layers too.

    One name in `qkv`: one matrix of queries, keys and values. Two names in `up`: gate and up; one
    with `gated`: one matrix of both. `before` and `after` are the norms of the inputs and of the
    outputs of attention and feed-forward layer.
    """

    shape: Shape
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    out: str = "self_attn.o_proj"
    qkv_bias: bool = False
    out_bias: bool = False
    attention: Attention | None = None  # None: that of the shape
    attention_tensors: Part = ()  # instead of the matrices above
    head_norms: tuple[str, ...] = ()  # norms of queries and keys
    norms_of_all_heads: bool = False  # one norm over all heads, not one per head
    up: tuple[str, ...] = GATED
    down: str = "mlp.down_proj"
    gated: bool = True
    mlp_bias: bool = False
    mixture: Mixture | None = None
    before: tuple[str, ...] = PRE_NORMS
    after: tuple[str, ...] = ()
    norm_bias: bool = False
    extra: Part = ()  # tensors that only this family has
    windows: tuple[int, ...] = ()
    transposed: bool = False  # Conv1D stores (input, output)
    embed: str = "model.embed_tokens"
    positions: str = ""  # table of learned positions
    embedding_norm: str = ""
    layers: str = "model.layers"
    last: str = "model.norm"
    head: str = "lm_head"
    head_bias: bool = False
    buffer_bytes: int | None = None  # None: those of rotary positions
    style: Mapping[str, Any] = field(default_factory=dict)  # where the configuration decides it
    leaves_out: tuple[str, ...] = ()


def decoder(fields: Fields, layer: Layer) -> Model:
    """Return the model of a layer."""
    shape, mixture = layer.shape, layer.mixture
    positions = fields.size("max_position_embeddings") if layer.positions else 0
    tensors = (
        *embedding(layer.embed, shape.vocabulary, shape.hidden),
        *(embedding(layer.positions, positions, shape.hidden, "none") if positions else ()),
        *(norms(shape, layer.embedding_norm, bias=True) if layer.embedding_norm else ()),
        *in_layers(layer.layers, range(shape.layers), layer.attention_tensors or _attention(layer)),
        *_feed_forward(layer),
        *in_layers(
            layer.layers,
            range(shape.layers),
            layer.extra,
            norms(shape, *layer.before, *layer.after, bias=layer.norm_bias),
        ),
        *norms(shape, layer.last, bias=layer.norm_bias),
        *head(shape, layer.head, bias=layer.head_bias),
    )
    buffers = layer.buffer_bytes
    buffers = rotary_bytes(fields, shape.head_dim) if buffers is None else buffers
    return make_model(
        fields,
        shape,
        tensors,
        attention=layer.attention,
        windows=layer.windows,
        experts=mixture.experts if mixture and mixture.experts.layers else None,
        style=_style(fields.family.style, layer),
        buffer_bytes=buffers + (mixture.buffer_bytes if mixture else 0),
        leaves_out=layer.leaves_out,
    )


def _style(style: Style, layer: Layer) -> Style:
    """Return the style of a family with what its tensors decide."""
    each: Literal["each", "all"] = "all" if layer.norms_of_all_heads else "each"
    return replace(
        style,
        norms_before=2 if layer.before else 0,
        norms_after=2 if layer.after else 0,
        inputs=(len(layer.qkv), len(layer.up)),
        heads=each if layer.head_norms else "",
        gated=layer.gated,
        embedding_norm=bool(layer.embedding_norm),
        shared_gate=layer.mixture is not None and layer.mixture.shared_gate,
        **layer.style,
    )


def _attention(layer: Layer) -> Part:
    """Return the matrices of attention, and the norms of queries and keys."""
    shape, turned = layer.shape, layer.transposed
    widths = [shape.query_width, shape.kv_width, shape.kv_width]
    widths = widths if len(layer.qkv) > 1 else [sum(widths)]
    whole = (
        (shape.query_width, shape.kv_width) if layer.norms_of_all_heads else (shape.head_dim,) * 2
    )
    return (
        *(
            tensor
            for name, width in zip(layer.qkv, widths, strict=True)
            for tensor in linear(
                name, shape.hidden, width, "attention", "columns", bias=layer.qkv_bias,
                transposed=turned,
            )
        ),
        *linear(
            layer.out, shape.query_width, shape.hidden, "attention", "rows", bias=layer.out_bias,
            transposed=turned,
        ),
        *(
            tensor
            for name, width in zip(layer.head_norms, whole, strict=False)
            for tensor in norm(name, width, bias=layer.norm_bias)
        ),
    )  # fmt: skip


def _feed_forward(layer: Layer) -> Part:
    """Return the feed-forward layers, of experts where the layer has them."""
    shape, mixture = layer.shape, layer.mixture
    mixed = mixture.experts.layers if mixture else ()
    plain = feed_forward(
        shape.hidden,
        shape.ffn,
        layer.up,
        layer.down,
        fused=layer.gated and len(layer.up) == 1,
        bias=layer.mlp_bias,
        transposed=layer.transposed,
    )
    return (
        *in_layers(layer.layers, sorted(set(range(shape.layers)) - set(mixed)), plain),
        *(in_layers(layer.layers, mixed, mixture.tensors) if mixture else ()),
    )


def mixture(
    fields: Fields,
    layers: tuple[int, ...],
    *,
    ffn: int = 0,
    shared: int = 0,
    shared_name: str = "mlp.shared_experts",
    name: str = "mlp.experts",
    router: str = "mlp.gate",
    extra: Part = (),
    router_buffer: bool = False,
) -> Mixture:
    """Read the experts of `layers`.

    `ffn` is the default of their width, `shared` the width of the experts that every token passes.
    `router_buffer`: the router keeps an fp32 number per expert that is no parameter.

    Raises:
        UsageError: a number is missing, or more experts are active than exist.
    """
    count, active = fields.count("num_experts"), fields.count("num_experts_per_tok")
    if active > count:
        raise UsageError(
            f"{fields.where}: {fields.label('num_experts_per_tok')} {active} is above "
            f"{fields.label('num_experts')} {count}"
        )
    hidden, width = fields.count("hidden_size"), fields.count("moe_intermediate_size", ffn)
    into = (f"{shared_name}.gate_proj", f"{shared_name}.up_proj")
    return Mixture(
        experts=Experts(count, active, width, shared, layers),
        tensors=(
            *linear(router, hidden, count, "router"),
            *stacked_experts(hidden, width, count, name),
            *(feed_forward(hidden, shared, into, f"{shared_name}.down_proj") if shared else ()),
            *extra,
        ),
        buffer_bytes=FLOAT_BYTES * count * len(layers) if router_buffer else 0,
    )


def make_model(
    fields: Fields,
    shape: Shape,
    tensors: Part,
    *,
    attention: Attention | None = None,
    windows: tuple[int, ...] = (),
    experts: Experts | None = None,
    style: Style | None = None,
    activation: str = "",
    encoder_layers: int = 0,
    head_width: int = 0,
    buffer_bytes: int = 0,
    leaves_out: tuple[str, ...] = (),
) -> Model:
    """Return the model of a shape and its tensors, with the head of its architecture.

    Defaults: attention of the shape, style of the family, activation of the configuration, and a
    head that reads the hidden size.
    """
    labels = fields.head.labels(fields)
    if labels is not None:
        tensors = _with_head(fields.head, tensors, shape.hidden, head_width or shape.hidden, labels)
    return Model(
        name=fields.name,
        family=fields.family.name,
        layers=shape.layers,
        hidden=shape.hidden,
        ffn=shape.ffn,
        vocabulary=shape.vocabulary,
        positions=fields.size("max_position_embeddings"),
        tied=shape.tied and labels is None,
        activation=activation or fields.text("hidden_act"),
        attention=attention or Attention(shape.heads, shape.kv_heads, shape.head_dim, windows),
        tensors=tensors,
        experts=experts,
        dropout=max(fields.share(key) for key in DROPOUTS),
        attention_dropout=max(fields.share(key) for key in ATTENTION_DROPOUTS),
        buffer_bytes=buffer_bytes,
        leaves_out=leaves_out,
        style=style or fields.family.style,
        labels=labels,
        encoder_layers=encoder_layers,
    )


def _with_head(head: Head, tensors: Part, hidden: int, width: int, labels: int) -> Part:
    """Return the tensors with another head than that of the language model."""
    before, after = head.renamed
    body = (t for t in tensors if t.module != "head")
    return (
        *(replace(t, name=after + t.name.removeprefix(before)) for t in body),
        *(linear(head.dense, hidden, hidden, "mlp", bias=True) if head.dense else ()),
        *(linear(head.matrix, width, labels, "head", bias=head.bias) if labels else ()),
    )
