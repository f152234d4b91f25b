"""Mistral: Llama's layer with sliding windows."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder
from tokmill.bill.models.families import llama
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import LLAMA, Model
from tokmill.bill.models.parts import attention, gated_mlp, norms
from tokmill.bill.models.shape import all_windows, read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f)
    block = (attention(s), gated_mlp(s.hidden, s.ffn), norms(s, *PRE_NORMS))
    return decoder(f, s, *block, windows=all_windows(f, s.layers))


FAMILY = Family(
    build=_build,
    heads=heads("Mistral"),
    style=LLAMA,
    defaults={
        **llama.FAMILY.defaults, "intermediate_size": 14336, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "sliding_window": 4096,
    },
    implied={"sliding_window": 0},
)  # fmt: skip
