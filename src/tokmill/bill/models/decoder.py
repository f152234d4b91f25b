"""One decoder for most families: the tensors of a model, from what differs between families.

The defaults of `Layer` are those of Llama. The row of a family says how its configuration is read
into a `Layer` (`families`); `decoder` makes the model of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tokmill.bill.models.family import (
    SEQUENCE_TASK,
    Fields,
    Part,
    Shape,
    attention,
    embedding,
    feed_forward,
    head,
    in_layers,
    linear,
    norm,
    norms,
)
from tokmill.bill.models.model import Attention, Block, Experts, Model, Style, Tensor
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
class Layer:
    """The layer of a decoder, and the names of its tensors; those around the layers too.

    One name in `qkv`: one matrix of queries, keys and values. Two names in `up`: gate and up; one
    with `gated`: one matrix of both. `before` and `after` are the norms of the inputs and of the
    outputs of attention and feed-forward layer.
    """

    shape: Shape
    tensors: Part = ()  # all tensors of a model that the parts below do not describe
    inside: Part = ()  # all tensors of the layers, of a family that is described by its parts
    blocks: tuple[Block, ...] = ()  # the parts; (): attention, feed-forward layer and experts
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
    activation: str = ""  # "": that of the configuration
    mlp_bias: bool = False
    experts: Experts | None = None
    expert_tensors: Part = ()  # instead of a feed-forward layer, in layers with experts
    before: tuple[str, ...] = PRE_NORMS
    after: tuple[str, ...] = ()
    norm_bias: bool = False
    extra: Part = ()  # tensors that only this family has
    windows: tuple[int, ...] = ()
    transposed: bool = False  # Conv1D stores (input, output)
    embed: str = "model.embed_tokens"
    embed_width: int = 0  # 0: the hidden size
    positions: str = ""  # table of learned positions
    n_positions: int = 0  # 0: max_position_embeddings
    embedding_norm: str = ""
    layers: str = "model.layers"
    last: str = "model.norm"
    head: str = "lm_head"
    head_bias: bool = False
    outside: Part = ()  # tensors outside the layers that only this family has
    buffer_bytes: int = 0
    encoder_layers: int = 0
    style: Mapping[str, Any] = field(default_factory=dict)  # where the configuration decides it
    leaves_out: tuple[str, ...] = ()


def decoder(f: Fields, layer: Layer) -> Model:
    """Return the model of a layer, with the head of its task."""
    s, tensors, labels = layer.shape, layer.tensors or _tensors(f, layer), f.labels
    if labels is not None:
        tensors = _with_head(f, tensors, s.hidden, layer.embed_width or s.hidden, labels)
    return Model(
        name=f.name,
        family=f.family.name,
        layers=s.layers,
        hidden=s.hidden,
        ffn=s.ffn,
        vocabulary=s.vocabulary,
        positions=f.size("max_position_embeddings"),
        tied=s.tied and labels is None,
        activation=layer.activation or f.text("hidden_act"),
        attention=layer.attention or Attention(s.heads, s.kv_heads, s.head_dim),
        tensors=tensors,
        blocks=layer.blocks or tuple(_blocks(layer)),
        experts=layer.experts,
        dropout=max(f.share(key) for key in DROPOUTS),
        attention_dropout=max(f.share(key) for key in ATTENTION_DROPOUTS),
        buffer_bytes=layer.buffer_bytes,
        leaves_out=layer.leaves_out,
        style=_style(f.family.style, layer),
        labels=labels,
        encoder_layers=layer.encoder_layers,
    )


def _tensors(f: Fields, layer: Layer) -> Part:
    """Return the tensors of a model whose layers are alike but for experts."""
    s, layers = layer.shape, range(layer.shape.layers)
    width = layer.embed_width or s.hidden
    positions = layer.n_positions or f.size("max_position_embeddings") if layer.positions else 0
    layer_norms = norms(s, *layer.before, *layer.after, bias=layer.norm_bias)
    inside = layer.inside or (
        *in_layers(layer.layers, layers, layer.attention_tensors or _attention(layer)),
        *_feed_forward(layer),
    )
    return (
        *embedding(layer.embed, s.vocabulary, width),
        *(embedding(layer.positions, positions, s.hidden, "none") if positions else ()),
        *(norms(s, layer.embedding_norm, bias=True) if layer.embedding_norm else ()),
        *inside,
        *in_layers(layer.layers, layers, (*layer.extra, *layer_norms)),
        *layer.outside,
        *(norms(s, layer.last, bias=layer.norm_bias) if layer.last else ()),
        *head(replace(s, hidden=width), layer.head, bias=layer.head_bias),
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
        shared_gate=any("shared_expert_gate" in t.name for t in layer.expert_tensors),
        **layer.style,
    )


def _blocks(layer: Layer) -> Iterator[Block]:
    """Yield the parts of a layer that is described by its names."""
    s, experts = layer.shape, layer.experts
    every, mixed = range(s.layers), experts.layers if experts else ()
    own = layer.attention or Attention(s.heads, s.kv_heads, s.head_dim)
    of_layer = layer.windows or (0,) * s.layers
    for window in sorted(set(of_layer)):
        here = tuple(i for i in every if of_layer[i] == window)
        yield Block("latent" if own.kv_rank else "attention", here, own.sizes, window)
    if 0 < layer.encoder_layers < s.layers:
        yield Block("cross", tuple(every[layer.encoder_layers :]), own.sizes)
    if plain := tuple(i for i in every if i not in mixed):
        yield Block("mlp", plain, {"f": s.ffn})
    if experts:
        yield Block("experts", experts.layers, experts.sizes)


def _attention(layer: Layer) -> Part:
    """Return the matrices of attention, and the norms of queries and keys."""
    s = layer.shape
    widths = (s.query_width, s.kv_width) if layer.norms_of_all_heads else (s.head_dim,) * 2
    head_norms = (
        norm(name, width, bias=layer.norm_bias)
        for name, width in zip(layer.head_norms, widths, strict=False)
    )
    return (
        *attention(
            s, layer.qkv, layer.out, bias=layer.qkv_bias, out_bias=layer.out_bias,
            transposed=layer.transposed,
        ),
        *(tensor for tensors in head_norms for tensor in tensors),
    )  # fmt: skip


def _feed_forward(layer: Layer) -> Part:
    """Return the feed-forward layers, of experts where the layer has them."""
    s, mixed = layer.shape, layer.experts.layers if layer.experts else ()
    plain = feed_forward(
        s.hidden,
        s.ffn,
        layer.up,
        layer.down,
        fused=layer.gated and len(layer.up) == 1,
        bias=layer.mlp_bias,
        transposed=layer.transposed,
    )
    return (
        *in_layers(layer.layers, sorted(set(range(s.layers)) - set(mixed)), plain),
        *in_layers(layer.layers, mixed, layer.expert_tensors),
    )


def with_experts(
    f: Fields,
    layer: Layer,
    mixed: Iterable[int],
    *,
    shared: int = 0,
    shared_name: str = "mlp.shared_experts",
    name: str = "mlp.experts",
    router: str = "mlp.gate",
    extra: Part = (),
) -> Layer:
    """Return a layer with the experts of the configuration in the layers `mixed`.

    `shared` is the width of the experts that every token passes.

    Raises:
        UsageError: a number is missing, or more experts are active than exist.
    """
    count, active = f.count("num_experts"), f.count("num_experts_per_tok")
    if active > count:
        raise UsageError(
            f"{f.where}: {f.label('num_experts_per_tok')} {active} is above "
            f"{f.label('num_experts')} {count}"
        )
    hidden, ffn = layer.shape.hidden, f.count("moe_intermediate_size", layer.shape.ffn)
    into = (f"{shared_name}.gate_proj", f"{shared_name}.up_proj")
    up, down = (count, 2 * ffn, hidden), (count, hidden, ffn)
    tensors = (
        *linear(router, hidden, count, "router"),
        Tensor(f"{name}.gate_up_proj", up, "experts", "experts", "columns", hidden, 2 * ffn),
        Tensor(f"{name}.down_proj", down, "experts", "experts", "rows", ffn, hidden),
        *(feed_forward(hidden, shared, into, f"{shared_name}.down_proj") if shared else ()),
        *extra,
    )
    experts = Experts(count, active, ffn, shared, tuple(mixed))
    return replace(layer, experts=experts, expert_tensors=tensors) if experts.layers else layer


def _with_head(f: Fields, tensors: Part, hidden: int, width: int, labels: int) -> Part:
    """Return the tensors with the head of a task instead of that of the language model.

    It may begin with a d x d matrix; only heads without it that classify sequences have no bias.
    """
    dense, is_sequence = f.family.dense.get(f.task, ""), f.task == SEQUENCE_TASK
    bias = bool(dense) or not is_sequence
    return (
        *(tensor for tensor in tensors if tensor.module != "head"),
        *(linear(dense, hidden, hidden, "mlp", bias=True) if dense else ()),
        *(linear("score", width, labels, "head", bias=bias) if labels else ()),
    )
