"""A family of models, the values of a configuration, read with their types, and shapes from them.

Keys are the common names of Hugging Face configurations (hidden_size, num_hidden_layers, …);
messages show a family's own name for them (n_embd, n_layer, …).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokmill.bill.models.model import Attention, Experts, Model, Tensor
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.bill.models.model import Model


LARGEST = 1 << 31
MOST = {"num_hidden_layers": 10_000, "num_experts": 100_000}
"""No model has more; more is a slip of the keyboard, and its list of layers would fill memory."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of a configuration under common keys, and the keys that were read (`used`).

    `where` begins every message; `shown` maps a common key to the one that the user wrote.
    """

    values: Mapping[str, Any]
    family: str
    name: str
    where: str
    shown: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def count(self, key: str, default: int = 0) -> int:
        """Return a whole number of at least 1; a default of 0 means that it is needed.

        Raises:
            UsageError: it is needed and missing, or it is no such number.
        """
        found = self._value(key)
        if found is None and default > 0:
            return default
        if found is None:
            raise UsageError(f"{self.where}: no {self.label(key)}, which {self.family} needs")
        return self._whole(key, found, 1)

    def size(self, key: str) -> int:
        """Return a whole number; null and missing are 0."""
        found = self._value(key)
        return 0 if found is None else self._whole(key, found, 0)

    def flag(self, key: str) -> bool:
        """Return true or false; null and missing are false."""
        found = self._value(key)
        if found is not None and not isinstance(found, bool):
            raise self.wrong(key, "true or false", found)
        return bool(found)

    def text(self, key: str) -> str:
        """Return a string; null and missing are ''."""
        found = self._value(key)
        if found is not None and not isinstance(found, str):
            raise self.wrong(key, "a string", found)
        return found or ""

    def share(self, key: str, default: float = 0.0) -> float:
        """Return a number from 0 to 1."""
        found = self._value(key)
        if found is None:
            return default
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if not number or not 0 <= found <= 1:
            raise self.wrong(key, "a number from 0 to 1", found)
        return float(found)

    def items(self, key: str, kind: type) -> list[Any] | None:
        """Return a list of strings or whole numbers, or None if there is none."""
        found = self._value(key)
        if found is None:
            return None
        if not isinstance(found, list | tuple) or not all(type(item) is kind for item in found):
            raise self.wrong(key, f"a list of {kind.__name__}", found)
        return list(found)

    def table(self, key: str) -> Mapping[str, Any]:
        """Return an object; null and missing are empty."""
        found = self._value(key)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(key, "an object", found)
        return found or {}

    def label(self, key: str) -> str:
        """Return the key as the user wrote it."""
        return self.shown.get(key, key)

    def wrong(self, key: str, expected: str, found: object) -> UsageError:
        """Make the error of a value that is not what it must be."""
        shown = repr(found) if len(repr(found)) <= 60 else repr(found)[:57] + "..."
        return UsageError(f"{self.where}: {self.label(key)}: expected {expected}, found {shown}")

    def _value(self, key: str) -> Any:
        self.used.add(key)
        return self.values.get(key)

    def _whole(self, key: str, found: object, least: int) -> int:
        most = MOST.get(key, LARGEST)
        if type(found) is not int or not least <= found <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}", found)
        return found


NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
GATED = (*NEEDED, "intermediate_size")
MIXED = (*NEEDED, "num_experts", "num_experts_per_tok", "moe_intermediate_size")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models.

    `defaults` are what its configuration class in transformers 5.23 takes for keys that a
    config.json leaves out. `names` maps the family's own keys to the common ones. `needed` are the
    keys that a model by numbers must give (none: numbers alone cannot describe it), `implied` what
    such a model has besides.
    """

    build: Callable[[Fields], Model]
    architecture: str
    defaults: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)
    needed: tuple[str, ...] = GATED
    implied: Mapping[str, Any] = field(default_factory=dict)

    def common(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with the common keys; the family's own keys win over them."""
        renamed = {self.names[key]: value for key, value in config.items() if key in self.names}
        return {**config, **renamed}


FLOAT_BYTES = 4
DROPOUTS = (
    "attention_dropout", "attn_pdrop", "dropout", "embd_pdrop", "hidden_dropout", "resid_pdrop",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers, widths and heads of a model. `tied`: the head is the embedding."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tied: bool = False

    @property
    def query_width(self) -> int:
        """Features of the queries of all heads, a * h."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Features of the keys, or of the values, k * h."""
        return self.kv_heads * self.head_dim


def read_shape(
    f: Fields, *, grouped: bool = True, ffn: int = 0, kv_heads: int = 0, head_dim: int = 0
) -> Shape:
    """Read the shape; `ffn`, `kv_heads` and `head_dim` are given where the family fixes them.

    Not `grouped`: every head has a key-value head, and is an equal share of the hidden size.

    Raises:
        UsageError: a number is missing or wrong, or heads do not divide.
    """
    heads, hidden = f.count("num_attention_heads"), f.count("hidden_size")
    kv_heads = kv_heads or (f.count("num_key_value_heads", heads) if grouped else heads)
    if heads % kv_heads:
        raise UsageError(
            f"{f.where}: {f.label('num_attention_heads')} {heads} is no multiple of "
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
            f"{f.where}: {f.label('hidden_size')} {hidden} is no multiple of "
            f"{f.label('num_attention_heads')} {heads}, and no size of a head is given"
        )
    return hidden // heads


def make_model(
    f: Fields,
    shape: Shape,
    tensors: tuple[Tensor, ...],
    *,
    attention: Attention | None = None,
    windows: tuple[int, ...] = (),
    experts: Experts | None = None,
    buffer_bytes: int = 0,
    leaves_out: tuple[str, ...] = (),
) -> Model:
    """Make the model of a shape and its tensors; attention is by default what the shape says."""
    return Model(
        name=f.name,
        family=f.family,
        layers=shape.layers,
        hidden=shape.hidden,
        ffn=shape.ffn,
        vocabulary=shape.vocabulary,
        positions=f.size("max_position_embeddings"),
        tied=shape.tied,
        activation=f.text("hidden_act"),
        attention=attention or Attention(shape.heads, shape.kv_heads, shape.head_dim, windows),
        tensors=tensors,
        experts=experts,
        dropout=max(f.share(key) for key in DROPOUTS),
        buffer_bytes=buffer_bytes,
        leaves_out=leaves_out,
    )


def rotary_bytes(f: Fields, head_dim: int, default: float = 1.0) -> int:
    """Return the bytes of the two fp32 buffers of rotary positions (half a rotated feature each).

    `default` is the rotated share of a head where the configuration says none.
    """
    scaling = f.table("rope_scaling") or f.table("rope_parameters")
    own = f.share("partial_rotary_factor", default)
    rotated = int(head_dim * replace(f, values=scaling).share("partial_rotary_factor", own))
    return 2 * FLOAT_BYTES * -(-rotated // 2)


def all_windows(f: Fields, layers: int) -> tuple[int, ...]:
    """Return the window of every layer, where one window holds for all: none is ()."""
    window = f.size("sliding_window")
    return (window,) * layers if window else ()


def typed_windows(f: Fields, layers: int, slides: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the window of each layer by `layer_types`, and without them by the family's rule.

    Raises:
        UsageError: layer_types are not as many as layers, or one is neither full nor sliding.
    """
    window, types = f.size("sliding_window"), layer_types(f, layers, slides)
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in types)
    return windows if any(windows) else ()


def layer_types(f: Fields, layers: int, slides: Callable[[int], bool]) -> list[str]:
    """Return what each layer attends to: sliding_attention or full_attention."""
    names = ("full_attention", "sliding_attention")
    found = f.items("layer_types", str)
    if found is None:
        return [names[slides(layer)] for layer in range(layers)]
    if len(found) != layers or set(found) - set(names):
        raise f.wrong("layer_types", f"{layers} of {' or '.join(names)}", found)
    return found
