"""Compares tokmill's samples with a framework's, one by one, and counts them by cause."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING

from tests.oracles.masks_ours import Ours, Refused
from tokmill.tokenizer.control_tokens import added_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.masks_ours import Case, DataSet, Outcome
    from tests.oracles.transformers_chat import TransformersChat
    from tokmill.chat.conversation import Conversation

CONTROL = "control token in text"
"""A message holds a control token's string. For tokmill it is text; the frameworks' tokenizers make
it that token, and so does tokmill with `control_tokens_in_text = parse`."""

WEIGHTS = "the record's own switches"
"""A turn says whether it is trained (`train`, `weight`, a prompt); the frameworks do not ask."""

DEVELOPER = "role developer"
"""A template that does not know it gets a system message; the frameworks hand it on as it is."""

_THINK = "</think>"
"""Not a token of every tokenizer; minimind's template takes it for the end of reasoning."""


@dataclass(slots=True)
class Row:
    """The counts of one comparison.

    `refused`: by both sides. `explained`: by reason. `first`: the first difference, in words.
    """

    equal: int = 0
    refused: int = 0
    different: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    first: str = ""


class Comparison:
    """One case: both sides, loaded once for all data sets."""

    def __init__(self, case: Case, reference: TransformersChat) -> None:
        self._reference = reference
        self._ours = Ours(case, parse=False)
        self._parsing = Ours(case, parse=True)
        added = [string for string in added_tokens(self._ours.tokenizer) if string.strip()]
        self._control = sorted({*added, _THINK})

    def row(self, data: DataSet) -> Row:
        """Compare all samples of a data set."""
        row = Row()
        theirs = self._reference.outcomes(data.conversations)
        ours = self._ours.outcomes(data.texts)
        for i, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            if isinstance(their, Refused) and isinstance(our, Refused):
                row.refused += 1
            elif their == our:
                row.equal += 1
            elif reason := self._reason(data.conversations[i], their, our):
                row.explained[reason] += 1
            else:
                row.different += 1
                row.first = row.first or f"record {i + 1}: {difference(their, our)}"
        return row

    def _reason(self, conversation: Conversation, theirs: Outcome, ours: Outcome) -> str:
        """Name the listed causes of a difference, as few as will do; '' if they do not explain it.

        A cause is one if the two are equal once it is taken away.
        """
        possible = self._possible(conversation)
        for n in range(len(possible) + 1):
            for causes in combinations(possible, n):
                their, our = self._without(causes, conversation, theirs, ours)
                if their == our:
                    return " + ".join(causes)
                if reason := self._reference.explain(conversation, their, our):
                    return " + ".join((*causes, reason))
        return ""

    def _possible(self, conversation: Conversation) -> list[str]:
        found = [CONTROL] if holds(conversation, self._control) else []
        if any(weight is not None for weight in conversation.weights):
            found.append(WEIGHTS)
        if any(message["role"] == "developer" for message in conversation.messages):
            found.append(DEVELOPER)
        return found

    def _without(
        self, causes: Sequence[str], conversation: Conversation, theirs: Outcome, ours: Outcome
    ) -> tuple[Outcome, Outcome]:
        """Return both outcomes with causes taken away; those that are known where none is."""
        changed = conversation
        if DEVELOPER in causes:
            changed = with_system(changed)
        if changed is not conversation:
            theirs = self._reference.outcomes([changed])[0]
        changed = conversation  # of ours, developers are system already
        if WEIGHTS in causes:
            changed = replace(changed, weights=[None] * len(changed.messages))
        if CONTROL in causes or changed is not conversation:
            ours = (self._parsing if CONTROL in causes else self._ours).outcome(changed)
        return theirs, ours


def with_system(conversation: Conversation) -> Conversation:
    """Return a conversation whose developer is a system."""
    messages = [
        {**message, "role": "system"} if message["role"] == "developer" else message
        for message in conversation.messages
    ]
    return replace(conversation, messages=messages)


def holds(conversation: Conversation, strings: Sequence[str]) -> bool:
    """Return whether a text of a conversation holds one of the strings."""
    text = json.dumps([conversation.messages, conversation.tools], ensure_ascii=False)
    return any(json.dumps(string, ensure_ascii=False)[1:-1] in text for string in strings)


def difference(theirs: Outcome, ours: Outcome) -> str:
    """Return a line on how two outcomes differ."""
    if isinstance(theirs, Refused) or isinstance(ours, Refused):
        said = [x.reason if isinstance(x, Refused) else "a sample" for x in (ours, theirs)]
        return f"ours: {said[0]}; theirs: {said[1]}"
    for name, a, b in (("id", ours.ids, theirs.ids), ("mask", ours.mask, theirs.mask)):
        for i, (x, y) in enumerate(zip_longest(a, b)):
            if x != y:
                return f"{name} {i} of {len(a)} is {x}, theirs of {len(b)} is {y}"
    return "none"
