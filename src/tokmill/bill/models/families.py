"""Families of models: what a configuration makes of tensors, as Hugging Face transformers 5.23.

First decoders of Llama's kind and DeepSeek: how each family differs from Llama. Then GPT-2, the
decoders of its time, and BERT: biases, LayerNorm, a feed-forward layer without gate; encoders are
BERT, RoBERTa, XLM-R and CamemBERT, with learned positions and token types. Last T5, FLAN-T5 and
mT5: an encoder, and a decoder with cross-attention.

families.json holds, of each family, the names of its tensors, the defaults of its configuration
class, other names of keys, and its style where it differs from Llama's. Baichuan, ChatGLM and
MiniMind are as in the code of their authors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.bill.models.decoder import PRE_NORMS, Layer, decoder, with_experts
from tokmill.bill.models.family import (
    WITH_FFN,
    Family,
    Fields,
    Part,
    Shape,
    attention,
    embedding,
    feed_forward,
    head,
    in_layers,
    linear,
    norms,
    read_shape,
    vector,
)
from tokmill.bill.models.model import XIELU, Attention, Experts, Model, Style, Tensor
from tokmill.bill.models.stack import KEPT, stack

HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
NEXT_TOKENS = "layers of multi-token prediction, which transformers does not load"
FLOAT_BYTES = 4


def _usual(f: Fields, shape: Shape | None = None) -> Layer:
    """Return Llama's layer, with the biases that the configuration asks for."""
    bias = f.flag("attention_bias")
    return Layer(
        shape=shape or read_shape(f), qkv_bias=bias, out_bias=bias, mlp_bias=f.flag("mlp_bias")
    )


def _all_experts(f: Fields) -> Layer:
    """Return the layer of a model whose feed-forward layers are all of experts."""
    layer = _usual(f, read_shape(f, ffn=f.count("moe_intermediate_size")))
    return with_experts(f, layer, range(layer.shape.layers))


def _qwen_moe(f: Fields) -> Layer:
    """Return Qwen's layer with experts; version 2 has a shared expert with a gate."""
    ffn = f.size("intermediate_size") or f.count("moe_intermediate_size")
    layer, step = _usual(f, read_shape(f, ffn=ffn)), f.count("decoder_sparse_step", 1)
    s, dense = layer.shape, f.items("mlp_only_layers", int) or []
    shared = f.size("shared_expert_intermediate_size")
    return with_experts(
        f,
        layer,
        [i for i in range(s.layers) if i not in dense and (i + 1) % step == 0],
        shared=shared,
        shared_name="mlp.shared_expert",
        extra=linear("mlp.shared_expert_gate", s.hidden, 1, "mlp") if shared else (),
    )


def _gpt_oss(f: Fields) -> Layer:
    """Return gpt-oss's layer: attention sinks, and experts and router with biases.

    Matrices of experts are stored as (input, output).
    """
    layer, name = _all_experts(f), "mlp.experts"
    hidden, ffn, count = layer.shape.hidden, layer.shape.ffn, f.count("num_experts")
    up, down = (count, hidden, 2 * ffn), (count, ffn, hidden)
    tensors = (
        *linear("mlp.router", hidden, count, "router", bias=True),
        Tensor(f"{name}.gate_up_proj", up, "experts", "experts", "columns", hidden, 2 * ffn),
        Tensor(f"{name}.gate_up_proj_bias", (count, 2 * ffn), "experts", "experts", "columns"),
        Tensor(f"{name}.down_proj", down, "experts", "experts", "rows", ffn, hidden),
        Tensor(f"{name}.down_proj_bias", (count, hidden), "experts", "experts"),
    )
    sinks = vector("self_attn.sinks", layer.shape.heads, "attention", "columns")
    return replace(layer, extra=sinks, expert_tensors=tensors)


def _granitemoe(f: Fields) -> Layer:
    layer = _usual(f, read_shape(f, ffn=f.count("moe_intermediate_size")))
    block = "block_sparse_moe"
    return with_experts(
        f, layer, range(layer.shape.layers), name=f"{block}.experts", router=f"{block}.router"
    )


def _seed_oss(f: Fields) -> Layer:
    return replace(_usual(f), out_bias=f.flag("attention_out_bias"))


def _with_late_experts(f: Fields, layer: Layer) -> Layer:
    """Return a layer with experts of DeepSeek's kind: shared ones too, none in the first layers."""
    first, step = f.size("first_k_dense_replace"), f.count("moe_layer_freq", 1)
    mixed = [i for i in range(layer.shape.layers) if i >= first and i % step == 0]
    shared = f.size("n_shared_experts") * f.count("moe_intermediate_size")
    unloaded = (NEXT_TOKENS,) if f.size("num_nextn_predict_layers") else ()
    layer = replace(layer, leaves_out=(*layer.leaves_out, *unloaded))
    return with_experts(f, layer, mixed, shared=shared)


def _glm4_moe(f: Fields) -> Layer:
    norms = HEAD_NORMS if f.flag("use_qk_norm") else ()
    return _with_late_experts(f, replace(_usual(f), head_norms=norms))


def _all_biased(f: Fields) -> Layer:
    layer = _usual(f)
    return replace(layer, mlp_bias=layer.qkv_bias)


def _ernie_moe(f: Fields) -> Layer:
    """Return ERNIE 4.5's layer: experts from a first to a last layer."""
    s, step = read_shape(f), f.count("moe_layer_interval", 1)
    first, last = f.size("moe_layer_start_index"), f.values.get("moe_layer_end_index", -1)
    last = s.layers - 1 if last in (-1, None) else f.size("moe_layer_end_index")
    shared = f.size("moe_num_shared_experts") * f.count("moe_intermediate_size")
    bias = "mlp.gate.moe_statics.e_score_correction_bias"
    return with_experts(
        f,
        Layer(shape=s),
        [i for i in range(first, min(last + 1, s.layers)) if (i + 1) % step == 0],
        shared=shared,
        extra=(Tensor(bias, (1, f.count("num_experts")), "router", "vector"),),
    )


def _apertus(f: Fields) -> Layer:
    """Return Apertus' layer, whose activation has two parameters."""
    if f.text("hidden_act") != "xielu":
        return _usual(f)
    learned = ("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n")
    extra = tuple(tensor for name in learned for tensor in vector(name, 1, "mlp"))
    return replace(_usual(f), extra=extra, leaves_out=(XIELU,))


def _stablelm(f: Fields) -> Layer:
    parallel = f.flag("use_parallel_residual")
    before = PRE_NORMS[:1] if parallel else PRE_NORMS
    return replace(_usual(f), before=before, style={"one_norm": parallel})


def _baichuan(f: Fields) -> Layer:
    # 7B has rotary positions, 13B has ALiBi biases of scores: neither has parameters.
    out = ("tables of positions or of ALiBi biases that Baichuan's own code keeps",)
    return Layer(shape=read_shape(f, grouped=False), leaves_out=out)


def _chatglm(f: Fields) -> Layer:
    """Return the layer of ChatGLM2, ChatGLM3 and GLM-4 (9B)."""
    groups = f.count("num_attention_heads")
    groups = f.count("num_key_value_heads", 1) if f.flag("multi_query_attention") else groups
    bias = f.flag("add_bias_linear")
    return Layer(
        shape=read_shape(f, kv_heads=groups),
        qkv_bias=bias or f.flag("add_qkv_bias"),
        out_bias=bias,
        mlp_bias=bias,
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
    return with_experts(f, layer, range(s.layers), shared=f.size("n_shared_experts") * s.ffn)


def _each_but(period: int) -> Callable[[Fields, int], bool]:
    """Return the rule that each `period`-th layer has no window, by configuration or default."""
    return lambda f, i: (i + 1) % f.count("sliding_window_pattern", period) > 0


def _without_rotary(f: Fields, i: int) -> bool:
    """Return whether a layer of SmolLM3 has no rotary positions, but a window."""
    rotated = f.items("no_rope_layers", int)
    return not rotated[i] if rotated else (i + 1) % f.count("no_rope_layer_interval", 4) == 0


WINDOWS: Mapping[str, Callable[[Fields, int], bool]] = {
    **dict.fromkeys(
        ("mistral", "mixtral", "phi3", "starcoder2", "ministral", "ministral3", "qwen3_moe"),
        lambda f, i: True,
    ),
    **dict.fromkeys(("qwen2", "qwen3"), lambda f, i: i >= f.size("max_window_layers")),
    "qwen2_moe": lambda f, i: i % 2 == 0 and i < f.size("max_window_layers"),
    "gemma2": _each_but(2),
    "gpt_oss": _each_but(2),
    "gemma3_text": _each_but(6),
    "olmo3": _each_but(4),
    "exaone4": _each_but(4),
    "smollm3": _without_rotary,
}
"""Whether a layer has a window, by family; the others have none."""


def windows(f: Fields, layers: int) -> tuple[int, ...]:
    """Return the window of each layer in tokens, 0 for none; () if no layer has one.

    Without the key layer_types, the rule of the family decides.

    Raises:
        UsageError: there is not one type per layer, or a type is unknown.
    """
    slides, window = WINDOWS.get(f.family.name), f.size("sliding_window")
    if slides is None or not window or not f.values.get("use_sliding_window", True):
        return ()
    names = ("full_attention", "sliding_attention")
    types = f.items("layer_types", str) or [names[slides(f, i)] for i in range(layers)]
    if len(types) != layers or set(types) - set(names):
        raise f.wrong("layer_types", f"{layers} of {' or '.join(names)}", types)
    of_layer = tuple(window if kind == names[1] else 0 for kind in types)
    return of_layer if any(of_layer) else ()


def _gpt2(f: Fields) -> Layer:
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    return Layer(shape=read_shape(f, grouped=False, ffn=ffn))


def _gpt_neox(f: Fields) -> Layer:
    bias = f.flag("attention_bias")
    return Layer(shape=read_shape(f, grouped=False), qkv_bias=bias, out_bias=bias)


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
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm")
    return Layer(
        shape=read_shape(f),
        head_norms=names if f.flag("qk_layernorm") else (),
        style={"one_norm": True},
    )


def _opt(f: Fields) -> Layer:
    """Return OPT's layer; the embedding may be narrower than the layers (350M)."""
    s, bias, stem = read_shape(f, grouped=False), f.flag("enable_bias"), "model.decoder"
    width = f.count("word_embed_proj_dim", s.hidden)
    affine = f.flag("layer_norm_elementwise_affine")
    last = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")
    narrow = (
        *linear(f"{stem}.project_out", s.hidden, width, "embedding"),
        *linear(f"{stem}.project_in", width, s.hidden, "embedding"),
    )
    return Layer(
        shape=s,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        before=("self_attn_layer_norm", "final_layer_norm") if affine else (),
        last=f"{stem}.final_layer_norm" if last and affine else "",
        # Two more rows than positions: OPT comes from fairseq, whose positions start at 2.
        n_positions=f.count("max_position_embeddings") + 2,
        embed_width=width,
        outside=narrow if width != s.hidden else (),
    )


def _bert(f: Fields) -> Layer:
    return _encoder(f, "bert", "cls.predictions", "transform.dense", "transform.LayerNorm")


def _roberta(f: Fields) -> Layer:
    return _encoder(f, "roberta", "lm_head", "dense", "layer_norm")


def _encoder(f: Fields, name: str, head: str, dense: str, norm: str) -> Layer:
    """Return BERT's layer, with a matrix and a norm before the head of a language model.

    An untied head has two biases.
    """
    s, embed = read_shape(f, grouped=False), f"{name}.embeddings"
    types = f.count("type_vocab_size")
    before_head = (
        *vector(f"{head}.bias", s.vocabulary, "head", "vocabulary"),
        *linear(f"{head}.{dense}", s.hidden, s.hidden, "mlp", bias=True),
        *norms(s, f"{head}.{norm}", bias=True),
    )
    return Layer(
        shape=s,
        embed=f"{embed}.word_embeddings",
        positions=f"{embed}.position_embeddings",
        embedding_norm=f"{embed}.LayerNorm",
        layers=f"{name}.encoder.layer",
        head=f"{head}.decoder",
        head_bias=not s.tied,
        outside=(
            *embedding(f"{embed}.token_type_embeddings", types, s.hidden, "none"),
            *(() if f.task else before_head),
        ),
        encoder_layers=s.layers,
    )


ENCODER_TASKS = ("EncoderModel", "ForTokenClassification")
SAME_LENGTH = "sources and targets of different lengths: both are counted as one sequence each"


def _t5(f: Fields) -> Layer:
    """Return an encoder and a decoder, or the encoder alone."""
    s = read_shape(f, kv_heads=f.count("num_attention_heads"))
    gate, _, activation = f.text("feed_forward_proj").rpartition("-")
    gated, wide = bool(gate), "DenseReluDense.wi"
    up = (f"{wide}_0", f"{wide}_1") if gated else (wide,)
    n_encoder, alone = s.layers, f.task in ENCODER_TASKS
    n_decoder = 0 if alone else f.count("num_decoder_layers", n_encoder)
    # `scale_decoder_outputs` false: the head of this model is not the embedding.
    tied = s.tied and f.values.get("scale_decoder_outputs") is not False
    s = replace(s, layers=n_encoder + n_decoder, tied=tied)
    tensors = (
        *embedding("shared", s.vocabulary, s.hidden),
        *_stack(f, s, "encoder", range(n_encoder), up),
        *(() if alone else _stack(f, s, "decoder", range(n_encoder, s.layers), up)),
        *head(s),
    )
    return Layer(
        shape=s,
        tensors=tensors,
        up=up,
        gated=gated,
        activation="gelu_new" if gated and activation == "gelu" else activation,
        encoder_layers=n_encoder,
        leaves_out=() if alone else (SAME_LENGTH,),
    )


def _stack(f: Fields, s: Shape, name: str, layers: range, up: tuple[str, ...]) -> Part:
    """Return the tensors of the encoder or the decoder, with the norm after its layers."""
    kinds = ("SelfAttention", *(("EncDecAttention",) if name == "decoder" else ()))
    parts = [attention(s, [f"{kind}.{x}" for x in "qkv"], f"{kind}.o") for kind in kinds]
    wide = feed_forward(s.hidden, s.ffn, up, "DenseReluDense.wo")
    block = tuple(
        replace(tensor, name=f"layer.{i}.{tensor.name}")
        for i, part in enumerate((*parts, wide))
        for tensor in (*part, *norms(s, "layer_norm"))
    )
    bias = Tensor(
        "layer.0.SelfAttention.relative_attention_bias.weight",
        (f.count("relative_attention_num_buckets", 32), s.heads),
        "attention",
        "embedding",
    )
    return (
        *in_layers(f"{name}.block", layers, block),
        *in_layers(f"{name}.block", layers[:1], (bias,)),
        *norms(s, f"{name}.final_layer_norm"),
    )


_LAYERS: Mapping[str, Callable[[Fields], Layer]] = {
    "plain": _gpt2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "falcon": _falcon,
    "phi": _phi,
    "opt": _opt,
    "bert": _bert,
    "roberta": _roberta,
    **dict.fromkeys(
        (
            "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2",
            "olmo3", "smollm3", "granite", "glm", "glm4", "ministral", "ministral3", "exaone4",
        ),
        _usual,
    ),
    **dict.fromkeys(("mixtral", "olmoe", "minimax_m2"), _all_experts),
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
    "gpt_oss": _gpt_oss,
    "granitemoe": _granitemoe,
    "seed_oss": _seed_oss,
    "glm4_moe": _glm4_moe,
    "ernie4_5": _all_biased,
    "ernie4_5_moe": _ernie_moe,
    "apertus": _apertus,
    "starcoder2": _all_biased,
    "stablelm": _stablelm,
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "minimind": _minimind,
    "t5": _t5,
    "mt5": _t5,
}  # fmt: skip
"""How each family's configuration is read."""


def _of_parts(f: Fields, row: Mapping[str, Any]) -> Layer:
    """Return the layers of a family that its row describes by their parts."""
    shape, inside, outside, blocks = stack(f, row)
    mixed = [block for block in blocks if block.kind == "experts"]
    latent = next((block.sizes for block in blocks if block.kind == "latent"), None)
    experts = None
    if mixed:
        count, active, width, shared = (int(mixed[0].sizes[x]) for x in KEPT["experts"])
        layers = tuple(sorted(layer for block in mixed for layer in block.layers))
        experts = Experts(count, active, width, shared, layers)
    attention = None
    if latent:
        order = ("a", "k", "h", "r_kv", "r_q", "r_rope", "h_nope", "h_v")
        attention = Attention(*(int(latent[x]) for x in order))
    return Layer(
        shape=shape,
        inside=inside,
        outside=outside,
        blocks=blocks,
        experts=experts,
        attention=attention,
        leaves_out=tuple(text for key, text in row.get("leaves_out", {}).items() if f.size(key)),
    )


ROWS: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("families.json").read_text(encoding="utf-8")
)
OTHERS = {other: name for name, row in ROWS.items() for other in row.get("also", ())}
"""Other model_types of families: of a model around the text model."""


def _families() -> dict[str, Family]:
    """Return the families of families.json by name, with the functions that build them."""
    return {
        name: Family(
            name=name,
            build=_build_of(name, row),
            style=Style(**_with_tuples(row.get("style", {}))),
            defaults=row["defaults"],
            needed=tuple(row.get("needed", WITH_FFN)),
            names=row.get("names", {}),
            implied=row.get("implied", {}),
            other=("add_cross_attention", *row.get("other", ())),
            dense=row.get("dense", {}),
        )
        for name, row in ROWS.items()
    }


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row; JSON has lists for tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _build_of(name: str, row: Mapping[str, Any]) -> Callable[[Fields], Model]:
    """Return the function that builds a model: its layer as read, with what its row says."""
    constant = _with_tuples(row.get("layer", {}))

    def build(f: Fields) -> Model:
        if "parts" in row:
            return decoder(f, replace(_of_parts(f, row), **constant))
        layer = replace(_LAYERS[name](f), **constant)
        return decoder(f, replace(layer, windows=windows(f, layer.shape.layers)))

    return build


KNOWN = _families()
"""The families by name: a model_type of transformers, or of the code of the model's authors."""
