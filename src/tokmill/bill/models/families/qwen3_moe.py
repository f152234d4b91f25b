"""Qwen3-MoE: Qwen3's layer with experts."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder, read_experts, sparse_layers
from tokmill.bill.models.family import WITH_EXPERTS, Family, Fields, heads
from tokmill.bill.models.model import STACKED_EXPERTS, Model, Style
from tokmill.bill.models.parts import attention, experts, head_norms, norms, router
from tokmill.bill.models.shape import all_windows, read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f, ffn=f.size("intermediate_size") or f.count("moe_intermediate_size"))
    mixed, bias = read_experts(f, sparse_layers(f, s.layers)), f.flag("attention_bias")
    common = (
        *attention(s, bias=bias, out_bias=bias),
        *head_norms(s.head_dim),
        *norms(s, *PRE_NORMS),
    )
    choosing = (*experts(s.hidden, mixed.ffn, mixed.count), *router(s.hidden, mixed.count))
    windows = all_windows(f, s.layers) if f.flag("use_sliding_window") else ()
    return decoder(f, s, common, choosing=choosing, experts=mixed, windows=windows)


FAMILY = Family(
    build=_build,
    heads=heads("Qwen3Moe", question="transformer."),
    style=Style(measured=True, heads="each", stacked=STACKED_EXPERTS),
    defaults={
        "vocab_size": 151936, "max_position_embeddings": 32768, "hidden_act": "silu",
        "decoder_sparse_step": 1, "sliding_window": 4096, "intermediate_size": 6144,
        "num_attention_heads": 32, "num_key_value_heads": 4, "moe_intermediate_size": 768,
        "num_experts_per_tok": 8, "num_experts": 128,
    },
    needed=WITH_EXPERTS,
    names={"num_local_experts": "num_experts"},
)  # fmt: skip
