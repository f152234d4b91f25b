"""Families whose layers hold experts: Mixtral, Qwen MoE, gpt-oss, DeepSeek V2 and V3 (MLA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.models.families.llama import PRE_NORMS, decoder
from tokmill.bill.models.model import Attention, Experts, Tensor
from tokmill.bill.models.parts import (
    Part,
    attention,
    experts,
    gated_mlp,
    head_norms,
    linear,
    norm,
    norms,
    router,
    vector,
)
from tokmill.bill.models.shape import (
    FLOAT_BYTES,
    MIXED,
    Family,
    all_windows,
    read_shape,
    rotary_bytes,
    typed_windows,
)
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model
    from tokmill.bill.models.shape import Fields, Shape


def read_experts(
    f: Fields, layers: tuple[int, ...], *, shared_ffn: int = 0, ffn: int = 0
) -> Experts:
    """Read the shape of the experts that stand in `layers`; `ffn` is their width if none is said.

    Raises:
        UsageError: a number is missing, or a token passes more experts than there are.
    """
    count, active = f.count("num_experts"), f.count("num_experts_per_tok")
    if active > count:
        raise UsageError(
            f"{f.where}: {f.label('num_experts_per_tok')} {active} is above "
            f"{f.label('num_experts')} {count}"
        )
    return Experts(count, active, f.count("moe_intermediate_size", ffn), shared_ffn, layers)


def _mixtral(f: Fields) -> Model:
    s = read_shape(f, ffn=f.count("moe_intermediate_size"))
    mixed = read_experts(f, tuple(range(s.layers)))
    common = (*attention(s), *norms(s, *PRE_NORMS))
    choosing = (*router(s.hidden, mixed.count), *experts(s.hidden, mixed.ffn, mixed.count))
    windows = all_windows(f, s.layers)
    return decoder(f, s, common, choosing=choosing, experts=mixed, windows=windows)


def _qwen2_moe(f: Fields) -> Model:
    s = read_shape(f, ffn=f.size("intermediate_size") or f.count("moe_intermediate_size"))
    shared = f.count("shared_expert_intermediate_size")
    mixed = read_experts(f, _sparse_layers(f, s.layers), shared_ffn=shared)
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


def _qwen3_moe(f: Fields) -> Model:
    s = read_shape(f, ffn=f.size("intermediate_size") or f.count("moe_intermediate_size"))
    mixed, bias = read_experts(f, _sparse_layers(f, s.layers)), f.flag("attention_bias")
    common = (
        *attention(s, bias=bias, out_bias=bias),
        *head_norms(s.head_dim),
        *norms(s, *PRE_NORMS),
    )
    choosing = (*experts(s.hidden, mixed.ffn, mixed.count), *router(s.hidden, mixed.count))
    windows = all_windows(f, s.layers) if f.flag("use_sliding_window") else ()
    return decoder(f, s, common, choosing=choosing, experts=mixed, windows=windows)


def _sparse_layers(f: Fields, layers: int) -> tuple[int, ...]:
    """Return the layers with experts: each `decoder_sparse_step`-th, less `mlp_only_layers`."""
    step, dense = f.count("decoder_sparse_step", 1), f.items("mlp_only_layers", int) or []
    return tuple(i for i in range(layers) if i not in dense and (i + 1) % step == 0)


def _gpt_oss(f: Fields) -> Model:
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
    """Return experts stored as input by output, each matrix with a bias of the expert."""
    up, down, name = (count, hidden, 2 * ffn), (count, ffn, hidden), "mlp.experts"
    return (
        Tensor(f"{name}.gate_up_proj", up, "experts", "experts", "columns", hidden, 2 * ffn),
        Tensor(f"{name}.gate_up_proj_bias", (count, 2 * ffn), "experts", "experts", "columns"),
        Tensor(f"{name}.down_proj", down, "experts", "experts", "rows", ffn, hidden),
        Tensor(f"{name}.down_proj_bias", (count, hidden), "experts", "experts"),
    )


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


_MIXTRAL_NAMES = {"num_local_experts": "num_experts", "intermediate_size": "moe_intermediate_size"}
_QWEN_MOE = {
    "vocab_size": 151936, "max_position_embeddings": 32768, "hidden_act": "silu",
    "decoder_sparse_step": 1, "sliding_window": 4096,
}  # fmt: skip

_DEEPSEEK_NAMES = {"n_routed_experts": "num_experts"}
_DEEPSEEK = {
    "hidden_act": "silu", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip

FAMILIES = {
    "mixtral": Family(
        _mixtral, "MixtralForCausalLM",
        {
            "vocab_size": 32000, "moe_intermediate_size": 14336, "num_attention_heads": 32,
            "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072,
            "num_experts_per_tok": 2, "num_experts": 8,
        },
        _MIXTRAL_NAMES, MIXED,
    ),
    "qwen2_moe": Family(
        _qwen2_moe, "Qwen2MoeForCausalLM",
        {
            **_QWEN_MOE, "intermediate_size": 5632, "num_attention_heads": 16,
            "num_key_value_heads": 16, "max_window_layers": 28, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
            "qkv_bias": True,
        },
        {}, (),
    ),
    "qwen3_moe": Family(
        _qwen3_moe, "Qwen3MoeForCausalLM",
        {
            **_QWEN_MOE, "intermediate_size": 6144, "num_attention_heads": 32,
            "num_key_value_heads": 4, "moe_intermediate_size": 768, "num_experts_per_tok": 8,
            "num_experts": 128,
        },
        {"num_local_experts": "num_experts"}, MIXED,
    ),
    "gpt_oss": Family(
        _gpt_oss, "GptOssForCausalLM",
        {
            "vocab_size": 201088, "moe_intermediate_size": 2880, "head_dim": 64,
            "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
            "hidden_act": "silu", "max_position_embeddings": 131072, "num_experts_per_tok": 4,
            "num_experts": 128, "attention_bias": True,
        },
        _MIXTRAL_NAMES, MIXED,
    ),
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
