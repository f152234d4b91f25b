"""The shape of a model in its configuration: layers, widths, heads, rotary buffers and windows.

Keys are the common ones of Hugging Face configurations (hidden_size, num_hidden_layers, …);
messages show the key of the family (n_embd, n_layer, …).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tokmill.bill.models.family import Fields
from tokmill.errors import UsageError

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers, widths and heads of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tied: bool = False  # the head is the embedding

    @property
    def query_width(self) -> int:
        """Features of the queries of all heads, a h."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Features of the keys of all heads, or of the values, k h."""
        return self.kv_heads * self.head_dim


def read_shape(
    f: Fields, *, grouped: bool = True, ffn: int = 0, kv_heads: int = 0, head_dim: int = 0
) -> Shape:
    """Read the shape. `ffn`, `kv_heads` and `head_dim` replace values of the configuration.

    Not `grouped`: heads share no key-value heads, and all of them together have the hidden size.

    Raises:
        UsageError: a number is missing or wrong, or heads are not a divisor.
    """
    heads, hidden = f.count("num_attention_heads"), f.count("hidden_size")
    kv_heads = kv_heads or (f.count("num_key_value_heads", heads) if grouped else heads)
    if heads % kv_heads:
        raise UsageError(
            f"{f.where}: {f.label('num_attention_heads')} {heads} is not a multiple of "
            f"{f.label('num_key_value_heads')} {kv_heads}"
        )
    head_dim = head_dim or (f.size("head_dim") if grouped else 0)
    return Shape(
        layers=f.count("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or _equal_share(f, hidden, heads),
        ffn=ffn or f.count("intermediate_size"),
        vocabulary=f.count("vocab_size"),
        tied=f.flag("tie_word_embeddings"),
    )


def _equal_share(f: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise UsageError(
            f"{f.where}: {f.label('hidden_size')} {hidden} is not a multiple of "
            f"{f.label('num_attention_heads')} {heads}, and no size of a head is given"
        )
    return hidden // heads


def rotary_bytes(f: Fields, head_dim: int, default: float = 1.0) -> int:
    """Return the bytes of the two fp32 buffers of rotary positions.

    Each has half of the rotated features of a head; `default` is the rotated share.
    """
    scaling = f.table("rope_scaling") or f.table("rope_parameters")
    own = f.share("partial_rotary_factor", default)
    rotated = int(head_dim * replace(f, values=scaling).share("partial_rotary_factor", own))
    return 2 * FLOAT_BYTES * -(-rotated // 2)


def all_windows(f: Fields, layers: int) -> tuple[int, ...]:
    """Return `sliding_window` for every layer, () if there is none."""
    window = f.size("sliding_window")
    return (window,) * layers if window else ()


def typed_windows(f: Fields, layers: int, slides: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the window of each layer, () if no layer has one; layers as in `layer_types`."""
    window, types = f.size("sliding_window"), layer_types(f, layers, slides)
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in types)
    return windows if any(windows) else ()


def layer_types(f: Fields, layers: int, slides: Callable[[int], bool]) -> list[str]:
    """Return sliding_attention or full_attention for each layer.

    Without the key layer_types, the family's rule `slides` decides.

    Raises:
        UsageError: there is not one type per layer, or a type is unknown.
    """
    names = ("full_attention", "sliding_attention")
    found = f.items("layer_types", str)
    if found is None:
        return [names[slides(layer)] for layer in range(layers)]
    if len(found) != layers or set(found) - set(names):
        raise f.wrong("layer_types", f"{layers} of {' or '.join(names)}", found)
    return found
