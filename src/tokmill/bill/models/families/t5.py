"""T5, FLAN-T5 and mT5: an encoder, and a decoder with cross-attention."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.decoder import Layer
from tokmill.bill.models.family import Fields, Shape, read_shape
from tokmill.bill.models.model import Tensor
from tokmill.bill.models.tensors import (
    Part,
    attention,
    embedding,
    feed_forward,
    head,
    in_layers,
    norms,
)

ENCODER_TASKS = ("EncoderModel", "ForTokenClassification")
SAME_LENGTH = "sources and targets of different lengths: both are counted as one sequence each"


def _t5(f: Fields) -> Layer:
    """Return an encoder and a decoder, or the encoder alone."""
    s = read_shape(f, kv_heads=f.count("num_attention_heads"))
    gate, _, activation = f.text("feed_forward_proj").rpartition("-")
    gated, wide = bool(gate), "DenseReluDense.wi"
    up = (f"{wide}_0", f"{wide}_1") if gated else (wide,)
    n_encoder, alone = s.layers, f.task in ENCODER_TASKS
    n_decoder = 0 if alone else f.count("num_decoder_layers", n_encoder)
    # `scale_decoder_outputs` false: the head of this model is not the embedding.
    tied = s.tied and f.values.get("scale_decoder_outputs") is not False
    s = replace(s, layers=n_encoder + n_decoder, tied=tied)
    tensors = (
        *embedding("shared", s.vocabulary, s.hidden),
        *_stack(f, s, "encoder", range(n_encoder), up),
        *(() if alone else _stack(f, s, "decoder", range(n_encoder, s.layers), up)),
        *head(s),
    )
    return Layer(
        shape=s,
        tensors=tensors,
        up=up,
        gated=gated,
        activation="gelu_new" if gated and activation == "gelu" else activation,
        encoder_layers=n_encoder,
        leaves_out=() if alone else (SAME_LENGTH,),
    )


def _stack(f: Fields, s: Shape, name: str, layers: range, up: tuple[str, ...]) -> Part:
    """Return the tensors of the encoder or the decoder, with the norm after its layers."""
    kinds = ("SelfAttention", *(("EncDecAttention",) if name == "decoder" else ()))
    parts = [attention(s, [f"{kind}.{x}" for x in "qkv"], f"{kind}.o") for kind in kinds]
    wide = feed_forward(s.hidden, s.ffn, up, "DenseReluDense.wo")
    block = tuple(
        replace(tensor, name=f"layer.{i}.{tensor.name}")
        for i, part in enumerate((*parts, wide))
        for tensor in (*part, *norms(s, "layer_norm"))
    )
    bias = Tensor(
        "layer.0.SelfAttention.relative_attention_bias.weight",
        (f.count("relative_attention_num_buckets", 32), s.heads),
        "attention",
        "embedding",
    )
    return (
        *in_layers(f"{name}.block", layers, block),
        *in_layers(f"{name}.block", layers[:1], (bias,)),
        *norms(s, f"{name}.final_layer_norm"),
    )


LAYERS = {"t5": _t5, "mt5": _t5}
