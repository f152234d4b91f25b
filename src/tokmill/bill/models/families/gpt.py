"""GPT-2, the decoders of its time, and BERT: biases, LayerNorm, a feed-forward layer without gate.

Encoders are BERT, RoBERTa, XLM-R and CamemBERT, with learned positions and token types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokmill.bill.models.decoder import PRE_NORMS, Layer
from tokmill.bill.models.family import Fields, read_shape
from tokmill.bill.models.tensors import embedding, linear, norms, vector


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


LAYERS: Mapping[str, Callable[[Fields], Layer]] = {
    "plain": _gpt2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "falcon": _falcon,
    "phi": _phi,
    "opt": _opt,
    "bert": _bert,
    "roberta": _roberta,
}
