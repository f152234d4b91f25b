"""GPT-NeoX and Pythia: parallel attention and feed-forward layer, partly rotated heads."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import (
    embedding,
    fused_attention,
    head,
    in_layers,
    norms,
    plain_mlp,
)
from tokmill.bill.models.shape import read_shape, rotary_bytes


def _build(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    d, bias = s.hidden, f.flag("attention_bias")
    block = (
        *norms(s, "input_layernorm", "post_attention_layernorm", bias=True),
        *fused_attention(
            s, "attention.query_key_value", "attention.dense", bias=bias, out_bias=bias
        ),
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


FAMILY = Family(
    build=_build,
    heads=heads("GPTNeoX", "gpt_neox.", "gpt_neox.", "classifier"),
    style=Style(
        measured=True, norm="layer", inputs=(1, 1), parallel=True, fused="value", copied=True,
        gated=False, dropouts=2,
    ),
    defaults={
        "vocab_size": 50432, "num_attention_heads": 64, "intermediate_size": 24576,
        "hidden_act": "gelu", "max_position_embeddings": 2048, "attention_bias": True,
    },
)  # fmt: skip
