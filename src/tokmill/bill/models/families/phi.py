"""Phi-1, 1.5 and 2: one norm for attention and feed-forward layer, biases everywhere."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import (
    LLAMA_QKV,
    attention,
    embedding,
    head,
    in_layers,
    norm,
    norms,
    plain_mlp,
)
from tokmill.bill.models.shape import read_shape, rotary_bytes


def _build(f: Fields) -> Model:
    s = read_shape(f)
    between = ("self_attn.q_layernorm", "self_attn.k_layernorm") if f.flag("qk_layernorm") else ()
    block = (
        *attention(s, (*LLAMA_QKV, "self_attn.dense"), bias=True, out_bias=True),
        *(tensor for name in between for tensor in norm(name, s.hidden // s.heads, bias=True)),
        *plain_mlp(s.hidden, s.ffn, "mlp.fc1", "mlp.fc2"),
        *norms(s, "input_layernorm", bias=True),
    )
    tensors = (
        *embedding("model.embed_tokens", s.vocabulary, s.hidden),
        *in_layers("model.layers", range(s.layers), block),
        *norms(s, "model.final_layernorm", bias=True),
        *head(s, bias=True),
    )
    rotary = rotary_bytes(f, s.head_dim, 0.5)
    return make_model(f, s, tensors, buffer_bytes=rotary)


FAMILY = Family(
    build=_build,
    heads=heads("Phi"),
    style=Style(
        measured=True, norm="layer", inputs=(3, 1), one_norm=True, copied=True, gated=False,
        dropouts=2,
    ),
    defaults={
        "vocab_size": 51200, "num_attention_heads": 32, "intermediate_size": 8192,
        "hidden_act": "gelu_new", "max_position_embeddings": 2048,
    },
)  # fmt: skip
