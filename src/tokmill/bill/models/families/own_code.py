"""Families whose code is not in transformers: Baichuan, ChatGLM, MiniMind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tokmill.bill.models.families.llama import PRE_NORMS, decoder
from tokmill.bill.models.families.mixtures import read_experts
from tokmill.bill.models.parts import (
    attention,
    embedding,
    experts,
    gated_mlp,
    head,
    head_norms,
    in_layers,
    linear,
    norms,
    router,
)
from tokmill.bill.models.shape import FLOAT_BYTES, GATED, Family, make_model, read_shape
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model
    from tokmill.bill.models.shape import Fields


def _baichuan(f: Fields) -> Model:
    """Make Baichuan 7B or 13B, 1 or 2, as in baichuan-inc's repositories on the Hub.

    7B rotates positions, 13B adds biases to scores (ALiBi): neither holds a parameter.
    """
    s = read_shape(f, grouped=False)
    block = (
        *linear("self_attn.W_pack", s.hidden, 3 * s.hidden, "attention", "columns"),
        *linear("self_attn.o_proj", s.hidden, s.hidden, "attention", "rows"),
        *gated_mlp(s.hidden, s.ffn),
    )
    out = ("tables of positions or of ALiBi biases that Baichuan's own code keeps",)
    return decoder(f, s, block, norms(s, *PRE_NORMS), buffer_bytes=0, leaves_out=out)


def _chatglm(f: Fields) -> Model:
    """Make ChatGLM2, ChatGLM3 or GLM-4 (9B) as in the modeling_chatglm.py of their repositories."""
    if f.size("inner_hidden_size"):
        raise UsageError(f"{f.where}: ChatGLM-6B of the first version is not known; 2, 3 and 4 are")
    heads = f.count("num_attention_heads")
    groups = f.count("num_key_value_heads", 1) if f.flag("multi_query_attention") else heads
    s = read_shape(f, kv_heads=groups)
    bias, qkv = f.flag("add_bias_linear"), s.query_width + 2 * s.kv_width
    qkv_bias, at = bias or f.flag("add_qkv_bias"), "self_attention"
    block = (
        *norms(s, "input_layernorm"),
        *linear(f"{at}.query_key_value", s.hidden, qkv, "attention", "columns", bias=qkv_bias),
        *linear(f"{at}.dense", s.query_width, s.hidden, "attention", "rows", bias=bias),
        *norms(s, "post_attention_layernorm"),
        *linear("mlp.dense_h_to_4h", s.hidden, 2 * s.ffn, "mlp", "columns", bias=bias),
        *linear("mlp.dense_4h_to_h", s.ffn, s.hidden, "mlp", "rows", bias=bias),
    )
    tensors = (
        *embedding("transformer.embedding.word_embeddings", s.vocabulary, s.hidden),
        *in_layers("transformer.encoder.layers", range(s.layers), block),
        *norms(s, "transformer.encoder.final_layernorm"),
        *head(s, "transformer.output_layer"),
    )
    # Half of a head is rotated: a value per pair, once, in the type of the weights.
    rotary = FLOAT_BYTES * (s.head_dim // 4)
    return make_model(f, s, tensors, buffer_bytes=rotary)


def _minimind(f: Fields) -> Model:
    """Make MiniMind as in jingyaogong/minimind, model/model_minimind.py.

    Since its third version (a configuration with num_experts) queries and keys are normalised and
    the feed-forward layer is pi * d wide; before (n_routed_experts), 8 / 3 * d; rounded up to 64.
    """
    d, old = f.count("hidden_size"), f.size("n_routed_experts") > 0
    width = math.floor(d * 8 / 3) if old else math.ceil(d * math.pi)
    s = read_shape(f, ffn=f.size("intermediate_size") or 64 * -(-width // 64))
    between = () if old else head_norms(s.head_dim)
    common = (*attention(s), *between, *norms(s, *PRE_NORMS))
    # Cosine and sine of all positions, as wide as a head.
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


FAMILIES = {
    "baichuan": Family(
        _baichuan, "BaichuanForCausalLM",
        {
            "vocab_size": 64000, "num_attention_heads": 40, "intermediate_size": 13696,
            "hidden_act": "silu", "max_position_embeddings": 4096,
        },
        {"model_max_length": "max_position_embeddings"},
    ),
    "chatglm": Family(
        _chatglm, "ChatGLMModel",
        {
            "vocab_size": 65024, "intermediate_size": 13696, "head_dim": 128,
            "num_attention_heads": 32, "max_position_embeddings": 2048, "hidden_act": "silu",
        },
        {
            "num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size",
            "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim",
            "multi_query_group_num": "num_key_value_heads",
            "seq_length": "max_position_embeddings",
        },
        (*GATED, "num_key_value_heads"),
        {"multi_query_attention": True, "add_qkv_bias": True},
    ),
    "minimind": Family(
        _minimind, "MiniMindForCausalLM",
        {
            "vocab_size": 6400, "num_attention_heads": 8, "num_key_value_heads": 4,
            "hidden_act": "silu", "max_position_embeddings": 32768, "tie_word_embeddings": True,
            "num_experts": 4, "num_experts_per_tok": 1,
        },
        {"n_routed_experts": "num_experts"},
        ("num_hidden_layers", "hidden_size", "vocab_size"),
        {"num_attention_heads": 8, "num_key_value_heads": 4},
    ),
}  # fmt: skip
