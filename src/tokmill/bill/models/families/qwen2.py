"""Qwen2 and Qwen2.5: Llama's layer with biases of queries, keys and values."""

from __future__ import annotations

from tokmill.bill.models.build import PRE_NORMS, decoder
from tokmill.bill.models.family import Family, Fields, heads
from tokmill.bill.models.model import LLAMA, Model
from tokmill.bill.models.parts import attention, gated_mlp, norms
from tokmill.bill.models.shape import Shape, read_shape, typed_windows


def _build(f: Fields) -> Model:
    s = read_shape(f)
    block = (attention(s, bias=True), gated_mlp(s.hidden, s.ffn), norms(s, *PRE_NORMS))
    return decoder(f, s, *block, windows=late_windows(f, s))


def late_windows(f: Fields, s: Shape) -> tuple[int, ...]:
    """Return the window of each layer: the first `max_window_layers` have none."""
    first = f.size("max_window_layers")
    if not f.flag("use_sliding_window"):
        return ()
    return typed_windows(f, s.layers, lambda layer: layer >= first)


FAMILY = Family(
    build=_build,
    heads=heads("Qwen2", question="transformer."),
    style=LLAMA,
    defaults={
        "vocab_size": 151936, "intermediate_size": 22016, "num_attention_heads": 32,
        "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 32768,
        "max_window_layers": 28, "sliding_window": 4096,
    },
)  # fmt: skip
