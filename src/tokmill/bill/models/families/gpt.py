"""Families with LayerNorm and a feed-forward layer without a gate: GPT-2 and those after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.models.parts import (
    Part,
    attention,
    embedding,
    head,
    in_layers,
    linear,
    norm,
    norms,
    plain_mlp,
)
from tokmill.bill.models.shape import NEEDED, Family, make_model, read_shape, rotary_bytes

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model
    from tokmill.bill.models.shape import Fields, Shape


def _gpt2(f: Fields) -> Model:
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    s = read_shape(f, grouped=False, ffn=ffn)
    positions = f.size("max_position_embeddings")
    d, qkv = s.hidden, 3 * s.hidden
    block = (
        *norms(s, "ln_1", bias=True),
        *linear("attn.c_attn", d, qkv, "attention", "columns", bias=True, transposed=True),
        *linear("attn.c_proj", d, d, "attention", "rows", bias=True, transposed=True),
        *norms(s, "ln_2", bias=True),
        *plain_mlp(d, s.ffn, "mlp.c_fc", "mlp.c_proj", transposed=True),
    )
    tensors = (
        *embedding("transformer.wte", s.vocabulary, d),
        *(embedding("transformer.wpe", positions, d, "none") if positions else ()),
        *in_layers("transformer.h", range(s.layers), block),
        *norms(s, "transformer.ln_f", bias=True),
        *head(s),
    )
    return make_model(f, s, tensors)


def _gpt_neox(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    d, bias = s.hidden, f.flag("attention_bias")
    block = (
        *norms(s, "input_layernorm", "post_attention_layernorm", bias=True),
        *linear("attention.query_key_value", d, 3 * d, "attention", "columns", bias=bias),
        *linear("attention.dense", d, d, "attention", "rows", bias=bias),
        *plain_mlp(d, s.ffn, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    )
    tensors = (
        *embedding("gpt_neox.embed_in", s.vocabulary, d),
        *in_layers("gpt_neox.layers", range(s.layers), block),
        *norms(s, "gpt_neox.final_layer_norm", bias=True),
        *head(s),
    )
    rotary = rotary_bytes(f, s.head_dim, f.share("rotary_pct", 0.25))
    return make_model(f, s, tensors, buffer_bytes=rotary)


def _opt(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    d, bias = s.hidden, f.flag("enable_bias")
    width = f.count("word_embed_proj_dim", d)
    affine = f.flag("layer_norm_elementwise_affine")
    last = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")
    narrow, decoder = width != d, "model.decoder"
    block = (
        *attention(s, bias=bias, out_bias=bias, out="out_proj"),
        *(norms(s, "self_attn_layer_norm", bias=True) if affine else ()),
        *plain_mlp(d, s.ffn, "fc1", "fc2", bias=bias),
        *(norms(s, "final_layer_norm", bias=True) if affine else ()),
    )
    # Two rows more than positions: the offset of the padding in fairseq, where OPT comes from.
    positions = f.count("max_position_embeddings") + 2
    tensors = (
        *embedding(f"{decoder}.embed_tokens", s.vocabulary, width),
        *embedding(f"{decoder}.embed_positions", positions, d, "none"),
        *(linear(f"{decoder}.project_out", d, width, "embedding") if narrow else ()),
        *(linear(f"{decoder}.project_in", width, d, "embedding") if narrow else ()),
        *(norms(s, f"{decoder}.final_layer_norm", bias=True) if last and affine else ()),
        *in_layers(f"{decoder}.layers", range(s.layers), block),
        *(() if s.tied else linear("lm_head", width, s.vocabulary, "head", "vocabulary")),
    )
    return make_model(f, s, tensors)


def _bloom(f: Fields) -> Model:
    s = read_shape(f, grouped=False, ffn=4 * f.count("hidden_size"))
    block = (
        *norms(s, "input_layernorm", bias=True),
        *_fused_attention(s, 3 * s.hidden, bias=True),
        *norms(s, "post_attention_layernorm", bias=True),
        *plain_mlp(s.hidden, s.ffn, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    )
    tensors = (
        *embedding("transformer.word_embeddings", s.vocabulary, s.hidden),
        *norms(s, "transformer.word_embeddings_layernorm", bias=True),
        *in_layers("transformer.h", range(s.layers), block),
        *norms(s, "transformer.ln_f", bias=True),
        *head(s),
    )
    return make_model(f, s, tensors)


def _falcon(f: Fields) -> Model:
    new, bias = f.flag("new_decoder_architecture"), f.flag("bias")
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    one = not new and f.flag("multi_query")
    heads = f.count("num_attention_heads")
    kv_heads = f.count("num_key_value_heads", heads) if new else 1 if one else heads
    s = read_shape(f, grouped=False, ffn=ffn, kv_heads=kv_heads)
    block = (
        *_fused_attention(s, s.query_width + 2 * s.kv_width, bias=bias),
        *plain_mlp(s.hidden, s.ffn, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", bias=bias),
        *norms(s, *_falcon_norms(f, new=new), bias=True),
    )
    tensors = (
        *embedding("transformer.word_embeddings", s.vocabulary, s.hidden),
        *in_layers("transformer.h", range(s.layers), block),
        *norms(s, "transformer.ln_f", bias=True),
        *head(s),
    )
    rotary = rotary_bytes(f, s.head_dim)  # held with ALiBi too
    return make_model(f, s, tensors, buffer_bytes=rotary)


def _falcon_norms(f: Fields, *, new: bool) -> tuple[str, ...]:
    if not f.flag("parallel_attn"):
        return "post_attention_layernorm", "input_layernorm"
    two = f.count("num_ln_in_parallel_attn", 2 if new else 1) == 2
    return ("ln_attn", "ln_mlp") if two else ("input_layernorm",)


def _fused_attention(s: Shape, qkv: int, *, bias: bool) -> Part:
    name = "self_attention"
    return (
        *linear(f"{name}.query_key_value", s.hidden, qkv, "attention", "columns", bias=bias),
        *linear(f"{name}.dense", s.query_width, s.hidden, "attention", "rows", bias=bias),
    )


def _phi(f: Fields) -> Model:
    s = read_shape(f)
    between = ("self_attn.q_layernorm", "self_attn.k_layernorm") if f.flag("qk_layernorm") else ()
    block = (
        *attention(s, bias=True, out_bias=True, out="dense"),
        *(tensor for name in between for tensor in norm(name, s.hidden // s.heads, bias=True)),
        *plain_mlp(s.hidden, s.ffn, "mlp.fc1", "mlp.fc2"),
        *norms(s, "input_layernorm", bias=True),
    )
    tensors = (
        *embedding("model.embed_tokens", s.vocabulary, s.hidden),
        *in_layers("model.layers", range(s.layers), block),
        *norms(s, "model.final_layernorm", bias=True),
        *head(s, bias=True),
    )
    rotary = rotary_bytes(f, s.head_dim, 0.5)
    return make_model(f, s, tensors, buffer_bytes=rotary)


_GPT2 = {
    "vocab_size": 50257, "max_position_embeddings": 1024, "num_attention_heads": 12,
    "hidden_act": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
}  # fmt: skip
_PLAIN = {"hidden_act": "gelu_new", "tie_word_embeddings": True}
_GPT2_NAMES = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings", "n_inner": "intermediate_size",
    "activation_function": "hidden_act",
}  # fmt: skip
_BLOOM_NAMES = {
    "n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "seq_length": "max_position_embeddings",
}  # fmt: skip

FAMILIES = {
    # The layer of 12 d^2 + 13 d parameters; positions are learnt where they are given.
    "plain": Family(_gpt2, "", _PLAIN, _GPT2_NAMES, NEEDED),
    "gpt2": Family(_gpt2, "GPT2LMHeadModel", _GPT2, _GPT2_NAMES, NEEDED),
    "gpt_neox": Family(
        _gpt_neox, "GPTNeoXForCausalLM",
        {
            "vocab_size": 50432, "num_attention_heads": 64, "intermediate_size": 24576,
            "hidden_act": "gelu", "max_position_embeddings": 2048, "attention_bias": True,
        },
    ),
    "opt": Family(
        _opt, "OPTForCausalLM",
        {
            "vocab_size": 50272, "num_attention_heads": 12, "intermediate_size": 3072,
            "max_position_embeddings": 2048, "do_layer_norm_before": True, "enable_bias": True,
            "layer_norm_elementwise_affine": True, "tie_word_embeddings": True,
            "hidden_act": "relu", "dropout": 0.1,
        },
        {"ffn_dim": "intermediate_size", "activation_function": "hidden_act"},
    ),
    "bloom": Family(
        _bloom, "BloomForCausalLM",
        {
            "vocab_size": 250880, "num_attention_heads": 8, "tie_word_embeddings": True,
            "hidden_act": "bloom_gelu",
        },
        _BLOOM_NAMES, NEEDED,
    ),
    "falcon": Family(
        _falcon, "FalconForCausalLM",
        {
            "vocab_size": 65024, "num_attention_heads": 71, "multi_query": True,
            "parallel_attn": True, "tie_word_embeddings": True, "hidden_act": "gelu",
            "max_position_embeddings": 2048,
        },
        {
            "n_embed": "hidden_size", "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads", "num_kv_heads": "num_key_value_heads",
            "n_head_kv": "num_key_value_heads", "ffn_hidden_size": "intermediate_size",
            "activation": "hidden_act",
        },
        NEEDED,
    ),
    "phi": Family(
        _phi, "PhiForCausalLM",
        {
            "vocab_size": 51200, "num_attention_heads": 32, "intermediate_size": 8192,
            "hidden_act": "gelu_new", "max_position_embeddings": 2048,
        },
    ),
}  # fmt: skip
