"""BERT, RoBERTa, XLM-R and CamemBERT: encoders with learned positions and token types."""

from __future__ import annotations

from tokmill.bill.models.decoder import make_model
from tokmill.bill.models.family import LANGUAGE, Fields, Shape, read_shape
from tokmill.bill.models.model import Model
from tokmill.bill.models.tensors import (
    Part,
    attention,
    embedding,
    feed_forward,
    in_layers,
    linear,
    norms,
    vector,
)

INT64_BYTES = 8
ATTENTION = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
)  # fmt: skip


def _bert(fields: Fields) -> Model:
    shape = read_shape(fields, grouped=False)
    names = ("cls.predictions", "transform.dense", "transform.LayerNorm")
    return _encoder(fields, shape, "bert", _language_head(shape, *names))


def _roberta(fields: Fields) -> Model:
    shape = read_shape(fields, grouped=False)
    return _encoder(
        fields, shape, "roberta", _language_head(shape, "lm_head", "dense", "layer_norm")
    )


def _language_head(shape: Shape, name: str, dense: str, norm: str) -> Part:
    """Return the head with the matrix and norm before it. An untied head has two biases."""
    matrix = linear(
        f"{name}.decoder", shape.hidden, shape.vocabulary, "head", "vocabulary", bias=True
    )
    return (
        *vector(f"{name}.bias", shape.vocabulary, "head", "vocabulary"),
        *linear(f"{name}.{dense}", shape.hidden, shape.hidden, "mlp", bias=True),
        *norms(shape, f"{name}.{norm}", bias=True),
        *(() if shape.tied else matrix),
    )


def _encoder(fields: Fields, shape: Shape, name: str, head: Part) -> Model:
    """Return an encoder of BERT's kind; names of its tensors begin with `name`."""
    positions, hidden = fields.count("max_position_embeddings"), shape.hidden
    table = f"{name}.embeddings"
    block = (
        *attention(shape, ATTENTION, bias=True, out_bias=True),
        *norms(shape, "attention.output.LayerNorm", bias=True),
        *feed_forward(hidden, shape.ffn, ("intermediate.dense",), "output.dense", bias=True),
        *norms(shape, "output.LayerNorm", bias=True),
    )
    tensors = (
        *embedding(f"{table}.word_embeddings", shape.vocabulary, hidden),
        *embedding(f"{table}.position_embeddings", positions, hidden, "none"),
        *embedding(
            f"{table}.token_type_embeddings", fields.count("type_vocab_size"), hidden, "none"
        ),
        *norms(shape, f"{table}.LayerNorm", bias=True),
        *in_layers(f"{name}.encoder.layer", range(shape.layers), block),
    )
    return make_model(
        fields,
        shape,
        (*tensors, *(head if fields.head is LANGUAGE else ())),
        encoder_layers=shape.layers,
        buffer_bytes=2 * INT64_BYTES * positions,  # ids of positions and of token types
    )


BUILDS = {"bert": _bert, "roberta": _roberta}
