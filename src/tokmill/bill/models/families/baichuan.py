"""Baichuan 7B and 13B, 1 and 2, whose code stands in baichuan-inc's repositories on the Hub."""

from __future__ import annotations

from tokmill.bill.models.decoder import PRE_NORMS, decoder
from tokmill.bill.models.family import GATED, LANGUAGE, Family, Fields
from tokmill.bill.models.model import Model
from tokmill.bill.models.parts import gated_mlp, linear, norms
from tokmill.bill.models.shape import read_shape
from tokmill.bill.models.style import KERNELS, Style


def build(f: Fields) -> Model:
    """Return the model of a configuration.

    7B rotates positions, 13B adds biases to scores (ALiBi): neither holds a parameter.
    """
    s = read_shape(f, grouped=False)
    block = (
        *linear("self_attn.W_pack", s.hidden, 3 * s.hidden, "attention", "columns"),
        *linear("self_attn.o_proj", s.hidden, s.hidden, "attention", "rows"),
        *gated_mlp(s.hidden, s.ffn),
    )
    out = ("tables of positions or of ALiBi biases that Baichuan's own code keeps",)
    return decoder(f, s, block, norms(s, *PRE_NORMS), buffer_bytes=0, leaves_out=out)


FAMILY = Family(
    name="baichuan",
    build=build,
    heads={"BaichuanForCausalLM": LANGUAGE},
    style=Style(kernels=KERNELS, measured=False, inputs=(1, 2), fused="value"),
    defaults={
        "vocab_size": 64000, "num_attention_heads": 40, "intermediate_size": 13696,
        "hidden_act": "silu", "max_position_embeddings": 4096,
    },
    needed=GATED,
    names={"model_max_length": "max_position_embeddings"},
)  # fmt: skip
