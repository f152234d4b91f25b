"""BERT: an encoder with learned positions, token types, and norms after each part."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import LANGUAGE, Family, Fields, Head
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import (
    Part,
    attention,
    embedding,
    in_layers,
    linear,
    norms,
    plain_mlp,
    vector,
)
from tokmill.bill.models.shape import Shape, read_shape

INT64_BYTES = 8
ATTENTION = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
)  # fmt: skip


def _build(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    names = ("cls.predictions", "transform.dense", "transform.LayerNorm")
    return encoder(f, s, "bert", language_head(s, *names))


def language_head(s: Shape, name: str, dense: str, norm: str) -> Part:
    """Return the head with the matrix and norm before it. An untied head has two biases."""
    matrix = linear(f"{name}.decoder", s.hidden, s.vocabulary, "head", "vocabulary", bias=True)
    return (
        *vector(f"{name}.bias", s.vocabulary, "head", "vocabulary"),
        *linear(f"{name}.{dense}", s.hidden, s.hidden, "mlp", bias=True),
        *norms(s, f"{name}.{norm}", bias=True),
        *(() if s.tied else matrix),
    )


def encoder(f: Fields, s: Shape, name: str, head: Part) -> Model:
    """Return an encoder of BERT's kind; names of its tensors begin with `name`."""
    positions, d, table = f.count("max_position_embeddings"), s.hidden, f"{name}.embeddings"
    block = (
        *attention(s, ATTENTION, bias=True, out_bias=True),
        *norms(s, "attention.output.LayerNorm", bias=True),
        *plain_mlp(d, s.ffn, "intermediate.dense", "output.dense"),
        *norms(s, "output.LayerNorm", bias=True),
    )
    tensors = (
        *embedding(f"{table}.word_embeddings", s.vocabulary, d),
        *embedding(f"{table}.position_embeddings", positions, d, "none"),
        *embedding(f"{table}.token_type_embeddings", f.count("type_vocab_size"), d, "none"),
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


POOLER = "bert.pooler.dense"
FAMILY = Family(
    build=_build,
    heads={
        "BertForMaskedLM": LANGUAGE,
        "BertLMHeadModel": LANGUAGE,
        "BertModel": Head("", features=0, dense="pooler.dense", renamed=("bert.", "")),
        "BertForSequenceClassification": Head("classifier", bias=True, dense=POOLER),
        "BertForMultipleChoice": Head("classifier", bias=True, features=1, dense=POOLER),
        "BertForNextSentencePrediction": Head(
            "cls.seq_relationship", bias=True, features=2, dense=POOLER
        ),
        "BertForTokenClassification": Head("classifier", bias=True),
        "BertForQuestionAnswering": Head("qa_outputs", bias=True),
    },
    style=Style(
        measured=True, norm="layer", norms_before=0, norms_after=2, inputs=(3, 1), gated=False,
        softmax_fp32=False, dropouts=2, embedding_norm=True, final_norm=False, transform=True,
        loss_fp32=False,
    ),
    defaults={
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
        "tie_word_embeddings": True,
    },
)  # fmt: skip
