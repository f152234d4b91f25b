"""MiniMind, as in jingyaogong/minimind, model/model_minimind.py."""

from __future__ import annotations

import math

from tokmill.bill.models.build import PRE_NORMS, decoder, read_experts
from tokmill.bill.models.family import LANGUAGE, Family, Fields
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import attention, experts, gated_mlp, head_norms, norms, router
from tokmill.bill.models.shape import FLOAT_BYTES, read_shape


def _build(f: Fields) -> Model:
    # Since version 3 (num_experts), queries and keys have norms and the feed-forward width is
    # pi d; before (n_routed_experts), 8 / 3 d. The width is rounded up to a multiple of 64.
    d, old = f.count("hidden_size"), f.size("n_routed_experts") > 0
    width = math.floor(d * 8 / 3) if old else math.ceil(d * math.pi)
    s = read_shape(f, ffn=f.size("intermediate_size") or 64 * -(-width // 64))
    between = () if old else head_norms(s.head_dim)
    common = (*attention(s), *between, *norms(s, *PRE_NORMS))
    # Cosine and sine of all positions, a head wide.
    tables = 2 * FLOAT_BYTES * f.count("max_position_embeddings") * s.head_dim
    if not f.flag("use_moe"):
        return decoder(f, s, common, gated_mlp(d, s.ffn), buffer_bytes=tables)
    shared = f.size("n_shared_experts") * s.ffn
    mixed = read_experts(f, tuple(range(s.layers)), shared_ffn=shared, ffn=s.ffn)
    choosing = (
        *router(d, mixed.count),
        *experts(d, mixed.ffn, mixed.count),
        *(gated_mlp(d, shared, "mlp.shared_experts") if shared else ()),
    )
    return decoder(f, s, common, choosing=choosing, experts=mixed, buffer_bytes=tables)


FAMILY = Family(
    build=_build,
    heads={"MiniMindForCausalLM": LANGUAGE},
    style=Style(measured=False),
    defaults={
        "vocab_size": 6400, "num_attention_heads": 8, "num_key_value_heads": 4,
        "hidden_act": "silu", "max_position_embeddings": 32768, "tie_word_embeddings": True,
        "num_experts": 4, "num_experts_per_tok": 1,
    },
    needed=("num_hidden_layers", "hidden_size", "vocab_size"),
    names={"n_routed_experts": "num_experts"},
    implied={"num_attention_heads": 8, "num_key_value_heads": 4},
)  # fmt: skip
