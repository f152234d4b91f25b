"""BLOOM: ALiBi instead of positions, a norm after the embedding."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import NEEDED, Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import embedding, fused_attention, head, in_layers, norms, plain_mlp
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f, grouped=False, ffn=4 * f.count("hidden_size"))
    block = (
        *norms(s, "input_layernorm", bias=True),
        *fused_attention(s, bias=True, out_bias=True),
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


FAMILY = Family(
    build=_build,
    heads=heads("Bloom", "transformer.", "transformer.", "classifier"),
    style=Style(
        kernels=("eager",), measured=True, norm="layer", inputs=(1, 1), gated=False, dropouts=2,
        embedding_norm=True,
    ),
    defaults={
        "vocab_size": 250880, "num_attention_heads": 8, "tie_word_embeddings": True,
        "hidden_act": "bloom_gelu",
    },
    needed=NEEDED,
    names={
        "n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
        "seq_length": "max_position_embeddings",
    },
)  # fmt: skip
