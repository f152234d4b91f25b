"""A conversation in the one form that templates get, and the error of a record that has none."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.chat.segments import Placeholder

Message = dict[str, Any]
"""Always `role` (system, developer, user, assistant, tool) and `content` (str). If the record has
them: `reasoning_content` (str), `tool_calls` (list of {"type": "function", "function": {"name":
str, "arguments": object}}, perhaps with `id` and other keys), `name`, `tool_call_id`, `with_input`
(true for an instruction with an input under a heading), and all other keys of the record's message
that nothing else reads: a template may."""


OF_CALL = frozenset(("id", "type", "function", "name", "arguments"))
"""The keys of a tool call, and of the function in it, that are read; others go to the template."""

OF_CALLS = "tool_calls[]."
"""What stands before the names of the others."""

Counts = defaultdict[str, int]
"""By the name of a counter; made faster than `Counter`."""

PART_WEIGHTS = "weights inside a message"
"""The reason of a record whose parts have weights that cannot be kept."""


class PartWeight(NamedTuple):
    """The weight of a part of a message: of the characters `start:stop` of its text under `key`.

    `factor`: multiplies the weight of the message, if the record gives it one.
    """

    message: Message
    key: str
    start: int
    stop: int
    factor: float


class ChatError(Exception):
    """A record that cannot become a sample: the short reason of its reject, and a message.

    `is_drop`: the record is not broken, but a setting leaves it out.
    """

    def __init__(self, reason: str, message: str, *, is_drop: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_drop = is_drop

    def __reduce__(self) -> tuple[Callable[..., ChatError], tuple[str, str]]:
        """Return how to make it in another process."""
        return partial(ChatError, is_drop=self.is_drop), (self.reason, self.message)


@dataclass(slots=True)
class Extras:
    """What a record says beyond what is read of it: its template gets that.

    `keys`: those of messages, which stand in the messages; `of_calls`: those of their tool calls,
    which stand in these, or in their functions. `record`: keys of the record itself.
    `bare`: of each message that has nothing but such keys: these, and the error if the template
    takes none of them. `has_calls`: whether a message has tool calls. `noticed`: counts of what was
    done to the messages while they were read.
    """

    keys: set[str] = field(default_factory=set)
    of_calls: set[str] = field(default_factory=set)
    record: dict[str, Any] = field(default_factory=dict)
    bare: list[tuple[frozenset[str], ChatError]] = field(default_factory=list)
    has_calls: bool = False
    noticed: Counts = field(default_factory=partial(defaultdict, int))

    def add(self, other: Extras) -> Extras:
        """Add what other messages of the same record say; return both."""
        self.keys |= other.keys
        self.of_calls |= other.of_calls
        self.bare += other.bare
        self.has_calls |= other.has_calls
        for name, n in other.noticed.items():
            self.noticed[name] += n
        return self


def count_differs(n_replies: int, n_spans: int) -> ChatError:
    """Return the error for a template that does not mark one span for each reply."""
    return ChatError(
        "turns and spans differ",
        f"{plural(n_spans, 'generation block')} for {plural(n_replies, 'assistant message')}: "
        "cannot match them",
    )


@dataclass(slots=True)
class Conversation:
    """Messages in order, at least one, and the rest of the record.

    Not frozen: that would cost 1 µs per record. Only its reader may change it.

    `weights`: one for each message, None where the mask rule decides. `tools`: descriptions of
    functions. `unread`: filled keys of the record that nothing reads, sorted. `placeholders`:
    characters in the texts that stand for tags; `hides_tags`: whether a template must not see those
    of the last message. `variables`: for the template. `is_text`: the record is a single text,
    perhaps a rendered conversation. `parts`: those with a weight of their own, in order. `extras`:
    what else the record says.
    """

    messages: list[Message]
    weights: list[float | None]
    tools: list[Any] | None = None
    unread: tuple[str, ...] = ()
    placeholders: Mapping[str, Placeholder] = field(default_factory=dict)
    hides_tags: bool = False
    variables: dict[str, Any] | None = None
    parts: list[PartWeight] = field(default_factory=list)
    is_text: bool = False
    extras: Extras = field(default_factory=Extras)
