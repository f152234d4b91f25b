"""DeepSeek V2: compressed attention (MLA), dense first layers, then routed and shared experts."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder, read_experts
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import STACKED_EXPERTS, Attention, Model, Style
from tokmill.bill.models.parts import Part, experts, gated_mlp, linear, norm, norms, router
from tokmill.bill.models.shape import FLOAT_BYTES, Shape, read_shape, rotary_bytes


def build(f: Fields, *, router_bias: bool = False) -> Model:
    """Return the model of a configuration. `router_bias`: a bias per expert, a buffer, as in V3."""
    mla = _read_mla(f)
    s = read_shape(f, kv_heads=mla.kv_heads, head_dim=mla.head_dim)
    shared = f.size("n_shared_experts") * f.count("moe_intermediate_size")
    mixed = read_experts(f, _late_layers(f, s.layers), shared_ffn=shared)
    common = (*_mla(f, s, mla), *norms(s, *PRE_NORMS))
    choosing = (
        *experts(s.hidden, mixed.ffn, mixed.count),
        *router(s.hidden, mixed.count),
        *(gated_mlp(s.hidden, shared, "mlp.shared_experts") if shared else ()),
    )
    biases = mixed.count * len(mixed.layers) if router_bias else 0
    buffers = rotary_bytes(f, mla.rope_dim) + FLOAT_BYTES * biases
    more = f.size("num_nextn_predict_layers")
    out = ("layers of multi-token prediction, which transformers does not load",) if more else ()
    return decoder(
        f,
        s,
        common,
        choosing=choosing,
        experts=mixed,
        attention=mla,
        buffer_bytes=buffers,
        leaves_out=out,
    )


def _late_layers(f: Fields, layers: int) -> tuple[int, ...]:
    first, step = f.size("first_k_dense_replace"), f.count("moe_layer_freq", 1)
    return tuple(i for i in range(layers) if i >= first and i % step == 0)


def _read_mla(f: Fields) -> Attention:
    heads = f.count("num_attention_heads")
    return Attention(
        heads,
        heads,
        f.count("qk_nope_head_dim") + f.count("qk_rope_head_dim"),
        kv_rank=f.count("kv_lora_rank"),
        q_rank=f.size("q_lora_rank"),
        rope_dim=f.count("qk_rope_head_dim"),
        nope_dim=f.count("qk_nope_head_dim"),
        value_dim=f.count("v_head_dim"),
    )


def _mla(f: Fields, s: Shape, mla: Attention) -> Part:
    """Return multi-head latent attention; the matrices to the ranks are on every GPU."""
    bias, query = f.flag("attention_bias"), s.heads * mla.head_dim
    low, up = mla.kv_rank + mla.rope_dim, s.heads * (mla.nope_dim + mla.value_dim)
    value, at = s.heads * mla.value_dim, "self_attn"
    queries = linear(f"{at}.q_proj", s.hidden, query, "attention", "columns")
    if mla.q_rank:
        queries = (
            *linear(f"{at}.q_a_proj", s.hidden, mla.q_rank, "attention", bias=bias),
            *norm(f"{at}.q_a_layernorm", mla.q_rank),
            *linear(f"{at}.q_b_proj", mla.q_rank, query, "attention", "columns"),
        )
    return (
        *queries,
        *linear(f"{at}.kv_a_proj_with_mqa", s.hidden, low, "attention", bias=bias),
        *norm(f"{at}.kv_a_layernorm", mla.kv_rank),
        *linear(f"{at}.kv_b_proj", mla.kv_rank, up, "attention", "columns"),
        *linear(f"{at}.o_proj", value, s.hidden, "attention", "rows", bias=bias),
    )


FAMILY = Family(
    build=build,
    heads=heads("DeepseekV2"),
    style=Style(measured=True, router_fp32=True, stacked=STACKED_EXPERTS),
    defaults={
        "hidden_act": "silu", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 102400,
        "intermediate_size": 11008, "num_attention_heads": 32, "max_position_embeddings": 2048,
        "num_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407,
    },
    needed=(),
    names={"n_routed_experts": "num_experts"},
)  # fmt: skip
