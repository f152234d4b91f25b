"""Builders that families share: a model of its tensors with its head, and Llama's decoder."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.family import Fields, Head
from tokmill.bill.models.model import Attention, Experts, Model, Style
from tokmill.bill.models.parts import (
    Part,
    attention,
    embedding,
    gated_mlp,
    head,
    in_layers,
    linear,
    norms,
)
from tokmill.bill.models.shape import Shape, rotary_bytes
from tokmill.errors import UsageError

DROPOUTS = (
    "dropout", "dropout_rate", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop"
)  # fmt: skip
ATTENTION_DROPOUTS = (
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout_rate"
)  # fmt: skip
PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def make_model(
    f: Fields,
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
    labels = f.head.labels(f)
    if labels is not None:
        tensors = _with_head(f.head, tensors, shape.hidden, head_width or shape.hidden, labels)
    return Model(
        name=f.name,
        family=f.family.name,
        layers=shape.layers,
        hidden=shape.hidden,
        ffn=shape.ffn,
        vocabulary=shape.vocabulary,
        positions=f.size("max_position_embeddings"),
        tied=shape.tied and labels is None,
        activation=activation or f.text("hidden_act"),
        attention=attention or Attention(shape.heads, shape.kv_heads, shape.head_dim, windows),
        tensors=tensors,
        experts=experts,
        dropout=max(f.share(key) for key in DROPOUTS),
        attention_dropout=max(f.share(key) for key in ATTENTION_DROPOUTS),
        buffer_bytes=buffer_bytes,
        leaves_out=leaves_out,
        style=style or f.family.style,
        labels=labels,
        encoder_layers=encoder_layers,
    )


def _with_head(head: Head, tensors: Part, hidden: int, width: int, labels: int) -> Part:
    """Replace the language model head by another one."""
    old, new = head.renamed
    body = (t for t in tensors if t.module != "head")
    return (
        *(replace(t, name=new + t.name.removeprefix(old)) for t in body),
        *(linear(head.dense, hidden, hidden, "mlp", bias=True) if head.dense else ()),
        *(linear(head.matrix, width, labels, "head", bias=head.bias) if labels else ()),
    )


def decoder(
    f: Fields,
    s: Shape,
    *block: Part,
    choosing: Part = (),
    experts: Experts | None = None,
    attention: Attention | None = None,
    windows: tuple[int, ...] = (),
    buffer_bytes: int | None = None,
    leaves_out: tuple[str, ...] = (),
) -> Model:
    """Return a model of Llama's kind. Default of `buffer_bytes`: those of rotary positions.

    Every layer has `block`. In a mixture of experts, the layers of `experts` also have `choosing`
    (router and experts); the other layers have a gated feed-forward layer.
    """
    tensors = (
        *embedding("model.embed_tokens", s.vocabulary, s.hidden),
        *in_layers("model.layers", range(s.layers), *block),
        *(_mixture(s, choosing, experts) if experts else ()),
        *norms(s, "model.norm"),
        *head(s),
    )
    return make_model(
        f,
        s,
        tensors,
        attention=attention,
        windows=windows,
        experts=experts if experts and experts.layers else None,
        buffer_bytes=rotary_bytes(f, s.head_dim) if buffer_bytes is None else buffer_bytes,
        leaves_out=leaves_out,
    )


def _mixture(s: Shape, choosing: Part, experts: Experts) -> Part:
    dense = sorted(set(range(s.layers)) - set(experts.layers))
    return (
        *in_layers("model.layers", dense, gated_mlp(s.hidden, s.ffn)),
        *in_layers("model.layers", experts.layers, choosing),
    )


def gated_block(
    f: Fields, s: Shape, between: Part = (), names: tuple[str, ...] = PRE_NORMS
) -> Part:
    """Return attention with the bias of the configuration, `between`, a gated layer, norms."""
    bias = f.flag("attention_bias")
    return (
        *attention(s, bias=bias, out_bias=bias),
        *between,
        *gated_mlp(s.hidden, s.ffn),
        *norms(s, *names),
    )


def read_experts(
    f: Fields, layers: tuple[int, ...], *, shared_ffn: int = 0, ffn: int = 0
) -> Experts:
    """Read the shape of the experts in `layers`; `ffn` is the default of their width.

    Raises:
        UsageError: a number is missing, or more experts are active than exist.
    """
    count, active = f.count("num_experts"), f.count("num_experts_per_tok")
    if active > count:
        raise UsageError(
            f"{f.where}: {f.label('num_experts_per_tok')} {active} is above "
            f"{f.label('num_experts')} {count}"
        )
    return Experts(count, active, f.count("moe_intermediate_size", ffn), shared_ffn, layers)


def sparse_layers(f: Fields, layers: int) -> tuple[int, ...]:
    """Return the layers with experts: each `decoder_sparse_step`-th, less `mlp_only_layers`."""
    step, dense = f.count("decoder_sparse_step", 1), f.items("mlp_only_layers", int) or []
    return tuple(i for i in range(layers) if i not in dense and (i + 1) % step == 0)
