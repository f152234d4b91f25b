"""GPT-2 and the decoders of its time: biases, LayerNorm, a feed-forward layer without a gate."""

from __future__ import annotations

from tokmill.bill.models.decoder import PRE_NORMS, Layer, make_model
from tokmill.bill.models.family import (
    Fields,
    read_shape,
    rotary_bytes,
)
from tokmill.bill.models.model import Model
from tokmill.bill.models.tensors import (
    attention,
    embedding,
    feed_forward,
    in_layers,
    linear,
    norms,
)


def _gpt2(f: Fields) -> Layer:
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    return Layer(shape=read_shape(f, grouped=False, ffn=ffn))


def _gpt_neox(f: Fields) -> Layer:
    s, bias = read_shape(f, grouped=False), f.flag("attention_bias")
    rotary = rotary_bytes(f, s.head_dim, f.share("rotary_pct", 0.25))
    return Layer(shape=s, qkv_bias=bias, out_bias=bias, buffer_bytes=rotary)


def _bloom(f: Fields) -> Layer:
    return Layer(shape=read_shape(f, grouped=False, ffn=4 * f.count("hidden_size")))


def _falcon(f: Fields) -> Layer:
    """Return Falcon's layer: one key-value head (7B) or groups of them (40B, 180B)."""
    grouped, bias = f.flag("new_decoder_architecture"), f.flag("bias")
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    heads = f.count("num_attention_heads")
    kv_heads = 1 if f.flag("multi_query") else heads
    kv_heads = f.count("num_key_value_heads", heads) if grouped else kv_heads
    before: tuple[str, ...] = PRE_NORMS
    if f.flag("parallel_attn"):
        two = f.count("num_ln_in_parallel_attn", 2 if grouped else 1) == 2
        before = ("ln_attn", "ln_mlp") if two else PRE_NORMS[:1]
    parallel = before != PRE_NORMS
    return Layer(
        shape=read_shape(f, grouped=False, ffn=ffn, kv_heads=kv_heads),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        before=before,
        style={"one_norm": len(before) == 1, "parallel": parallel, "repeated": grouped},
    )


def _phi(f: Fields) -> Layer:
    """Return Phi's layer: one norm for attention and feed-forward layer."""
    s = read_shape(f)
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm")
    return Layer(
        shape=s,
        head_norms=names if f.flag("qk_layernorm") else (),
        buffer_bytes=rotary_bytes(f, s.head_dim, 0.5),
        style={"one_norm": True},
    )


def _opt(f: Fields) -> Model:
    """Return OPT, whose embedding may be narrower than its layers."""
    s = read_shape(f, grouped=False)
    hidden, bias = s.hidden, f.flag("enable_bias")
    width = f.count("word_embed_proj_dim", hidden)
    affine = f.flag("layer_norm_elementwise_affine")
    last = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")
    stem = "model.decoder"
    matrices = ("q_proj", "k_proj", "v_proj", "out_proj")
    block = (
        *attention(s, [f"self_attn.{name}" for name in matrices], bias=bias, out_bias=bias),
        *feed_forward(hidden, s.ffn, ("fc1",), "fc2", bias=bias),
        *(norms(s, "self_attn_layer_norm", "final_layer_norm", bias=True) if affine else ()),
    )
    narrow = (
        *linear(f"{stem}.project_out", hidden, width, "embedding"),
        *linear(f"{stem}.project_in", width, hidden, "embedding"),
    )
    # Two more rows than positions: OPT comes from fairseq, whose positions start at 2.
    positions = f.count("max_position_embeddings") + 2
    tensors = (
        *embedding(f"{stem}.embed_tokens", s.vocabulary, width),
        *embedding(f"{stem}.embed_positions", positions, hidden, "none"),
        *(narrow if width != hidden else ()),
        *(norms(s, f"{stem}.final_layer_norm", bias=True) if last and affine else ()),
        *in_layers(f"{stem}.layers", range(s.layers), block),
        *(() if s.tied else linear("lm_head", width, s.vocabulary, "head", "vocabulary")),
    )
    return make_model(f, s, tensors, head_width=width)


LAYERS = {
    "plain": _gpt2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "falcon": _falcon,
    "phi": _phi,
}
BUILDS = {"opt": _opt}
