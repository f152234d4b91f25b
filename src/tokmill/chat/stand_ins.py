"""Stand-ins: private-use characters in a text that become control tokens once it is rendered.

Text is data: a control token's string in a message is written as text. Where it is meant as the
token, a character stands for it until the template has written the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import ChatError
from tokmill.chat.shield import texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.inline import Span, Tags
    from tokmill.chat.segments import Kind

_RANGE = range(0xF8FF, 0xF7FF, -1)
"""The end of the private use area: the marks of `shield` come from its beginning."""


class StandIn(NamedTuple):
    """What a character stands for: a tag, the kind of what it is around, whether it closes that."""

    string: str
    kind: Kind
    closes: bool


class Tagged(NamedTuple):
    """The stand-ins of a conversation, and whether a Jinja template must not see them as tags.

    It sees them as tags in all messages but the last, which is the reply to be trained: there
    many a template would cut them out, with what is between them.
    """

    stand_ins: Mapping[str, StandIn]
    hides_last: bool

    def seen(self, messages: Sequence[Message], *, prompt: bool) -> Sequence[Message]:
        """Return messages as the template is to see them; with a prompt, none is the reply."""
        if not self.stand_ins:
            return messages
        n_seen = len(messages) - (self.hides_last and not prompt)
        return [
            {**message, "content": self.written(message["content"])} if i < n_seen else message
            for i, message in enumerate(messages)
        ]

    def written(self, text: str) -> str:
        """Return a text with the tags that its stand-ins stand for."""
        for character, stand_in in self.stand_ins.items():
            text = text.replace(character, stand_in.string)
        return text


UNTAGGED = Tagged({}, hides_last=False)


class StandIns:
    """Chooses the stand-ins of one conversation, and puts them into its texts.

    `reserved`: what the template writes by itself. `value`: all that the conversation says, as JSON
    has it; it is looked at when a stand-in is asked for.
    """

    def __init__(self, reserved: str, value: Any) -> None:
        self._free = _free_characters(reserved, value)
        self._of_tags: dict[tuple[Tags, Kind], tuple[str, str]] = {}
        self.chosen: dict[str, StandIn] = {}
        """By character."""

    def put(self, text: str, blocks: Sequence[tuple[Span, Span]], tags: Tags, kind: Kind) -> str:
        """Return a text with stand-ins where the tags of blocks stand.

        Raises:
            ChatError: the texts hold all characters there are.
        """
        opens, closes = self._pair(tags, kind)
        parts, end = [], 0
        for (start, inner), (stop, behind) in blocks:
            parts += [text[end:start], opens, text[inner:stop], closes]
            end = behind
        return "".join([*parts, text[end:]])

    def _pair(self, tags: Tags, kind: Kind) -> tuple[str, str]:
        pair = self._of_tags.get((tags, kind))
        if pair is None:
            opens, closes = next(self._free, ""), next(self._free, "")
            if not closes:
                raise ChatError(
                    "private-use characters",
                    "the texts hold all characters of the private use area",
                )
            pair = self._of_tags[tags, kind] = opens, closes
            self.chosen[opens] = StandIn(tags[0], kind, closes=False)
            self.chosen[closes] = StandIn(tags[1], kind, closes=True)
        return pair


def _free_characters(reserved: str, value: Any) -> Iterator[str]:
    texts = [reserved, *texts_of(value)]
    for character in map(chr, _RANGE):
        if not any(character in text for text in texts):
            yield character
