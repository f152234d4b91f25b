"""A framework that is asked for one conversation at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.sft_values import Outcome, Refused, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.chat.conversation import Conversation


class CannotSayError(Exception):
    """The framework has no form for such a conversation; the message says what it has."""


class OneByOne:
    """Asks `ask`, whose exceptions are refusals.

    `causes`: tests of the listed reasons. That it has no form for a conversation is one as well.
    """

    def __init__(
        self,
        ask: Callable[[Conversation], Sample],
        causes: Mapping[str, Callable[[Conversation, Sample, Sample], bool]] | None = None,
        *,
        searches_ids: bool = False,
    ) -> None:
        self.searches_ids = searches_ids
        self._ask = ask
        self._causes = causes or {}
        self._no_form: set[str] = set()

    def outcomes(self, conversations: Sequence[Conversation]) -> list[Outcome]:
        """Return what the framework makes of each conversation."""
        return [self._one(conversation) for conversation in conversations]

    def explain(self, conversation: Conversation, theirs: Outcome, ours: Outcome) -> str:
        """Name the first listed reason whose test says that it is the cause."""
        if isinstance(ours, Refused):
            return ""
        if isinstance(theirs, Refused):
            return theirs.reason if theirs.reason in self._no_form else ""
        for name, is_cause in self._causes.items():
            if is_cause(conversation, theirs, ours):
                return name
        return ""

    def _one(self, conversation: Conversation) -> Outcome:
        try:
            return self._ask(conversation)
        except CannotSayError as error:
            self._no_form.add(str(error))
            return Refused(str(error))
        except Exception as error:  # a framework says no with what it has: asserts, KeyErrors
            return Refused(" ".join(str(error).split())[:120] or type(error).__name__)
