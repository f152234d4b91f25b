"""OLMo 2: Llama's layer with norms after each part, and norms over all queries and keys."""

from __future__ import annotations

from tokmill.bill.models.build import FOUR_NORMS, decoder, gated_block
from tokmill.bill.models.families import llama
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import head_norms
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f)
    return decoder(f, s, gated_block(f, s, head_norms(s.query_width, s.kv_width), FOUR_NORMS[1::2]))


FAMILY = Family(
    build=_build,
    heads=heads("Olmo2"),
    style=Style(measured=True, norm="rms32", norms_before=0, norms_after=2, heads="all"),
    defaults={**llama.FAMILY.defaults, "vocab_size": 50304},
)
