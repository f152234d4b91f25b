"""DeepSeek V2, V3, R1 and V3.2: compressed attention (MLA), dense first layers, then experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tokmill.bill.models.decoder import Layer
from tokmill.bill.models.families.decoders import late_experts, next_tokens
from tokmill.bill.models.family import Fields, Shape, read_shape, rotary_bytes
from tokmill.bill.models.model import INDEXER, Attention
from tokmill.bill.models.tensors import Part, linear, norm


def _layer(fields: Fields, *, router_bias: bool = True, sparse: bool = False) -> Layer:
    """Return the layer.

    `router_bias`: a bias per expert, a buffer, since V3. `sparse`: an indexer chooses the tokens
    that a token attends to, as in V3.2.
    """
    mla = _read_mla(fields)
    shape = read_shape(fields, kv_heads=mla.kv_heads, head_dim=mla.head_dim)
    return Layer(
        shape=shape,
        attention=mla,
        attention_tensors=_mla(fields, shape, mla),
        mixture=late_experts(fields, shape.layers, router_buffer=router_bias),
        extra=_indexer(fields, shape) if sparse else (),
        buffer_bytes=rotary_bytes(fields, mla.rope_dim),
        leaves_out=(*((INDEXER,) if sparse else ()), *next_tokens(fields)),
    )


def _read_mla(fields: Fields) -> Attention:
    """Return the shape of multi-head latent attention."""
    heads = fields.count("num_attention_heads")
    return Attention(
        heads,
        heads,
        fields.count("qk_nope_head_dim") + fields.count("qk_rope_head_dim"),
        kv_rank=fields.count("kv_lora_rank"),
        q_rank=fields.size("q_lora_rank"),
        rope_dim=fields.count("qk_rope_head_dim"),
        nope_dim=fields.count("qk_nope_head_dim"),
        value_dim=fields.count("v_head_dim"),
    )


def _mla(fields: Fields, shape: Shape, mla: Attention) -> Part:
    """Return multi-head latent attention; the matrices to the ranks are on every GPU."""
    bias, query = fields.flag("attention_bias"), shape.heads * mla.head_dim
    low, up = mla.kv_rank + mla.rope_dim, shape.heads * (mla.nope_dim + mla.value_dim)
    value, at = shape.heads * mla.value_dim, "self_attn"
    queries = linear(f"{at}.q_proj", shape.hidden, query, "attention", "columns")
    if mla.q_rank:
        queries = (
            *linear(f"{at}.q_a_proj", shape.hidden, mla.q_rank, "attention", bias=bias),
            *norm(f"{at}.q_a_layernorm", mla.q_rank),
            *linear(f"{at}.q_b_proj", mla.q_rank, query, "attention", "columns"),
        )
    return (
        *queries,
        *linear(f"{at}.kv_a_proj_with_mqa", shape.hidden, low, "attention", bias=bias),
        *norm(f"{at}.kv_a_layernorm", mla.kv_rank),
        *linear(f"{at}.kv_b_proj", mla.kv_rank, up, "attention", "columns"),
        *linear(f"{at}.o_proj", value, shape.hidden, "attention", "rows", bias=bias),
    )


def _indexer(fields: Fields, shape: Shape) -> Part:
    """Return the indexer of sparse attention; every GPU has all of it."""
    heads, width, at = (
        fields.count("index_n_heads"),
        fields.count("index_head_dim"),
        "self_attn.indexer",
    )
    return (
        *linear(f"{at}.wq_b", fields.count("q_lora_rank"), heads * width, "attention"),
        *linear(f"{at}.wk", shape.hidden, width, "attention"),
        *norm(f"{at}.k_norm", width, bias=True),
        *linear(f"{at}.weights_proj", shape.hidden, heads, "attention"),
    )


LAYERS: dict[str, Callable[[Fields], Layer]] = {
    "deepseek_v2": partial(_layer, router_bias=False),
    "deepseek_v3": _layer,
    "deepseek_v32": partial(_layer, sparse=True),
}
