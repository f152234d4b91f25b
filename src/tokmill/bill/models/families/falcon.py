"""Falcon: one key-value head (7B) or groups of them (40B, 180B), norms by generation."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import NEEDED, Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import embedding, fused_attention, head, in_layers, norms, plain_mlp
from tokmill.bill.models.shape import read_shape, rotary_bytes

ONE_NORM = ("input_layernorm",)


def _build(f: Fields) -> Model:
    new, bias = f.flag("new_decoder_architecture"), f.flag("bias")
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    one = not new and f.flag("multi_query")
    heads = f.count("num_attention_heads")
    kv_heads = f.count("num_key_value_heads", heads) if new else 1 if one else heads
    s = read_shape(f, grouped=False, ffn=ffn, kv_heads=kv_heads)
    before = _norms(f, new=new)
    block = (
        *fused_attention(s, bias=bias, out_bias=bias),
        *plain_mlp(s.hidden, s.ffn, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", bias=bias),
        *norms(s, *before, bias=True),
    )
    tensors = (
        *embedding("transformer.word_embeddings", s.vocabulary, s.hidden),
        *in_layers("transformer.h", range(s.layers), block),
        *norms(s, "transformer.ln_f", bias=True),
        *head(s),
    )
    style = replace(
        f.family.style,
        one_norm=before == ONE_NORM,
        parallel="post_attention_layernorm" not in before,
        repeated=new,
    )
    rotary = rotary_bytes(f, s.head_dim)  # held with ALiBi too
    return make_model(f, s, tensors, style=style, buffer_bytes=rotary)


def _norms(f: Fields, *, new: bool) -> tuple[str, ...]:
    if not f.flag("parallel_attn"):
        return "post_attention_layernorm", "input_layernorm"
    two = f.count("num_ln_in_parallel_attn", 2 if new else 1) == 2
    return ("ln_attn", "ln_mlp") if two else ONE_NORM


FAMILY = Family(
    build=_build,
    heads=heads("Falcon", "transformer.", "transformer.", "classifier"),
    style=Style(
        measured=True, norm="layer", inputs=(1, 1), fused="value", copied=True,
        gated=False, softmax_fp32=False, dropouts=2,
        leaves_out="sdpa with one key-value head may use a kernel that keeps the scores",
    ),
    defaults={
        "vocab_size": 65024, "num_attention_heads": 71, "multi_query": True, "parallel_attn": True,
        "tie_word_embeddings": True, "hidden_act": "gelu", "max_position_embeddings": 2048,
    },
    needed=NEEDED,
    names={
        "n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads", "n_head_kv": "num_key_value_heads",
        "ffn_hidden_size": "intermediate_size", "activation": "hidden_act",
    },
)  # fmt: skip
