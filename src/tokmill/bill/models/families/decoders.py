"""Decoders of Llama's kind: how each family differs from Llama.

Names and defaults are those of Hugging Face transformers 5.23; Baichuan, ChatGLM and MiniMind are
as in the code of their authors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from tokmill.bill.models.decoder import PRE_NORMS, Layer, Mixture, mixture
from tokmill.bill.models.family import (
    FLOAT_BYTES,
    Fields,
    Shape,
    all_windows,
    late_windows,
    layer_types,
    read_shape,
    rotary_bytes,
    typed_windows,
)
from tokmill.bill.models.model import XIELU, Tensor
from tokmill.bill.models.tensors import Part, linear, vector

HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
NEXT_TOKENS = "layers of multi-token prediction, which transformers does not load"


def _biased(fields: Fields, shape: Shape | None = None) -> Layer:
    """Return Llama's layer, whose attention has biases if the configuration says so."""
    bias = fields.flag("attention_bias")
    return Layer(shape=shape or read_shape(fields), qkv_bias=bias, out_bias=bias)


def _llama(fields: Fields) -> Layer:
    return replace(_biased(fields), mlp_bias=fields.flag("mlp_bias"))


def _mistral(fields: Fields) -> Layer:
    shape = read_shape(fields)
    return Layer(shape=shape, windows=all_windows(fields, shape.layers))


def _expert_shape(fields: Fields) -> Shape:
    """Return the shape of a model whose feed-forward layers are all of experts."""
    return read_shape(fields, ffn=fields.count("moe_intermediate_size"))


def _mixtral(fields: Fields) -> Layer:
    shape = _expert_shape(fields)
    return Layer(
        shape=shape,
        mixture=mixture(fields, tuple(range(shape.layers))),
        windows=all_windows(fields, shape.layers),
    )


def _qwen2(fields: Fields) -> Layer:
    shape = read_shape(fields)
    return Layer(shape=shape, windows=late_windows(fields, shape.layers))


def _qwen3(fields: Fields) -> Layer:
    layer = _biased(fields)
    return replace(layer, windows=late_windows(fields, layer.shape.layers))


def _qwen_shape(fields: Fields) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape and the layers with experts: each `decoder_sparse_step`-th, less some."""
    shape = read_shape(
        fields, ffn=fields.size("intermediate_size") or fields.count("moe_intermediate_size")
    )
    step, dense = fields.count("decoder_sparse_step", 1), fields.items("mlp_only_layers", int) or []
    return shape, tuple(i for i in range(shape.layers) if i not in dense and (i + 1) % step == 0)


def _qwen2_moe(fields: Fields) -> Layer:
    """Return Qwen2-MoE's layer: a shared expert with a gate."""
    shape, mixed = _qwen_shape(fields)
    first = fields.size("max_window_layers")
    windows = typed_windows(fields, shape.layers, lambda layer: layer % 2 == 0 and layer < first)
    return Layer(
        shape=shape,
        qkv_bias=fields.flag("qkv_bias"),
        mixture=mixture(
            fields,
            mixed,
            shared=fields.count("shared_expert_intermediate_size"),
            shared_name="mlp.shared_expert",
            extra=linear("mlp.shared_expert_gate", shape.hidden, 1, "mlp"),
        ),
        windows=windows if fields.flag("use_sliding_window") else (),
    )


def _qwen3_moe(fields: Fields) -> Layer:
    shape, mixed = _qwen_shape(fields)
    return replace(
        _biased(fields, shape),
        mixture=mixture(fields, mixed),
        windows=all_windows(fields, shape.layers) if fields.flag("use_sliding_window") else (),
    )


def _gemma(fields: Fields) -> Layer:
    layer = _biased(fields)
    buffers = rotary_bytes(fields, layer.shape.head_dim) + FLOAT_BYTES  # and the embedding's scale
    return replace(layer, buffer_bytes=buffers)


def _gemma2(fields: Fields) -> Layer:
    layer = _gemma(fields)
    windows = typed_windows(fields, layer.shape.layers, lambda i: i % 2 == 0)
    return replace(layer, windows=windows)


def _slides(fields: Fields, period: int) -> Callable[[int], bool]:
    """Return the rule that each `period`-th layer has no window, by configuration or default."""
    return lambda layer: (layer + 1) % fields.count("sliding_window_pattern", period) > 0


def _gemma3(fields: Fields) -> Layer:
    """Return Gemma 3's layer: rotary positions by kind of layer."""
    layer, rule = _gemma(fields), _slides(fields, 6)
    shape = layer.shape
    kinds = len(set(layer_types(fields, shape.layers, rule)))
    return replace(
        layer,
        windows=typed_windows(fields, shape.layers, rule),
        buffer_bytes=kinds * rotary_bytes(fields, shape.head_dim) + FLOAT_BYTES,
    )


def _olmo3(fields: Fields) -> Layer:
    layer = _biased(fields)
    shape = layer.shape
    kinds = len(set(layer_types(fields, shape.layers, _slides(fields, 4))))
    windows = typed_windows(fields, shape.layers, _slides(fields, 4))
    return replace(
        layer, windows=windows, buffer_bytes=kinds * rotary_bytes(fields, shape.head_dim)
    )


def _olmoe(fields: Fields) -> Layer:
    layer = _biased(fields, _expert_shape(fields))
    mixed = mixture(fields, tuple(range(layer.shape.layers)))
    return replace(layer, mixture=mixed)


def _gpt_oss(fields: Fields) -> Layer:
    """Return gpt-oss's layer: attention sinks, experts and router with biases."""
    shape = _expert_shape(fields)
    mixed = mixture(fields, tuple(range(shape.layers)))
    choosing = (
        *linear("mlp.router", shape.hidden, mixed.experts.count, "router", bias=True),
        *_biased_experts(shape.hidden, mixed.experts.ffn, mixed.experts.count),
    )
    return replace(
        _biased(fields, shape),
        extra=vector("self_attn.sinks", shape.heads, "attention", "columns"),
        mixture=Mixture(experts=mixed.experts, tensors=choosing),
        windows=typed_windows(fields, shape.layers, lambda layer: layer % 2 == 0),
    )


def _biased_experts(hidden: int, ffn: int, count: int) -> Part:
    """Return experts whose matrices are stored as (input, output), with biases."""
    up, down, name = (count, hidden, 2 * ffn), (count, ffn, hidden), "mlp.experts"
    return (
        Tensor(f"{name}.gate_up_proj", up, "experts", "experts", "columns", hidden, 2 * ffn),
        Tensor(f"{name}.gate_up_proj_bias", (count, 2 * ffn), "experts", "experts", "columns"),
        Tensor(f"{name}.down_proj", down, "experts", "experts", "rows", ffn, hidden),
        Tensor(f"{name}.down_proj_bias", (count, hidden), "experts", "experts"),
    )


def _smollm3(fields: Fields) -> Layer:
    """Return SmolLM3's layer: windows where there are no rotary positions."""
    layer, step = _llama(fields), fields.count("no_rope_layer_interval", 4)
    turned = fields.items("no_rope_layers", int)

    def rule(i: int) -> bool:  # layers without rotary positions have the window
        return turned[i : i + 1] == [0] if turned else (i + 1) % step == 0

    windows = typed_windows(fields, layer.shape.layers, rule)
    return replace(layer, windows=windows if fields.flag("use_sliding_window") else ())


def _seed_oss(fields: Fields) -> Layer:
    return replace(_llama(fields), out_bias=fields.flag("attention_out_bias"))


def _glm(fields: Fields) -> Layer:
    shape = read_shape(fields)
    rotary = rotary_bytes(fields, shape.head_dim, 0.5)
    return Layer(shape=shape, qkv_bias=fields.flag("attention_bias"), buffer_bytes=rotary)


def late_experts(fields: Fields, layers: int, *, router_buffer: bool) -> Mixture:
    """Return the experts of DeepSeek's kind: also shared ones, and none in the first layers."""
    first, step = fields.size("first_k_dense_replace"), fields.count("moe_layer_freq", 1)
    mixed = tuple(i for i in range(layers) if i >= first and i % step == 0)
    shared = fields.size("n_shared_experts") * fields.count("moe_intermediate_size")
    return mixture(fields, mixed, shared=shared, router_buffer=router_buffer)


def next_tokens(fields: Fields) -> tuple[str, ...]:
    """Return what is left out of a model that has layers of multi-token prediction."""
    return (NEXT_TOKENS,) if fields.size("num_nextn_predict_layers") else ()


def _glm4_moe(fields: Fields) -> Layer:
    """Return the layer of GLM-4.5: half of a head is rotated."""
    shape = read_shape(fields)
    return Layer(
        shape=shape,
        qkv_bias=fields.flag("attention_bias"),
        head_norms=HEAD_NORMS if fields.flag("use_qk_norm") else (),
        mixture=late_experts(fields, shape.layers, router_buffer=True),
        buffer_bytes=rotary_bytes(fields, shape.head_dim, 0.5),
        leaves_out=next_tokens(fields),
    )


def _all_biased(fields: Fields) -> Layer:
    shape, bias = read_shape(fields), fields.flag("use_bias")
    windows = all_windows(fields, shape.layers)  # of StarCoder 2; ERNIE has none
    return Layer(shape=shape, qkv_bias=bias, out_bias=bias, mlp_bias=bias, windows=windows)


def _ernie_moe(fields: Fields) -> Layer:
    """Return ERNIE 4.5's layer: experts from a first to a last layer."""
    shape, step = read_shape(fields), fields.count("moe_layer_interval", 1)
    first, last = fields.size("moe_layer_start_index"), fields.values.get("moe_layer_end_index", -1)
    last = shape.layers - 1 if last in (-1, None) else fields.size("moe_layer_end_index")
    mixed = tuple(i for i in range(first, min(last + 1, shape.layers)) if (i + 1) % step == 0)
    shared = fields.size("moe_num_shared_experts") * fields.count("moe_intermediate_size")
    choice = Tensor(
        "mlp.gate.moe_statics.e_score_correction_bias", (1, fields.count("num_experts")), "router",
        "vector",
    )  # fmt: skip
    return Layer(shape=shape, mixture=mixture(fields, mixed, shared=shared, extra=(choice,)))


def _minimax_m2(fields: Fields) -> Layer:
    shape = _expert_shape(fields)
    mixed = mixture(fields, tuple(range(shape.layers)), router_buffer=True)
    return Layer(shape=shape, mixture=mixed)


def _granitemoe(fields: Fields) -> Layer:
    shape = _expert_shape(fields)
    names = ("block_sparse_moe.experts", "block_sparse_moe.router")
    mixed = mixture(fields, tuple(range(shape.layers)), name=names[0], router=names[1])
    return replace(_biased(fields, shape), mixture=mixed)


def _ministral(fields: Fields) -> Layer:
    shape = read_shape(fields)
    return Layer(shape=shape, windows=typed_windows(fields, shape.layers, lambda _: True))


def _exaone4(fields: Fields) -> Layer:
    shape = read_shape(fields)
    windows = (
        typed_windows(fields, shape.layers, _slides(fields, 4))
        if fields.size("sliding_window")
        else ()
    )
    return Layer(shape=shape, windows=windows)


def _apertus(fields: Fields) -> Layer:
    """Return Apertus' layer, whose activation has two parameters."""
    layer = _biased(fields)
    if fields.text("hidden_act") != "xielu":
        return layer
    layer = replace(layer, leaves_out=(XIELU,))
    learned = ("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n")
    shape = layer.shape  # two numbers of each layer are no parameters
    buffers = rotary_bytes(fields, shape.head_dim) + 2 * FLOAT_BYTES * shape.layers
    extra = tuple(tensor for name in learned for tensor in vector(name, 1, "mlp"))
    return replace(layer, extra=extra, buffer_bytes=buffers)


def _stablelm(fields: Fields) -> Layer:
    """Return StableLM's layer: a quarter of a head is rotated."""
    shape, parallel = read_shape(fields), fields.flag("use_parallel_residual")
    return Layer(
        shape=shape,
        qkv_bias=fields.flag("use_qkv_bias"),
        before=PRE_NORMS[:1] if parallel else PRE_NORMS,
        buffer_bytes=rotary_bytes(fields, shape.head_dim, 0.25),
        style={"one_norm": parallel},
    )


def _baichuan(fields: Fields) -> Layer:
    # 7B has rotary positions, 13B has ALiBi biases of scores: neither has parameters.
    out = ("tables of positions or of ALiBi biases that Baichuan's own code keeps",)
    return Layer(shape=read_shape(fields, grouped=False), leaves_out=out)


def _chatglm(fields: Fields) -> Layer:
    """Return the layer of ChatGLM2, ChatGLM3 and GLM-4 (9B)."""
    groups = fields.count("num_attention_heads")
    groups = (
        fields.count("num_key_value_heads", 1) if fields.flag("multi_query_attention") else groups
    )
    shape, bias = read_shape(fields, kv_heads=groups), fields.flag("add_bias_linear")
    return Layer(
        shape=shape,
        qkv_bias=bias or fields.flag("add_qkv_bias"),
        out_bias=bias,
        mlp_bias=bias,
        # Half of a head is rotated: one value per pair of features.
        buffer_bytes=FLOAT_BYTES * (shape.head_dim // 4),
    )


def _minimind(fields: Fields) -> Layer:
    """Return MiniMind's layer, in versions 2 and 3."""
    # Since version 3 (num_experts), queries and keys have norms and the feed-forward width is
    # pi d; before (n_routed_experts), 8 / 3 d. The width is rounded up to a multiple of 64.
    hidden, is_version_2 = fields.count("hidden_size"), fields.size("n_routed_experts") > 0
    width = math.floor(hidden * 8 / 3) if is_version_2 else math.ceil(hidden * math.pi)
    shape = read_shape(fields, ffn=fields.size("intermediate_size") or 64 * -(-width // 64))
    layer = Layer(
        shape=shape,
        head_norms=() if is_version_2 else HEAD_NORMS,
        # Cosine and sine of all positions, a head wide.
        buffer_bytes=2 * FLOAT_BYTES * fields.count("max_position_embeddings") * shape.head_dim,
    )
    if not fields.flag("use_moe"):
        return layer
    shared = fields.size("n_shared_experts") * shape.ffn
    return replace(
        layer, mixture=mixture(fields, tuple(range(shape.layers)), shared=shared, ffn=shape.ffn)
    )


LAYERS: Mapping[str, Callable[[Fields], Layer]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _mistral,
    "olmo2": _biased,
    "olmo3": _olmo3,
    "olmoe": _olmoe,
    "gpt_oss": _gpt_oss,
    "smollm3": _smollm3,
    "granite": _llama,
    "granitemoe": _granitemoe,
    "seed_oss": _seed_oss,
    "glm": _glm,
    "glm4": _glm,
    "glm4_moe": _glm4_moe,
    "ernie4_5": _all_biased,
    "ernie4_5_moe": _ernie_moe,
    "minimax_m2": _minimax_m2,
    "ministral": _ministral,
    "ministral3": _mistral,
    "exaone4": _exaone4,
    "apertus": _apertus,
    "starcoder2": _all_biased,
    "stablelm": _stablelm,
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "minimind": _minimind,
}
"""How each family's configuration is read."""
