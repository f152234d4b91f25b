"""Families of models: what a configuration makes of tensors, as Hugging Face transformers 5.23.

families.json has a row for each family: the names of its tensors, the defaults of its configuration
class, other names of keys, its style and what it reads where they differ from Llama's (`_read`,
`windows`), or the parts of its layers (`stack`). Only MiniMind's widths, Falcon's heads and norms,
OPT's narrow embedding, BERT's head and T5's two stacks are functions. Baichuan, ChatGLM and
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
from tokmill.bill.models.model import Attention, Experts, Model, Style, Tensor
from tokmill.bill.models.stack import (
    COMMON,
    KEPT,
    Sizes,
    first_that_applies,
    is_asked,
    layers_with,
    stack,
    tags_of,
    tensors_of,
)

HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
FLOAT_BYTES = 4


USUAL_BIASES = {"qkv": ["attention_bias"], "out": ["attention_bias"], "mlp": ["mlp_bias"]}
"""Keys of which one asks for the biases of a part of Llama's layer."""


def _read(f: Fields, row: Mapping[str, Any]) -> Layer:
    """Return Llama's layer with what the row of a family reads in another way.

    `sizes` are other sizes than `stack.COMMON`, `biases` the keys that ask for them, `extra` more
    tensors, `cases` what differs if a key says so, `experts` the layers that have them
    (`stack.tags_of`) and their names, or `tensors` instead of the usual ones.
    """
    read: Mapping[str, Any] = row.get("read", {})
    cases = [case for case in read.get("cases", ()) if is_asked(f, case["case"])]
    own: dict[str, str] = {}
    layer: dict[str, Any] = {}
    lines, leaves_out = [], []
    for part in (read, *cases):
        own |= part.get("sizes", {})
        layer |= part.get("layer", {})
        lines += part.get("extra", ())
        texts = part.get("leaves_out", {}).items()
        leaves_out += [text for key, text in texts if not key or f.size(key)]
    sizes = Sizes(f, own, Sizes(f, COMMON))
    shape = read_shape(
        f,
        grouped=read.get("grouped", True),
        ffn=sizes.whole("f") if "f" in own else 0,
        kv_heads=sizes.whole("k") if "k" in own else 0,
    )
    for part, keys in read.get("biases", USUAL_BIASES).items():
        asked = [f.flag(key) for key in keys]
        layer[f"{part}_bias"] = any(asked)
    found = Layer(
        shape=shape,
        extra=tensors_of(sizes, {"kind": "other", "tensors": lines}),
        leaves_out=tuple(leaves_out),
        **_with_tuples(layer),
    )
    return _with_experts_of(f, found, sizes, read["experts"]) if "experts" in read else found


def _with_experts_of(f: Fields, layer: Layer, sizes: Sizes, row: Mapping[str, Any]) -> Layer:
    """Return a layer with the experts that a row describes."""
    tags = tags_of(f, {"tags": row["tags"], "parts": [row]})
    shared = sizes.whole("f_shared") if "shared" in row else 0
    extra = tensors_of(sizes, {"kind": "experts", "tensors": row.get("extra", ())})
    names = {each: row[each] for each in ("name", "router") if each in row}
    found = with_experts(
        f,
        layer,
        layers_with(row, tags),
        shared=shared,
        shared_name=row.get("shared", ""),
        extra=extra,
        **names,
    )
    if "tensors" not in row:
        return found
    own = tensors_of(sizes, {"kind": "experts", "tensors": row["tensors"]})
    return replace(found, expert_tensors=own)


def _minimind(f: Fields, row: Mapping[str, Any]) -> Layer:
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


def windows(f: Fields, row: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Return the window of each layer in tokens, 0 for none; () if no layer has one.

    Without the key layer_types, the rules of the family's row decide.

    Raises:
        UsageError: there is not one type per layer, or a type is unknown.
    """
    rules, window = row.get("windows"), f.size("sliding_window")
    if rules is None or not window or not f.values.get("use_sliding_window", True):
        return ()
    names = {"full": "full_attention", "slide": "sliding_attention"}
    types = f.items("layer_types", str)
    if not types:
        types = [names[tag] for tag in first_that_applies(f, rules, layers)[0]]
    if len(types) != layers or set(types) - set(names.values()):
        raise f.wrong("layer_types", f"{layers} of {' or '.join(names.values())}", types)
    of_layer = tuple(window if kind == names["slide"] else 0 for kind in types)
    return of_layer if any(of_layer) else ()


def _falcon(f: Fields, row: Mapping[str, Any]) -> Layer:
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


def _opt(f: Fields, row: Mapping[str, Any]) -> Layer:
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


def _encoder(f: Fields, row: Mapping[str, Any]) -> Layer:
    """Return BERT's layer, with a matrix and a norm before the head of a language model.

    An untied head has two biases.
    """
    name, head, dense, norm = (row["read"][x] for x in ("encoder", "head", "dense", "norm"))
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


def _t5(f: Fields, row: Mapping[str, Any]) -> Layer:
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


_LAYERS: Mapping[str, Callable[[Fields, Mapping[str, Any]], Layer]] = {
    "falcon": _falcon,
    "opt": _opt,
    "bert": _encoder,
    "roberta": _encoder,
    "minimind": _minimind,
    "t5": _t5,
    "mt5": _t5,
}
"""Families whose layers a row cannot describe."""


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
        layer = replace(_LAYERS.get(name, _read)(f, row), **constant)
        return decoder(f, replace(layer, windows=windows(f, row, layer.shape.layers)))

    return build


KNOWN = _families()
"""The families by name: a model_type of transformers, or of the code of the model's authors."""
