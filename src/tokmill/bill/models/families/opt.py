"""OPT: GPT-2's layer with separate matrices of queries, keys and values."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import (
    LLAMA_QKV,
    attention,
    embedding,
    in_layers,
    linear,
    norms,
    plain_mlp,
)
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    d, bias = s.hidden, f.flag("enable_bias")
    width = f.count("word_embed_proj_dim", d)
    affine = f.flag("layer_norm_elementwise_affine")
    last = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")
    narrow, decoder = width != d, "model.decoder"
    block = (
        *attention(s, (*LLAMA_QKV, "self_attn.out_proj"), bias=bias, out_bias=bias),
        *(norms(s, "self_attn_layer_norm", bias=True) if affine else ()),
        *plain_mlp(d, s.ffn, "fc1", "fc2", bias=bias),
        *(norms(s, "final_layer_norm", bias=True) if affine else ()),
    )
    # Two more rows than positions: OPT comes from fairseq, whose positions start at 2.
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
    return make_model(f, s, tensors, head_width=width)


FAMILY = Family(
    build=_build,
    heads=heads("OPT"),
    style=Style(measured=True, norm="layer", inputs=(3, 1), gated=False, dropouts=2),
    defaults={
        "vocab_size": 50272, "num_attention_heads": 12, "intermediate_size": 3072,
        "max_position_embeddings": 2048, "do_layer_norm_before": True, "enable_bias": True,
        "layer_norm_elementwise_affine": True, "tie_word_embeddings": True, "hidden_act": "relu",
        "dropout": 0.1,
    },
    names={"ffn_dim": "intermediate_size", "activation_function": "hidden_act"},
)  # fmt: skip
