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


def _bert(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    names = ("cls.predictions", "transform.dense", "transform.LayerNorm")
    return _encoder(f, s, "bert", _language_head(s, *names))


def _roberta(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    return _encoder(f, s, "roberta", _language_head(s, "lm_head", "dense", "layer_norm"))


def _language_head(s: Shape, name: str, dense: str, norm: str) -> Part:
    """Return the head with the matrix and norm before it. An untied head has two biases."""
    matrix = linear(f"{name}.decoder", s.hidden, s.vocabulary, "head", "vocabulary", bias=True)
    return (
        *vector(f"{name}.bias", s.vocabulary, "head", "vocabulary"),
        *linear(f"{name}.{dense}", s.hidden, s.hidden, "mlp", bias=True),
        *norms(s, f"{name}.{norm}", bias=True),
        *(() if s.tied else matrix),
    )


def _encoder(f: Fields, s: Shape, name: str, head: Part) -> Model:
    """Return an encoder of BERT's kind; names of its tensors begin with `name`."""
    positions, hidden = f.count("max_position_embeddings"), s.hidden
    table = f"{name}.embeddings"
    block = (
        *attention(s, ATTENTION, bias=True, out_bias=True),
        *norms(s, "attention.output.LayerNorm", bias=True),
        *feed_forward(hidden, s.ffn, ("intermediate.dense",), "output.dense", bias=True),
        *norms(s, "output.LayerNorm", bias=True),
    )
    tensors = (
        *embedding(f"{table}.word_embeddings", s.vocabulary, hidden),
        *embedding(f"{table}.position_embeddings", positions, hidden, "none"),
        *embedding(f"{table}.token_type_embeddings", f.count("type_vocab_size"), hidden, "none"),
        *norms(s, f"{table}.LayerNorm", bias=True),
        *in_layers(f"{name}.encoder.layer", range(s.layers), block),
    )
    return make_model(
        f,
        s,
        (*tensors, *(head if f.head is LANGUAGE else ())),
        encoder_layers=s.layers,
        buffer_bytes=2 * INT64_BYTES * positions,  # ids of positions and of token types
    )


BUILDS = {"bert": _bert, "roberta": _roberta}
