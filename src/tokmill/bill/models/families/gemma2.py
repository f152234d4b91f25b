"""Gemma 2: four norms a layer, capped scores and logits, windows in every other layer."""

from __future__ import annotations

from tokmill.bill.models.build import FOUR_NORMS, decoder, gated_block
from tokmill.bill.models.families import gemma
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.shape import FLOAT_BYTES, read_shape, rotary_bytes, typed_windows


def _build(f: Fields) -> Model:
    s = read_shape(f)
    windows = typed_windows(f, s.layers, lambda layer: layer % 2 == 0)
    buffers = rotary_bytes(f, s.head_dim) + FLOAT_BYTES
    block = gated_block(f, s, names=FOUR_NORMS)
    return decoder(f, s, block, windows=windows, buffer_bytes=buffers)


FAMILY = Family(
    build=_build,
    heads=heads("Gemma2"),
    # Torch's sdpa cannot cap scores; the flash-attn package can.
    style=Style(
        kernels=("flash", "eager"), measured=True, norm="rms32", norms_after=2, soft_cap=True,
    ),
    defaults={
        **gemma.FAMILY.defaults, "num_attention_heads": 8, "num_key_value_heads": 4,
        "intermediate_size": 9216,
    },
    names={"hidden_activation": "hidden_act"},
)  # fmt: skip
