"""DeepSeek V2 and V3: experts, and attention through a compressed vector (MLA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.memory.families.family import Family
from tokmill.memory.families.llama import PRE_NORMS
from tokmill.memory.families.mixtures import mixture, read_experts
from tokmill.memory.families.parts import Part, experts, gated_mlp, linear, norm, norms, router
from tokmill.memory.families.shape import FLOAT_BYTES, read_shape, rotary_bytes
from tokmill.memory.model import Attention

if TYPE_CHECKING:
    from tokmill.memory.families.fields import Fields
    from tokmill.memory.families.shape import Shape
    from tokmill.memory.model import Model


def _deepseek(f: Fields) -> Model:
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
    # V3's router adds a bias per expert that is a buffer, moved outside the gradient.
    biases = mixed.count * len(mixed.layers) if f.family == "deepseek_v3" else 0
    buffers = rotary_bytes(f, mla.rope_dim) + FLOAT_BYTES * biases
    more = f.size("num_nextn_predict_layers")
    out = ("layers of multi-token prediction, which transformers does not load",) if more else ()
    return mixture(f, s, common, choosing, mixed, mla=mla, buffer_bytes=buffers, leaves_out=out)


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
    """Return multi-head latent attention: down to the ranks on every GPU, up from them by heads."""
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


_DEEPSEEK_NAMES = {"n_routed_experts": "num_experts"}
_DEEPSEEK = {
    "hidden_act": "silu", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip

FAMILIES = {
    "deepseek_v2": Family(
        _deepseek, "DeepseekV2ForCausalLM",
        {
            **_DEEPSEEK, "vocab_size": 102400, "intermediate_size": 11008,
            "num_attention_heads": 32, "max_position_embeddings": 2048, "num_experts": 64,
            "n_shared_experts": 2, "moe_intermediate_size": 1407,
        },
        _DEEPSEEK_NAMES, (),
    ),
    "deepseek_v3": Family(
        _deepseek, "DeepseekV3ForCausalLM",
        {
            **_DEEPSEEK, "vocab_size": 129280, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_attention_heads": 128, "n_shared_experts": 1,
            "num_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "max_position_embeddings": 4096, "num_nextn_predict_layers": 1,
        },
        _DEEPSEEK_NAMES, (),
    ),
}  # fmt: skip
