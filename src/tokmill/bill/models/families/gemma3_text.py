"""The text model of Gemma 3: Gemma 2's layer with norms of queries and keys, without caps."""

from __future__ import annotations

from tokmill.bill.models.build import FOUR_NORMS, decoder, gated_block
from tokmill.bill.models.families import gemma2
from tokmill.bill.models.family import Family, Fields, Head, heads
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import head_norms
from tokmill.bill.models.shape import (
    FLOAT_BYTES,
    layer_types,
    read_shape,
    rotary_bytes,
    typed_windows,
)


def _build(f: Fields) -> Model:
    s, period = read_shape(f), f.count("sliding_window_pattern", 6)

    def slides(layer: int) -> bool:
        return (layer + 1) % period > 0

    kinds = len(set(layer_types(f, s.layers, slides)))
    windows = typed_windows(f, s.layers, slides)
    buffers = kinds * rotary_bytes(f, s.head_dim) + FLOAT_BYTES
    block = gated_block(f, s, head_norms(s.head_dim), FOUR_NORMS)
    return decoder(f, s, block, windows=windows, buffer_bytes=buffers)


FAMILY = Family(
    build=_build,
    heads={
        **heads("Gemma3"),
        "Gemma3TextModel": Head("", features=0, renamed=("model.", "")),
        "Gemma3TextForSequenceClassification": Head("score"),
    },
    style=Style(measured=True, norm="rms32", norms_after=2, heads="each"),
    defaults={**gemma2.FAMILY.defaults, "vocab_size": 262208, "max_position_embeddings": 131072},
    names={**gemma2.FAMILY.names, "_sliding_window_pattern": "sliding_window_pattern"},
)  # fmt: skip
