"""Baichuan and Baichuan 2, 7B and 13B, as in the code of baichuan-inc's repositories on the Hub."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder
from tokmill.bill.models.family import LANGUAGE, Family, Fields
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import fused_attention, gated_mlp, norms
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    # 7B has rotary positions, 13B has ALiBi biases of scores: neither has parameters.
    s = read_shape(f, grouped=False)
    block = (
        *fused_attention(s, "self_attn.W_pack", "self_attn.o_proj"),
        *gated_mlp(s.hidden, s.ffn),
    )
    out = ("tables of positions or of ALiBi biases that Baichuan's own code keeps",)
    return decoder(f, s, block, norms(s, *PRE_NORMS), buffer_bytes=0, leaves_out=out)


FAMILY = Family(
    build=_build,
    heads={"BaichuanForCausalLM": LANGUAGE},
    style=Style(measured=False, inputs=(1, 2), fused="value"),
    defaults={
        "vocab_size": 64000, "num_attention_heads": 40, "intermediate_size": 13696,
        "hidden_act": "silu", "max_position_embeddings": 4096,
    },
    names={"model_max_length": "max_position_embeddings"},
)  # fmt: skip
