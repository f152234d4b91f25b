"""Qwen2-MoE: Qwen2's layer with experts, and a shared expert with a gate."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder, read_experts, sparse_layers
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import attention, experts, gated_mlp, linear, norms, router
from tokmill.bill.models.shape import read_shape, typed_windows


def _build(f: Fields) -> Model:
    s = read_shape(f, ffn=f.size("intermediate_size") or f.count("moe_intermediate_size"))
    shared = f.count("shared_expert_intermediate_size")
    mixed = read_experts(f, sparse_layers(f, s.layers), shared_ffn=shared)
    choosing = (
        *router(s.hidden, mixed.count),
        *experts(s.hidden, mixed.ffn, mixed.count),
        *gated_mlp(s.hidden, shared, "mlp.shared_expert"),
        *linear("mlp.shared_expert_gate", s.hidden, 1, "mlp"),
    )
    common = (*attention(s, bias=f.flag("qkv_bias")), *norms(s, *PRE_NORMS))
    first = f.size("max_window_layers")
    windows = typed_windows(f, s.layers, lambda layer: layer % 2 == 0 and layer < first)
    windows = windows if f.flag("use_sliding_window") else ()
    return decoder(f, s, common, choosing=choosing, experts=mixed, windows=windows)


FAMILY = Family(
    build=_build,
    heads=heads("Qwen2Moe"),
    style=Style(measured=True, shared_gate=True),
    defaults={
        "vocab_size": 151936, "max_position_embeddings": 32768, "hidden_act": "silu",
        "decoder_sparse_step": 1, "sliding_window": 4096, "intermediate_size": 5632,
        "num_attention_heads": 16, "num_key_value_heads": 16, "max_window_layers": 28,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
        "num_experts_per_tok": 4, "num_experts": 60, "qkv_bias": True,
    },
    needed=(),
)  # fmt: skip
