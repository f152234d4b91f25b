"""A model from its shape and tensors, with the head that its architecture names."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.family import Fields, Head
from tokmill.bill.models.model import Attention, Experts, Model, Tensor
from tokmill.bill.models.parts import linear
from tokmill.bill.models.shape import Shape
from tokmill.bill.models.style import Style

DROPOUTS = (
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout", "dropout_rate",
    "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop",
)  # fmt: skip


def make_model(
    f: Fields,
    shape: Shape,
    tensors: tuple[Tensor, ...],
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
    """Make the model of a shape and its tensors, with the head of its architecture.

    Attention is by default what the shape says, style and activation those of the family; the
    features that the head reads are the hidden size.
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
        buffer_bytes=buffer_bytes,
        leaves_out=leaves_out,
        style=style or f.family.style,
        labels=labels,
        encoder_layers=encoder_layers,
    )


def _with_head(
    head: Head, tensors: tuple[Tensor, ...], hidden: int, width: int, labels: int
) -> tuple[Tensor, ...]:
    """Return the tensors of a language model with another head instead of its own."""
    old, new = head.renamed
    return (
        *(
            replace(tensor, name=new + tensor.name.removeprefix(old))
            for tensor in tensors
            if tensor.module != "head"
        ),
        *(linear(head.dense, hidden, hidden, "mlp", bias=True) if head.dense else ()),
        *(linear(head.matrix, width, labels, "head", bias=head.bias) if labels else ()),
    )
