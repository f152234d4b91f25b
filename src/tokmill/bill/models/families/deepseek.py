"""DeepSeek V2, V3, R1 and V3.2: compressed attention (MLA), dense first layers, then experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tokmill.bill.models.decoder import Layer
from tokmill.bill.models.families.decoders import late_experts, next_tokens
from tokmill.bill.models.family import Fields, Shape, read_shape, rotary_bytes
from tokmill.bill.models.model import INDEXER, Attention
from tokmill.bill.models.tensors import Part, linear, norm


def _layer(f: Fields, *, router_bias: bool = True, sparse: bool = False) -> Layer:
    """Return the layer.

    `router_bias`: a bias per expert, a buffer, since V3. `sparse`: an indexer chooses the tokens
    that a token attends to, as in V3.2.
    """
    mla = _read_mla(f)
    s = read_shape(f, kv_heads=mla.kv_heads, head_dim=mla.head_dim)
    return Layer(
        shape=s,
        attention=mla,
        attention_tensors=_mla(f, s, mla),
        mixture=late_experts(f, s.layers, router_buffer=router_bias),
        extra=_indexer(f, s) if sparse else (),
        buffer_bytes=rotary_bytes(f, mla.rope_dim),
        leaves_out=(*((INDEXER,) if sparse else ()), *next_tokens(f)),
    )


def _read_mla(f: Fields) -> Attention:
    """Return the shape of multi-head latent attention."""
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


def _indexer(f: Fields, s: Shape) -> Part:
    """Return the indexer of sparse attention; every GPU has all of it."""
    heads, width, at = f.count("index_n_heads"), f.count("index_head_dim"), "self_attn.indexer"
    return (
        *linear(f"{at}.wq_b", f.count("q_lora_rank"), heads * width, "attention"),
        *linear(f"{at}.wk", s.hidden, width, "attention"),
        *norm(f"{at}.k_norm", width, bias=True),
        *linear(f"{at}.weights_proj", s.hidden, heads, "attention"),
    )


LAYERS: dict[str, Callable[[Fields], Layer]] = {
    "deepseek_v2": partial(_layer, router_bias=False),
    "deepseek_v3": _layer,
    "deepseek_v32": partial(_layer, sparse=True),
}
