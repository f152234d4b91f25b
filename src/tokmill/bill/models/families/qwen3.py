"""Qwen3: Llama's layer with norms of each head's queries and keys."""

from __future__ import annotations

from tokmill.bill.models.build import decoder, gated_block
from tokmill.bill.models.families import qwen2
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import head_norms
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f)
    block = gated_block(f, s, head_norms(s.head_dim))
    return decoder(f, s, block, windows=qwen2.late_windows(f, s))


FAMILY = Family(
    build=_build,
    heads=heads("Qwen3", question="transformer."),
    style=Style(measured=True, heads="each"),
    defaults={**qwen2.FAMILY.defaults, "head_dim": 128},
)
