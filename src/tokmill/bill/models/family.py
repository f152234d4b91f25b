"""What a model family is: one specification, from which all of its bills follow.

A family is one file in `families/`, named as its model_type, that declares `FAMILY`. `registry`
finds it by that name or by the name of an architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tokmill.bill.models.model import Model, Style
from tokmill.errors import UsageError

LARGEST = 1 << 31
MOST = {"num_hidden_layers": 10_000, "num_experts": 100_000}
"""No model has more; a mistyped number would fill memory with a list of layers."""


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

    def labels(self, f: Fields) -> int | None:
        """Return the number of outputs, None for the vocabulary."""
        if self.features == "vocabulary":
            return None
        if self.features != "labels":
            return self.features
        return len(f.table("id2label")) or f.count("num_labels", 2)


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


NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
WITH_FFN = (*NEEDED, "intermediate_size")
WITH_EXPERTS = (*NEEDED, "num_experts", "num_experts_per_tok", "moe_intermediate_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All that the bills need to know of a family.

    `heads` are its architectures; any other has the head of a language model. `defaults` are those
    of its configuration class in transformers 5.23. `names` maps the family's own keys to the
    common ones. A model given by numbers needs the keys `needed`, () if numbers cannot describe the
    family, and takes the values `implied` too.
    """

    build: Callable[[Fields], Model]
    heads: Mapping[str, Head]
    style: Style
    defaults: Mapping[str, Any]
    needed: tuple[str, ...] = WITH_FFN
    names: Mapping[str, str] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""  # that of its file; `registry` sets it

    def common(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with the common keys; the family's own keys win over them."""
        renamed = {self.names[key]: value for key, value in config.items() if key in self.names}
        return {**config, **renamed}
