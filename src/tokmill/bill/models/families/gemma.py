"""Gemma: Llama's layer with wide heads, norms in fp32, and a scaled embedding."""

from __future__ import annotations

from tokmill.bill.models.build import decoder, gated_block
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.shape import FLOAT_BYTES, read_shape, rotary_bytes


def _build(f: Fields) -> Model:
    s = read_shape(f)
    buffers = rotary_bytes(f, s.head_dim) + FLOAT_BYTES  # and the embedding's scale
    return decoder(f, s, gated_block(f, s), buffer_bytes=buffers)


FAMILY = Family(
    build=_build,
    heads=heads("Gemma"),
    style=Style(measured=True, norm="rms32"),
    defaults={
        "vocab_size": 256000, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
        "intermediate_size": 24576, "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192, "tie_word_embeddings": True, "sliding_window": 4096,
    },
)  # fmt: skip
