"""What a model family is, and how its configuration is read: values, shape, windows, heads.

Keys are the common ones of Hugging Face configurations (hidden_size, num_hidden_layers, …);
messages show the key of the family (n_embd, n_layer, …).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tokmill.bill.models.model import Model, Style
from tokmill.errors import UsageError

LARGEST = 1 << 31
MOST = {"num_hidden_layers": 10_000, "num_experts": 100_000}
"""No model has more; a mistyped number would fill memory with a list of layers."""
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of a configuration under common keys.

    `where` begins every message; `shown` maps a common key to the one that the user wrote; `used`
    are the keys that were read. Methods that read a value raise UsageError if it is wrong.
    """

    values: Mapping[str, Any]
    family: Family
    name: str
    where: str
    shown: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def count(self, key: str, default: int = 0) -> int:
        """Return an integer of at least 1; without a default it must be there.

        Raises:
            UsageError: the value is missing, or is no such integer.
        """
        found = self._value(key)
        if found is None and default > 0:
            return default
        if found is None:
            raise UsageError(f"{self.where}: no {self.label(key)}, which {self.family.name} needs")
        return self._integer(key, found, 1)

    def size(self, key: str) -> int:
        """Return an integer of at least 0; missing or null is 0."""
        found = self._value(key)
        return 0 if found is None else self._integer(key, found, 0)

    def flag(self, key: str) -> bool:
        """Return true or false; missing or null is false."""
        return bool(self._typed(key, bool, "true or false"))

    def text(self, key: str) -> str:
        """Return a string; missing or null is ''."""
        return self._typed(key, str, "a string") or ""

    def table(self, key: str) -> Mapping[str, Any]:
        """Return an object; missing or null is {}."""
        return self._typed(key, dict, "an object") or {}

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
        """Return a list whose items have the type `kind`; missing or null is None."""
        found = self._value(key)
        if found is None:
            return None
        if not isinstance(found, list | tuple) or not all(type(item) is kind for item in found):
            raise self.wrong(key, f"a list of {kind.__name__}", found)
        return list(found)

    def label(self, key: str) -> str:
        """Return the key as the user wrote it."""
        return self.shown.get(key, key)

    def wrong(self, key: str, expected: str, found: object) -> UsageError:
        """Return the error of a wrong value."""
        shown = repr(found) if len(repr(found)) <= 60 else repr(found)[:57] + "..."
        return UsageError(f"{self.where}: {self.label(key)}: expected {expected}, found {shown}")

    @property
    def head(self) -> Head:
        """The head of the architecture."""
        named = self.values.get("architectures") or []
        return next((head for name, head in self.family.heads.items() if name in named), LANGUAGE)

    def _value(self, key: str) -> Any:
        self.used.add(key)
        return self.values.get(key)

    def _typed(self, key: str, kind: type, expected: str) -> Any:
        found = self._value(key)
        if found is not None and not isinstance(found, kind):
            raise self.wrong(key, expected, found)
        return found

    def _integer(self, key: str, found: object, least: int) -> int:
        most = MOST.get(key, LARGEST)
        if type(found) is not int or not least <= found <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}", found)
        return found


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
    fields: Fields, *, grouped: bool = True, ffn: int = 0, kv_heads: int = 0, head_dim: int = 0
) -> Shape:
    """Read the shape. `ffn`, `kv_heads` and `head_dim` replace values of the configuration.

    Not `grouped`: heads share no key-value heads, and all of them together have the hidden size.

    Raises:
        UsageError: a number is missing or wrong, or heads are not a divisor.
    """
    heads, hidden = fields.count("num_attention_heads"), fields.count("hidden_size")
    kv_heads = kv_heads or (fields.count("num_key_value_heads", heads) if grouped else heads)
    if heads % kv_heads:
        raise UsageError(
            f"{fields.where}: {fields.label('num_attention_heads')} {heads} is not a multiple of "
            f"{fields.label('num_key_value_heads')} {kv_heads}"
        )
    head_dim = head_dim or (fields.size("head_dim") if grouped else 0)
    return Shape(
        layers=fields.count("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or _equal_share(fields, hidden, heads),
        ffn=ffn or fields.count("intermediate_size"),
        vocabulary=fields.count("vocab_size"),
        tied=fields.flag("tie_word_embeddings"),
    )


def _equal_share(fields: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise UsageError(
            f"{fields.where}: {fields.label('hidden_size')} {hidden} is not a multiple of "
            f"{fields.label('num_attention_heads')} {heads}, and no size of a head is given"
        )
    return hidden // heads


def rotary_bytes(fields: Fields, head_dim: int, default: float = 1.0) -> int:
    """Return the bytes of the two fp32 buffers of rotary positions.

    Each has half of the rotated features of a head; `default` is the rotated share.
    """
    scaling = fields.table("rope_scaling") or fields.table("rope_parameters")
    own = fields.share("partial_rotary_factor", default)
    rotated = int(head_dim * replace(fields, values=scaling).share("partial_rotary_factor", own))
    return 2 * FLOAT_BYTES * -(-rotated // 2)


def all_windows(fields: Fields, layers: int) -> tuple[int, ...]:
    """Return `sliding_window` for every layer, () if there is none."""
    window = fields.size("sliding_window")
    return (window,) * layers if window else ()


def late_windows(fields: Fields, layers: int) -> tuple[int, ...]:
    """Return the windows of Qwen2: the first `max_window_layers` layers have none."""
    first = fields.size("max_window_layers")
    if not fields.flag("use_sliding_window"):
        return ()
    return typed_windows(fields, layers, lambda layer: layer >= first)


def typed_windows(fields: Fields, layers: int, rule: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the window of each layer, () if no layer has one; layers as in `layer_types`."""
    window, types = fields.size("sliding_window"), layer_types(fields, layers, rule)
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in types)
    return windows if any(windows) else ()


def layer_types(fields: Fields, layers: int, rule: Callable[[int], bool]) -> list[str]:
    """Return sliding_attention or full_attention for each layer.

    Without the key layer_types, the family's `rule` decides.

    Raises:
        UsageError: there is not one type per layer, or a type is unknown.
    """
    names = ("full_attention", "sliding_attention")
    found = fields.items("layer_types", str)
    if found is None:
        return [names[rule(layer)] for layer in range(layers)]
    if len(found) != layers or set(found) - set(names):
        raise fields.wrong("layer_types", f"{layers} of {' or '.join(names)}", found)
    return found


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an architecture, after its last layer.

    `matrix` is the name of its matrix, '' for none. It has `features` outputs: one per id of the
    vocabulary, one per label, or a fixed number. `dense` is a d x d matrix before it. `renamed`:
    names of tensors that begin with the first begin with the second instead. `encoder_only`: the
    model has no decoder.
    """

    matrix: str
    bias: bool = False
    features: Literal["vocabulary", "labels"] | int = "labels"
    dense: str = ""
    renamed: tuple[str, str] = ("", "")
    encoder_only: bool = False

    def labels(self, fields: Fields) -> int | None:
        """Return the number of outputs, None for the vocabulary."""
        if self.features == "vocabulary":
            return None
        if self.features != "labels":
            return self.features
        return len(fields.table("id2label")) or fields.count("num_labels", 2)


LANGUAGE = Head("lm_head", features="vocabulary")


def heads(
    start: str, model: str = "model.", question: str = "model.", labels: str = "score"
) -> dict[str, Head]:
    """Return the architectures of a decoder, whose names begin with `start`.

    Names of its tensors begin with `model` (`question`: those of the question answering model).
    `labels` is the head that classifies tokens.
    """
    return {
        f"{start}ForCausalLM": LANGUAGE,
        f"{start}Model": Head("", features=0, renamed=(model, "")),
        f"{start}ForSequenceClassification": Head("score"),
        f"{start}ForTokenClassification": Head(labels, bias=True),
        f"{start}ForQuestionAnswering": Head(
            "qa_outputs", bias=True, features=2, renamed=(model, question)
        ),
    }


WITH_FFN = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"
)  # fmt: skip
"""The numbers that most families need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All that the bills need to know of a family.

    `heads` are its architectures; any other has the head of a language model. `defaults` are those
    of its configuration class in transformers 5.23. `names` maps the family's own keys to the
    common ones. A model given by numbers needs the keys `needed`, () if numbers cannot describe the
    family, and takes the values `implied` too. A configuration with a value of `other` describes
    another architecture, in spite of its name.
    """

    build: Callable[[Fields], Model]
    heads: Mapping[str, Head]
    style: Style
    defaults: Mapping[str, Any]
    needed: tuple[str, ...] = WITH_FFN
    names: Mapping[str, str] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    name: str = ""  # `families` sets it

    def common(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with the common keys; the family's own keys win over them."""
        renamed = {self.names[key]: value for key, value in config.items() if key in self.names}
        return {**config, **renamed}
