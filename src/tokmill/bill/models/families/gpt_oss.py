"""gpt-oss: experts with biases, attention sinks, windows in every other layer."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder, read_experts
from tokmill.bill.models.families import mixtral
from tokmill.bill.models.family import WITH_EXPERTS, Family, Fields, heads
from tokmill.bill.models.model import Model, Style, Tensor
from tokmill.bill.models.parts import Part, attention, norms, router, vector
from tokmill.bill.models.shape import read_shape, typed_windows


def _build(f: Fields) -> Model:
    s = read_shape(f, ffn=f.count("moe_intermediate_size"))
    mixed, bias = read_experts(f, tuple(range(s.layers))), f.flag("attention_bias")
    common = (
        *vector("self_attn.sinks", s.heads, "attention", "columns"),
        *attention(s, bias=bias, out_bias=bias),
        *norms(s, *PRE_NORMS),
    )
    choosing = (
        *router(s.hidden, mixed.count, "mlp.router", bias=True),
        *_biased_experts(s.hidden, mixed.ffn, mixed.count),
    )
    windows = typed_windows(f, s.layers, lambda layer: layer % 2 == 0)
    return decoder(f, s, common, choosing=choosing, experts=mixed, windows=windows)


def _biased_experts(hidden: int, ffn: int, count: int) -> Part:
    """Return experts whose matrices are stored as (input, output), with biases."""
    up, down, name = (count, hidden, 2 * ffn), (count, ffn, hidden), "mlp.experts"
    return (
        Tensor(f"{name}.gate_up_proj", up, "experts", "experts", "columns", hidden, 2 * ffn),
        Tensor(f"{name}.gate_up_proj_bias", (count, 2 * ffn), "experts", "experts", "columns"),
        Tensor(f"{name}.down_proj", down, "experts", "experts", "rows", ffn, hidden),
        Tensor(f"{name}.down_proj_bias", (count, hidden), "experts", "experts"),
    )


FAMILY = Family(
    build=_build,
    heads=heads("GptOss"),
    # Torch's sdpa does not support sinks; kernels of the Hub for Hopper GPUs do.
    style=Style(
        kernels=("flash", "eager"), measured=True, norm="rms32", softmax_fp32=False, sinks=True,
        clamped=True,
    ),
    defaults={
        "vocab_size": 201088, "moe_intermediate_size": 2880, "head_dim": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
        "hidden_act": "silu", "max_position_embeddings": 131072, "num_experts_per_tok": 4,
        "num_experts": 128, "attention_bias": True,
    },
    needed=WITH_EXPERTS,
    names=mixtral.FAMILY.names,
)  # fmt: skip
