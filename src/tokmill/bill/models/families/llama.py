"""Llama, and models whose configuration says llama (TinyLlama, Yi, SmolLM, …)."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import LLAMA, Model
from tokmill.bill.models.parts import attention, gated_mlp, norms
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    s, bias = read_shape(f), f.flag("attention_bias")
    mlp = gated_mlp(s.hidden, s.ffn, bias=f.flag("mlp_bias"))
    return decoder(f, s, attention(s, bias=bias, out_bias=bias), mlp, norms(s, *PRE_NORMS))


FAMILY = Family(
    build=_build,
    heads=heads("Llama", question="transformer."),
    style=LLAMA,
    defaults={
        "vocab_size": 32000, "intermediate_size": 11008, "num_attention_heads": 32,
        "hidden_act": "silu", "max_position_embeddings": 2048,
    },
)  # fmt: skip
