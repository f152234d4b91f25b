"""T5, FLAN-T5 and mT5: an encoder, and a decoder with cross-attention."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.decoder import make_model
from tokmill.bill.models.family import Fields, Shape, read_shape
from tokmill.bill.models.model import Model, Tensor
from tokmill.bill.models.tensors import (
    Part,
    attention,
    embedding,
    feed_forward,
    head,
    in_layers,
    norms,
)

SAME_LENGTH = "sources and targets of different lengths: both are counted as one sequence each"


def _build(fields: Fields) -> Model:
    """Return an encoder and a decoder, or the encoder alone."""
    shape = read_shape(fields, kv_heads=fields.count("num_attention_heads"))
    gated, activation = _activation(fields)
    n_encoder, alone = shape.layers, fields.head.encoder_only
    n_decoder = 0 if alone else fields.count("num_decoder_layers", n_encoder)
    # `scale_decoder_outputs` false: the head of this model is not the embedding.
    tied = shape.tied and fields.values.get("scale_decoder_outputs") is not False
    shape = replace(shape, layers=n_encoder + n_decoder, tied=tied)
    tensors = (
        *embedding("shared", shape.vocabulary, shape.hidden),
        *_stack(fields, shape, "encoder", range(n_encoder), gated=gated),
        *(
            ()
            if alone
            else _stack(fields, shape, "decoder", range(n_encoder, shape.layers), gated=gated)
        ),
        *head(shape),
    )
    return make_model(
        fields,
        shape,
        tensors,
        style=replace(fields.family.style, gated=gated, inputs=(3, 2 if gated else 1)),
        activation=activation,
        encoder_layers=n_encoder,
        leaves_out=() if alone else (SAME_LENGTH,),
    )


def _activation(fields: Fields) -> tuple[bool, str]:
    """Return whether the feed-forward layer is gated, and its activation function."""
    gated, _, activation = fields.text("feed_forward_proj").rpartition("-")
    return bool(gated), "gelu_new" if gated and activation == "gelu" else activation


def _stack(fields: Fields, shape: Shape, name: str, layers: range, *, gated: bool) -> Part:
    """Return the tensors of the encoder or the decoder, with the norm after its layers."""
    kinds = ("SelfAttention", *(("EncDecAttention",) if name == "decoder" else ()))
    parts = [attention(shape, [f"{kind}.{letter}" for letter in "qkvo"]) for kind in kinds]
    up = ("DenseReluDense.wi_0", "DenseReluDense.wi_1") if gated else ("DenseReluDense.wi",)
    wide = feed_forward(shape.hidden, shape.ffn, up, "DenseReluDense.wo")
    block = tuple(
        replace(tensor, name=f"layer.{i}.{tensor.name}")
        for i, part in enumerate((*parts, wide))
        for tensor in (*part, *norms(shape, "layer_norm"))
    )
    bias = Tensor(
        "layer.0.SelfAttention.relative_attention_bias.weight",
        (fields.count("relative_attention_num_buckets", 32), shape.heads),
        "attention",
        "embedding",
    )
    return (
        *in_layers(f"{name}.block", layers, block, first=layers.start),
        *in_layers(f"{name}.block", layers[:1], (bias,), first=layers.start),
        *norms(shape, f"{name}.final_layer_norm"),
    )


BUILDS = {"t5": _build, "mt5": _build}
