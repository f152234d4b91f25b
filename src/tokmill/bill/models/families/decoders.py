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


def _biased(f: Fields, shape: Shape | None = None) -> Layer:
    """Return Llama's layer, whose attention has biases if the configuration says so."""
    bias = f.flag("attention_bias")
    return Layer(shape=shape or read_shape(f), qkv_bias=bias, out_bias=bias)


def _llama(f: Fields) -> Layer:
    return replace(_biased(f), mlp_bias=f.flag("mlp_bias"))


def _mistral(f: Fields) -> Layer:
    s = read_shape(f)
    return Layer(shape=s, windows=all_windows(f, s.layers))


def _expert_shape(f: Fields) -> Shape:
    """Return the shape of a model whose feed-forward layers are all of experts."""
    return read_shape(f, ffn=f.count("moe_intermediate_size"))


def _mixtral(f: Fields) -> Layer:
    s = _expert_shape(f)
    return Layer(
        shape=s, mixture=mixture(f, tuple(range(s.layers))), windows=all_windows(f, s.layers)
    )


def _qwen2(f: Fields) -> Layer:
    s = read_shape(f)
    return Layer(shape=s, windows=late_windows(f, s.layers))


def _qwen3(f: Fields) -> Layer:
    layer = _biased(f)
    return replace(layer, windows=late_windows(f, layer.shape.layers))


def _qwen_shape(f: Fields) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape and the layers with experts: each `decoder_sparse_step`-th, less some."""
    s = read_shape(f, ffn=f.size("intermediate_size") or f.count("moe_intermediate_size"))
    step, dense = f.count("decoder_sparse_step", 1), f.items("mlp_only_layers", int) or []
    return s, tuple(i for i in range(s.layers) if i not in dense and (i + 1) % step == 0)


def _qwen2_moe(f: Fields) -> Layer:
    """Return Qwen2-MoE's layer: a shared expert with a gate."""
    s, mixed = _qwen_shape(f)
    first = f.size("max_window_layers")
    windows = typed_windows(f, s.layers, lambda layer: layer % 2 == 0 and layer < first)
    return Layer(
        shape=s,
        qkv_bias=f.flag("qkv_bias"),
        mixture=mixture(
            f,
            mixed,
            shared=f.count("shared_expert_intermediate_size"),
            shared_name="mlp.shared_expert",
            extra=linear("mlp.shared_expert_gate", s.hidden, 1, "mlp"),
        ),
        windows=windows if f.flag("use_sliding_window") else (),
    )


def _qwen3_moe(f: Fields) -> Layer:
    s, mixed = _qwen_shape(f)
    return replace(
        _biased(f, s),
        mixture=mixture(f, mixed),
        windows=all_windows(f, s.layers) if f.flag("use_sliding_window") else (),
    )


def _gemma(f: Fields) -> Layer:
    layer = _biased(f)
    buffers = rotary_bytes(f, layer.shape.head_dim) + FLOAT_BYTES  # and the embedding's scale
    return replace(layer, buffer_bytes=buffers)


def _gemma2(f: Fields) -> Layer:
    layer = _gemma(f)
    windows = typed_windows(f, layer.shape.layers, lambda i: i % 2 == 0)
    return replace(layer, windows=windows)


def _slides(f: Fields, period: int) -> Callable[[int], bool]:
    """Return the rule that each `period`-th layer has no window, by configuration or default."""
    return lambda layer: (layer + 1) % f.count("sliding_window_pattern", period) > 0


def _gemma3(f: Fields) -> Layer:
    """Return Gemma 3's layer: rotary positions by kind of layer."""
    layer, rule = _gemma(f), _slides(f, 6)
    s = layer.shape
    kinds = len(set(layer_types(f, s.layers, rule)))
    return replace(
        layer,
        windows=typed_windows(f, s.layers, rule),
        buffer_bytes=kinds * rotary_bytes(f, s.head_dim) + FLOAT_BYTES,
    )


def _olmo3(f: Fields) -> Layer:
    layer = _biased(f)
    s = layer.shape
    kinds = len(set(layer_types(f, s.layers, _slides(f, 4))))
    windows = typed_windows(f, s.layers, _slides(f, 4))
    return replace(layer, windows=windows, buffer_bytes=kinds * rotary_bytes(f, s.head_dim))


def _olmoe(f: Fields) -> Layer:
    layer = _biased(f, _expert_shape(f))
    mixed = mixture(f, tuple(range(layer.shape.layers)))
    return replace(layer, mixture=mixed)


def _gpt_oss(f: Fields) -> Layer:
    """Return gpt-oss's layer: attention sinks, experts and router with biases."""
    s = _expert_shape(f)
    mixed = mixture(f, tuple(range(s.layers)))
    choosing = (
        *linear("mlp.router", s.hidden, mixed.experts.count, "router", bias=True),
        *_biased_experts(s.hidden, mixed.experts.ffn, mixed.experts.count),
    )
    return replace(
        _biased(f, s),
        extra=vector("self_attn.sinks", s.heads, "attention", "columns"),
        mixture=Mixture(experts=mixed.experts, tensors=choosing),
        windows=typed_windows(f, s.layers, lambda layer: layer % 2 == 0),
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


def _smollm3(f: Fields) -> Layer:
    """Return SmolLM3's layer: windows where there are no rotary positions."""
    layer, step = _llama(f), f.count("no_rope_layer_interval", 4)
    turned = f.items("no_rope_layers", int)

    def rule(i: int) -> bool:  # layers without rotary positions have the window
        return turned[i : i + 1] == [0] if turned else (i + 1) % step == 0

    windows = typed_windows(f, layer.shape.layers, rule)
    return replace(layer, windows=windows if f.flag("use_sliding_window") else ())


def _seed_oss(f: Fields) -> Layer:
    return replace(_llama(f), out_bias=f.flag("attention_out_bias"))


def _glm(f: Fields) -> Layer:
    s = read_shape(f)
    rotary = rotary_bytes(f, s.head_dim, 0.5)
    return Layer(shape=s, qkv_bias=f.flag("attention_bias"), buffer_bytes=rotary)


def late_experts(f: Fields, layers: int, *, router_buffer: bool) -> Mixture:
    """Return the experts of DeepSeek's kind: also shared ones, and none in the first layers."""
    first, step = f.size("first_k_dense_replace"), f.count("moe_layer_freq", 1)
    mixed = tuple(i for i in range(layers) if i >= first and i % step == 0)
    shared = f.size("n_shared_experts") * f.count("moe_intermediate_size")
    return mixture(f, mixed, shared=shared, router_buffer=router_buffer)


def next_tokens(f: Fields) -> tuple[str, ...]:
    """Return what is left out of a model that has layers of multi-token prediction."""
    return (NEXT_TOKENS,) if f.size("num_nextn_predict_layers") else ()


def _glm4_moe(f: Fields) -> Layer:
    """Return the layer of GLM-4.5: half of a head is rotated."""
    s = read_shape(f)
    return Layer(
        shape=s,
        qkv_bias=f.flag("attention_bias"),
        head_norms=HEAD_NORMS if f.flag("use_qk_norm") else (),
        mixture=late_experts(f, s.layers, router_buffer=True),
        buffer_bytes=rotary_bytes(f, s.head_dim, 0.5),
        leaves_out=next_tokens(f),
    )


def _all_biased(f: Fields) -> Layer:
    s, bias = read_shape(f), f.flag("use_bias")
    windows = all_windows(f, s.layers)  # of StarCoder 2; ERNIE has none
    return Layer(shape=s, qkv_bias=bias, out_bias=bias, mlp_bias=bias, windows=windows)


def _ernie_moe(f: Fields) -> Layer:
    """Return ERNIE 4.5's layer: experts from a first to a last layer."""
    s, step = read_shape(f), f.count("moe_layer_interval", 1)
    first, last = f.size("moe_layer_start_index"), f.values.get("moe_layer_end_index", -1)
    last = s.layers - 1 if last in (-1, None) else f.size("moe_layer_end_index")
    mixed = tuple(i for i in range(first, min(last + 1, s.layers)) if (i + 1) % step == 0)
    shared = f.size("moe_num_shared_experts") * f.count("moe_intermediate_size")
    choice = Tensor(
        "mlp.gate.moe_statics.e_score_correction_bias", (1, f.count("num_experts")), "router",
        "vector",
    )  # fmt: skip
    return Layer(shape=s, mixture=mixture(f, mixed, shared=shared, extra=(choice,)))


def _minimax_m2(f: Fields) -> Layer:
    s = _expert_shape(f)
    mixed = mixture(f, tuple(range(s.layers)), router_buffer=True)
    return Layer(shape=s, mixture=mixed)


def _granitemoe(f: Fields) -> Layer:
    s = _expert_shape(f)
    names = ("block_sparse_moe.experts", "block_sparse_moe.router")
    mixed = mixture(f, tuple(range(s.layers)), name=names[0], router=names[1])
    return replace(_biased(f, s), mixture=mixed)


def _ministral(f: Fields) -> Layer:
    s = read_shape(f)
    return Layer(shape=s, windows=typed_windows(f, s.layers, lambda _: True))


def _exaone4(f: Fields) -> Layer:
    s = read_shape(f)
    windows = typed_windows(f, s.layers, _slides(f, 4)) if f.size("sliding_window") else ()
    return Layer(shape=s, windows=windows)


def _apertus(f: Fields) -> Layer:
    """Return Apertus' layer, whose activation has two parameters."""
    layer = _biased(f)
    if f.text("hidden_act") != "xielu":
        return layer
    layer = replace(layer, leaves_out=(XIELU,))
    learned = ("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n")
    s = layer.shape  # two numbers of each layer are no parameters
    buffers = rotary_bytes(f, s.head_dim) + 2 * FLOAT_BYTES * s.layers
    extra = tuple(tensor for name in learned for tensor in vector(name, 1, "mlp"))
    return replace(layer, extra=extra, buffer_bytes=buffers)


def _stablelm(f: Fields) -> Layer:
    """Return StableLM's layer: a quarter of a head is rotated."""
    s, parallel = read_shape(f), f.flag("use_parallel_residual")
    return Layer(
        shape=s,
        qkv_bias=f.flag("use_qkv_bias"),
        before=PRE_NORMS[:1] if parallel else PRE_NORMS,
        buffer_bytes=rotary_bytes(f, s.head_dim, 0.25),
        style={"one_norm": parallel},
    )


def _baichuan(f: Fields) -> Layer:
    # 7B has rotary positions, 13B has ALiBi biases of scores: neither has parameters.
    out = ("tables of positions or of ALiBi biases that Baichuan's own code keeps",)
    return Layer(shape=read_shape(f, grouped=False), leaves_out=out)


def _chatglm(f: Fields) -> Layer:
    """Return the layer of ChatGLM2, ChatGLM3 and GLM-4 (9B)."""
    groups = f.count("num_attention_heads")
    groups = f.count("num_key_value_heads", 1) if f.flag("multi_query_attention") else groups
    s, bias = read_shape(f, kv_heads=groups), f.flag("add_bias_linear")
    return Layer(
        shape=s,
        qkv_bias=bias or f.flag("add_qkv_bias"),
        out_bias=bias,
        mlp_bias=bias,
        # Half of a head is rotated: one value per pair of features.
        buffer_bytes=FLOAT_BYTES * (s.head_dim // 4),
    )


def _minimind(f: Fields) -> Layer:
    """Return MiniMind's layer, in versions 2 and 3."""
    # Since version 3 (num_experts), queries and keys have norms and the feed-forward width is
    # pi d; before (n_routed_experts), 8 / 3 d. The width is rounded up to a multiple of 64.
    hidden, is_version_2 = f.count("hidden_size"), f.size("n_routed_experts") > 0
    width = math.floor(hidden * 8 / 3) if is_version_2 else math.ceil(hidden * math.pi)
    s = read_shape(f, ffn=f.size("intermediate_size") or 64 * -(-width // 64))
    layer = Layer(
        shape=s,
        head_norms=() if is_version_2 else HEAD_NORMS,
        # Cosine and sine of all positions, a head wide.
        buffer_bytes=2 * FLOAT_BYTES * f.count("max_position_embeddings") * s.head_dim,
    )
    if not f.flag("use_moe"):
        return layer
    shared = f.size("n_shared_experts") * s.ffn
    return replace(layer, mixture=mixture(f, tuple(range(s.layers)), shared=shared, ffn=s.ffn))


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
