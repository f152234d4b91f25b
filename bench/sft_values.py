"""What the two sides of a comparison of loss masks give, and what is counted of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.conversation import Conversation
    from tokmill.settings.sft import SftSettings


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids and their mask, target aligned: `mask[i]` says whether token i is a target."""

    ids: list[int]
    mask: list[int]


@dataclass(frozen=True, slots=True)
class Refused:
    """No sample, and why not."""

    reason: str


Outcome = Sample | Refused


@dataclass(frozen=True, slots=True)
class DataSet:
    """Records of a file as JSON texts, and the conversations that tokmill's schemas see in them."""

    name: str
    texts: list[str]
    conversations: list[Conversation]


@dataclass(frozen=True, slots=True)
class Case:
    """What one row compares.

    `tokenizer`: file or directory; `eos`, `bos`: their strings, '' for the configured ones.
    `settings`: tokmill's, with the preset and the template (a built-in one or a file).
    """

    tokenizer: Path
    settings: SftSettings
    template: str
    eos: str = ""
    bos: str = ""


class Reference(Protocol):
    """The other side: a framework's own code.

    `searches_ids`: it finds turns by patterns in the ids of the whole conversation.
    """

    searches_ids: bool

    def outcomes(self, conversations: Sequence[Conversation]) -> list[Outcome]:
        """Return what the framework makes of each conversation."""

    def explain(self, conversation: Conversation, theirs: Outcome, ours: Outcome) -> str:
        """Name the listed reason for which the two differ, by a test of that cause; '' if none."""


@dataclass(slots=True)
class Row:
    """The counts of one case and data set.

    `refused`: by both sides, of them `reasons`. `explained`: by reason. `first`: the first
    difference, in words.
    """

    preset: str
    template: str
    tokenizer: str
    data: str
    samples: int = 0
    tokens: int = 0
    trained: int = 0
    equal: int = 0
    refused: int = 0
    different: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    first: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "explained": dict(self.explained), "reasons": dict(self.reasons)}
