"""What a model family is, how its configuration is read, and the parts of models as tensors.

Keys are the common ones of Hugging Face configurations (hidden_size, num_hidden_layers, …);
messages show the key of the family (n_embd, n_layer, …).

Names of tensors are those inside a layer; `in_layers` repeats parts in layers. The split is
Megatron-LM's tensor parallelism: matrices into attention or a feed-forward layer by output features
(columns), matrices out of it by input features (rows), embedding and head by ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokmill.bill.models.model import Model, Module, Split, Style, Tensor
from tokmill.errors import UsageError

LARGEST = 1 << 31
LABELS = -1  # as many as the configuration has labels
MOST = {"num_hidden_layers": 10_000, "num_experts": 100_000}
"""No model has more; a mistyped number would fill memory with a list of layers."""
SEQUENCE_TASK = "ForSequenceClassification"
TASKS: Mapping[str, int | None] = {
    "ForCausalLM": None, "LMHeadModel": None, "ChatGLMModel": None,
    "EncoderModel": 0, "Model": 0, SEQUENCE_TASK: LABELS,
    "ForTokenClassification": LABELS, "ForQuestionAnswering": 2,
    "ForMultipleChoice": 1, "ForNextSentencePrediction": 2,
}  # fmt: skip
"""Outputs of the head by the end of an architecture's name; None: a language model's."""


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
        value = self._value(key)
        if value is None and default > 0:
            return default
        if value is None:
            raise UsageError(f"{self.where}: no {self.label(key)}, which {self.family.name} needs")
        return self._integer(key, value, 1)

    def size(self, key: str) -> int:
        """Return an integer of at least 0; missing or null is 0."""
        value = self._value(key)
        return 0 if value is None else self._integer(key, value, 0)

    def number(self, key: str) -> float:
        """Return a number of at least 0, or 1 for true; missing, null, false and "auto" are 0."""
        value = self._value(key)
        if value is None or value == "auto":
            return 0
        if isinstance(value, bool | float) and 0 <= value < LARGEST:
            return value
        return self._integer(key, value, 0)

    def flag(self, key: str) -> bool:
        """Return true or false; missing or null is false."""
        return bool(self._typed(key, bool, "true or false"))

    def text(self, key: str) -> str:
        """Return a string; missing or null is ''."""
        return self._typed(key, str, "a string") or ""

    def table(self, key: str) -> Mapping[str, Any]:
        """Return an object; missing or null is {}."""
        return self._typed(key, dict, "an object") or {}

    def share(self, key: str) -> float:
        """Return a number from 0 to 1; missing or null is 0."""
        value = self._value(key) or 0
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise self.wrong(key, "a number from 0 to 1", value)
        return float(value)

    def items(self, key: str, kind: type) -> list[Any] | None:
        """Return a list whose items have the type `kind`; missing or null is None."""
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(type(item) is kind for item in value):
            raise self.wrong(key, f"a list of {kind.__name__}", value)
        return list(value)

    def label(self, key: str) -> str:
        """Return the key as the user wrote it."""
        return self.shown.get(key, key)

    def wrong(self, key: str, expected: str, value: object) -> UsageError:
        """Return the error of a wrong value."""
        return UsageError(
            f"{self.where}: {self.label(key)}: expected {expected}, found {value!r:.60}"
        )

    @property
    def task(self) -> str:
        """The end of the architecture's name that names its head; '' for a language model."""
        ends = (
            end
            for each in self.items("architectures", str) or ()
            for end in TASKS
            if each.endswith(end)
        )
        task = next(ends, "")
        return "" if TASKS.get(task) is None else task

    @property
    def labels(self) -> int | None:
        """Outputs of the head, 0 without a head; None: one for each id of the vocabulary."""
        outputs = TASKS.get(self.task)
        if outputs != LABELS:
            return outputs
        return len(self.table("id2label")) or self.count("num_labels", 2)

    def _value(self, key: str) -> Any:
        self.used.add(key)
        return self.values.get(key)

    def _typed(self, key: str, kind: type, expected: str) -> Any:
        value = self._value(key)
        if value is not None and not isinstance(value, kind):
            raise self.wrong(key, expected, value)
        return value

    def _integer(self, key: str, value: object, least: int) -> int:
        most = MOST.get(key, LARGEST)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}", value)
        return value


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


WITH_FFN = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"
)  # fmt: skip
"""The numbers that most families need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All that the bills need to know of a family.

    `defaults` are those of its configuration class in transformers 5.23. `names` maps the family's
    own keys to the common ones. A model given by numbers needs the keys `needed`, () if numbers
    cannot describe the family, and takes the values `implied` too. A configuration with a value of
    `other` describes another architecture, in spite of its name. `dense` names, by task, a matrix
    before the head.
    """

    build: Callable[[Fields], Model]
    style: Style
    defaults: Mapping[str, Any]
    needed: tuple[str, ...] = WITH_FFN
    names: Mapping[str, str] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    dense: Mapping[str, str] = field(default_factory=dict)
    name: str = ""  # `families` sets it


Part = tuple[Tensor, ...]


def in_layers(prefix: str, layers: Iterable[int], part: Part) -> Part:
    """Return the tensors of a part, repeated in `layers` under `prefix`."""
    numbers = tuple(layers)
    return tuple(
        replace(t, name=f"{prefix}.{{}}.{t.name}", layers=numbers) for t in part if numbers
    )


def linear(
    name: str,
    n_in: int,
    n_out: int,
    module: Module,
    split: Split = "none",
    *,
    bias: bool = False,
    transposed: bool = False,
) -> Part:
    """Return a matrix, and its bias: (n_out, n_in) of nn.Linear, `transposed` of Conv1D."""
    shape = (n_in, n_out) if transposed else (n_out, n_in)
    weight = Tensor(f"{name}.weight", shape, module, "linear", split, n_in, n_out)
    bias_split: Split = "none" if split == "rows" else split
    return (weight, *vector(f"{name}.bias", n_out, module, bias_split)) if bias else (weight,)


def vector(name: str, width: int, module: Module, split: Split = "none") -> Part:
    """Return a vector."""
    return (Tensor(name, (width,), module, "vector", split),)


def norm(name: str, width: int, *, bias: bool = False) -> Part:
    """Return the weight of a norm, and the bias that LayerNorm has."""
    weight = vector(f"{name}.weight", width, "norm")
    return (*weight, *vector(f"{name}.bias", width, "norm")) if bias else weight


def norms(shape: Shape, *names: str, bias: bool = False) -> Part:
    """Return norms over the hidden size."""
    return tuple(tensor for name in names for tensor in norm(name, shape.hidden, bias=bias))


def embedding(name: str, rows: int, width: int, split: Split = "vocabulary") -> Part:
    """Return a lookup table, (rows, width)."""
    return (Tensor(f"{name}.weight", (rows, width), "embedding", "embedding", split, rows, width),)


def head(shape: Shape, name: str = "lm_head", *, bias: bool = False) -> Part:
    """Return the matrix of the logits. A tied head has no matrix, only the bias."""
    if not shape.tied:
        return linear(name, shape.hidden, shape.vocabulary, "head", "vocabulary", bias=bias)
    return vector(f"{name}.bias", shape.vocabulary, "head", "vocabulary") if bias else ()


def attention(
    s: Shape,
    qkv: Sequence[str],
    out: str,
    *,
    bias: bool = False,
    out_bias: bool = False,
    transposed: bool = False,
) -> Part:
    """Return the matrices of queries, keys, values (or one of all three), and output."""
    widths = [s.query_width, s.kv_width, s.kv_width]
    widths = widths if len(qkv) > 1 else [sum(widths)]
    into = (
        linear(name, s.hidden, width, "attention", "columns", bias=bias, transposed=transposed)
        for name, width in zip(qkv, widths, strict=True)
    )
    return (
        *(tensor for matrix in into for tensor in matrix),
        *linear(
            out, s.query_width, s.hidden, "attention", "rows", bias=out_bias, transposed=transposed
        ),
    )


def feed_forward(
    hidden: int,
    ffn: int,
    up: Iterable[str],
    down: str,
    *,
    fused: bool = False,
    bias: bool = False,
    transposed: bool = False,
) -> Part:
    """Return the matrices into and out of a feed-forward layer; `fused`: one is gate and up."""
    width = 2 * ffn if fused else ffn
    into = (
        linear(name, hidden, width, "mlp", "columns", bias=bias, transposed=transposed)
        for name in up
    )
    return (
        *(tensor for matrix in into for tensor in matrix),
        *linear(down, ffn, hidden, "mlp", "rows", bias=bias, transposed=transposed),
    )
