"""GPT-2 and the decoders of its time: biases, LayerNorm, a feed-forward layer without a gate."""

from __future__ import annotations

from tokmill.bill.models.decoder import PRE_NORMS, Layer, make_model
from tokmill.bill.models.family import Fields, read_shape, rotary_bytes
from tokmill.bill.models.model import Model
from tokmill.bill.models.tensors import attention, embedding, feed_forward, in_layers, linear, norms


def _gpt2(fields: Fields) -> Layer:
    ffn = fields.size("intermediate_size") or 4 * fields.count("hidden_size")
    return Layer(shape=read_shape(fields, grouped=False, ffn=ffn))


def _gpt_neox(fields: Fields) -> Layer:
    shape, bias = read_shape(fields, grouped=False), fields.flag("attention_bias")
    rotary = rotary_bytes(fields, shape.head_dim, fields.share("rotary_pct", 0.25))
    return Layer(shape=shape, qkv_bias=bias, out_bias=bias, buffer_bytes=rotary)


def _bloom(fields: Fields) -> Layer:
    return Layer(shape=read_shape(fields, grouped=False, ffn=4 * fields.count("hidden_size")))


def _falcon(fields: Fields) -> Layer:
    """Return Falcon's layer: one key-value head (7B) or groups of them (40B, 180B)."""
    grouped, bias = fields.flag("new_decoder_architecture"), fields.flag("bias")
    ffn = fields.size("intermediate_size") or 4 * fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    kv_heads = 1 if fields.flag("multi_query") else heads
    kv_heads = fields.count("num_key_value_heads", heads) if grouped else kv_heads
    before: tuple[str, ...] = PRE_NORMS
    if fields.flag("parallel_attn"):
        two = fields.count("num_ln_in_parallel_attn", 2 if grouped else 1) == 2
        before = ("ln_attn", "ln_mlp") if two else PRE_NORMS[:1]
    parallel = before != PRE_NORMS
    return Layer(
        shape=read_shape(fields, grouped=False, ffn=ffn, kv_heads=kv_heads),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        before=before,
        style={"one_norm": len(before) == 1, "parallel": parallel, "repeated": grouped},
    )


def _phi(fields: Fields) -> Layer:
    """Return Phi's layer: one norm for attention and feed-forward layer."""
    shape = read_shape(fields)
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm")
    return Layer(
        shape=shape,
        head_norms=names if fields.flag("qk_layernorm") else (),
        buffer_bytes=rotary_bytes(fields, shape.head_dim, 0.5),
        style={"one_norm": True},
    )


def _opt(fields: Fields) -> Model:
    """Return OPT, whose embedding may be narrower than its layers."""
    shape = read_shape(fields, grouped=False)
    hidden, bias = shape.hidden, fields.flag("enable_bias")
    width = fields.count("word_embed_proj_dim", hidden)
    affine = fields.flag("layer_norm_elementwise_affine")
    last = fields.flag("do_layer_norm_before") and not fields.flag("_remove_final_layer_norm")
    stem = "model.decoder"
    matrices = ("q_proj", "k_proj", "v_proj", "out_proj")
    block = (
        *attention(shape, [f"self_attn.{name}" for name in matrices], bias=bias, out_bias=bias),
        *feed_forward(hidden, shape.ffn, ("fc1",), "fc2", bias=bias),
        *(norms(shape, "self_attn_layer_norm", "final_layer_norm", bias=True) if affine else ()),
    )
    narrow = (
        *linear(f"{stem}.project_out", hidden, width, "embedding"),
        *linear(f"{stem}.project_in", width, hidden, "embedding"),
    )
    # Two more rows than positions: OPT comes from fairseq, whose positions start at 2.
    positions = fields.count("max_position_embeddings") + 2
    tensors = (
        *embedding(f"{stem}.embed_tokens", shape.vocabulary, width),
        *embedding(f"{stem}.embed_positions", positions, hidden, "none"),
        *(narrow if width != hidden else ()),
        *(norms(shape, f"{stem}.final_layer_norm", bias=True) if last and affine else ()),
        *in_layers(f"{stem}.layers", range(shape.layers), block),
        *(() if shape.tied else linear("lm_head", width, shape.vocabulary, "head", "vocabulary")),
    )
    return make_model(fields, shape, tensors, head_width=width)


LAYERS = {
    "plain": _gpt2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "falcon": _falcon,
    "phi": _phi,
}
BUILDS = {"opt": _opt}
