"""DeepSeek V3 and R1: V2's layer with a bias per expert in the router."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tokmill.bill.models.families import deepseek_v2
from tokmill.bill.models.family import heads

FAMILY = replace(
    deepseek_v2.FAMILY,
    build=partial(deepseek_v2.build, router_bias=True),
    heads=heads("DeepseekV3"),
    defaults={
        **deepseek_v2.FAMILY.defaults, "vocab_size": 129280, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_attention_heads": 128, "n_shared_experts": 1,
        "num_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "max_position_embeddings": 4096, "num_nextn_predict_layers": 1,
    },
)  # fmt: skip
