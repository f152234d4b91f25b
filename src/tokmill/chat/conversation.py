"""A conversation as every template sees it, whatever the record looked like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.chat.segments import Placeholder

Message = dict[str, Any]
"""`role` (system, developer, user, assistant, tool) and `content` (str) always; where the record
has them: `reasoning_content` (str), `tool_calls` (list of {"type": "function", "function": {"name":
str, "arguments": object}}, `id` where there was one), `name`, `tool_call_id`,
`with_input` (true where it is an instruction with an input under a heading)."""


class ChatError(Exception):
    """A record that cannot become a sample: the short reason of its reject, and a message.

    `is_drop`: it is whole, but a setting leaves it out.
    """

    def __init__(self, reason: str, message: str, *, is_drop: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_drop = is_drop


def count_differs(n_replies: int, n_spans: int) -> ChatError:
    """Return the error for a template that does not mark one span for each reply."""
    return ChatError(
        "turns and spans differ",
        f"{n_spans} generation blocks for {n_replies} assistant messages: cannot match them",
    )


@dataclass(slots=True)
class Conversation:
    """Messages in order, at least one, and what else the record says.

    Not frozen, which would take 1 µs a record more: only its reader may change it.

    `weights`: one for each message, None where the record does not say: the mask rule decides.
    `tools`: descriptions of functions, or None. `unread`: keys of the record that are filled and
    that nothing reads, sorted. `placeholders`: characters in the texts that are control tokens;
    `hides_tags`: whether a template must not see those in the last message. `variables`: those for
    the template, or None. `is_text`: the record is one text, which may be a rendered conversation.
    """

    messages: list[Message]
    weights: list[float | None]
    tools: list[Any] | None = None
    unread: tuple[str, ...] = ()
    placeholders: Mapping[str, Placeholder] = field(default_factory=dict)
    hides_tags: bool = False
    variables: dict[str, Any] | None = None
    is_text: bool = False
