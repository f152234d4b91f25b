"""GPT-2: LayerNorm, learned positions, one matrix for queries, keys and values (Conv1D)."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import LANGUAGE, NEEDED, Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import Part, embedding, head, in_layers, linear, norms, plain_mlp
from tokmill.bill.models.shape import Shape, read_shape


def _build(f: Fields) -> Model:
    ffn = f.size("intermediate_size") or 4 * f.count("hidden_size")
    s = read_shape(f, grouped=False, ffn=ffn)
    positions = f.size("max_position_embeddings")
    d, qkv, crossed = s.hidden, 3 * s.hidden, f.flag("add_cross_attention")
    block = (
        *norms(s, "ln_1", bias=True),
        *linear("attn.c_attn", d, qkv, "attention", "columns", bias=True, transposed=True),
        *linear("attn.c_proj", d, d, "attention", "rows", bias=True, transposed=True),
        *norms(s, "ln_2", bias=True),
        *plain_mlp(d, s.ffn, "mlp.c_fc", "mlp.c_proj", transposed=True),
        *(_cross_attention(s) if crossed else ()),
    )
    tensors = (
        *embedding("transformer.wte", s.vocabulary, d),
        *(embedding("transformer.wpe", positions, d, "none") if positions else ()),
        *in_layers("transformer.h", range(s.layers), block),
        *norms(s, "transformer.ln_f", bias=True),
        *head(s),
    )
    out = ("activations and cache of cross-attention: they depend on the encoder",)
    return make_model(f, s, tensors, leaves_out=out if crossed else ())


def _cross_attention(s: Shape) -> Part:
    """Return the attention to an encoder with the same hidden size."""
    name, d = "crossattention", s.hidden
    return (
        *linear(f"{name}.c_attn", d, 2 * d, "attention", "columns", bias=True, transposed=True),
        *linear(f"{name}.q_attn", d, d, "attention", "columns", bias=True, transposed=True),
        *linear(f"{name}.c_proj", d, d, "attention", "rows", bias=True, transposed=True),
        *norms(s, "ln_cross_attn", bias=True),
    )


FAMILY = Family(
    build=_build,
    heads={
        **heads("GPT2", "transformer.", "transformer.", "classifier"),
        "GPT2LMHeadModel": LANGUAGE,
    },
    style=Style(
        measured=True, norm="layer", inputs=(1, 1), fused="all", gated=False, softmax_fp32=False,
        dropouts=2,
    ),
    defaults={
        "vocab_size": 50257, "max_position_embeddings": 1024, "num_attention_heads": 12,
        "hidden_act": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
        "tie_word_embeddings": True,
    },
    needed=NEEDED,
    names={
        "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings", "n_inner": "intermediate_size",
        "activation_function": "hidden_act",
    },
)  # fmt: skip
