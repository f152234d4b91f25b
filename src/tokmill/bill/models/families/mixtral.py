"""Mixtral: Mistral's layer with experts."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder, read_experts
from tokmill.bill.models.family import WITH_EXPERTS, Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import attention, experts, norms, router
from tokmill.bill.models.shape import all_windows, read_shape

STACKED = {
    "gate": "gate.weight", "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"
}  # fmt: skip


def _build(f: Fields) -> Model:
    s = read_shape(f, ffn=f.count("moe_intermediate_size"))
    mixed = read_experts(f, tuple(range(s.layers)))
    common = (*attention(s), *norms(s, *PRE_NORMS))
    choosing = (*router(s.hidden, mixed.count), *experts(s.hidden, mixed.ffn, mixed.count))
    windows = all_windows(f, s.layers)
    return decoder(f, s, common, choosing=choosing, experts=mixed, windows=windows)


FAMILY = Family(
    build=_build,
    heads=heads("Mixtral"),
    style=Style(measured=True, stacked=STACKED),
    defaults={
        "vocab_size": 32000, "moe_intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072,
        "num_experts_per_tok": 2, "num_experts": 8,
    },
    needed=WITH_EXPERTS,
    names={"num_local_experts": "num_experts", "intermediate_size": "moe_intermediate_size"},
)  # fmt: skip
