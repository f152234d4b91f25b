"""Phi-3 and Phi-4: Llama's layer with one matrix for q, k, v and one for gate and up."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder
from tokmill.bill.models.families import llama
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import linear, norms
from tokmill.bill.models.shape import all_windows, read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f)
    qkv = s.query_width + 2 * s.kv_width
    block = (
        *linear("self_attn.o_proj", s.query_width, s.hidden, "attention", "rows"),
        *linear("self_attn.qkv_proj", s.hidden, qkv, "attention", "columns"),
        *linear("mlp.gate_up_proj", s.hidden, 2 * s.ffn, "mlp", "columns"),
        *linear("mlp.down_proj", s.ffn, s.hidden, "mlp", "rows"),
    )
    return decoder(f, s, block, norms(s, *PRE_NORMS), windows=all_windows(f, s.layers))


FAMILY = Family(
    build=_build,
    heads=heads("Phi3"),
    style=Style(measured=True, inputs=(1, 1), fused="value", copied=True),
    defaults={
        **llama.FAMILY.defaults, "vocab_size": 32064, "intermediate_size": 8192,
        "max_position_embeddings": 4096,
    },
)  # fmt: skip
