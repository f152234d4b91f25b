"""Control strings in message texts, broken apart so that the rendering shows which are text.

A private-use character, the break, goes behind the first character of every control string in the
messages. What the template writes around them stays whole. After rendering, whole strings are
control tokens, and the breaks are taken out of the rest:

    message     what is <|end|>?
    rendering   <|user|>what is <⌇|end|>?<|end|>
    read as     token <|user|>, text "what is <|end|>?", token <|end|>

A template that itself makes a control string of texts that hold none, say by putting a role between
<| and |>, or by lower, means the token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tokmill.chat.control_strings import control_pattern
from tokmill.chat.conversation import ChatError
from tokmill.chat.segments import Placeholder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.inline_blocks import Span, Tags
    from tokmill.chat.segments import Kind

Marks = tuple[str, str, str]
"""Characters before and behind a trained span, and the break."""

_PRIVATE_USE = range(0xE000, 0xF900)
_USUAL = frozenset({"role", "content", "type", "function", "name", "arguments"})


class ControlEscaper:
    """Finds and breaks control strings; `reserved` holds what a template may write by itself."""

    def __init__(self, control: Iterable[str], reserved: str, *, parse: bool) -> None:
        everything = sorted(filter(None, control))
        strings = [] if parse else everything
        pattern = control_pattern(strings)
        self._search = re.compile(pattern).search
        # Looking ahead finds strings that overlap as well: breaking "ab" in "aba" must break "ba".
        self._starts = re.compile(f"(?={pattern})(.)", re.DOTALL)
        self._singles = [string for string in strings if len(string) == 1]
        self._reserved = "\0".join([reserved, *everything])
        self.marks = _free_marks([self._reserved])
        """The marks of records that hold none of them."""

    def is_clean(self, value: Any) -> bool:
        """Say whether no string in a value of JSON holds a control string or one of `marks`."""
        # One search of all texts end to end: most are short, and a call costs more than they do.
        text = "\0".join(texts_of(value))
        return not (any(mark in text for mark in self.marks) or self._search(text))

    def broken(self, value: Any) -> tuple[Any, Marks]:
        """Give a copy of a value with its control strings broken, and the marks that fit it.

        Raises:
            ChatError: its texts leave no private-use character, or a control token of one
                character, which cannot be broken, stands in them.
        """
        texts = texts_of(value)
        single = next((s for s in self._singles for text in texts if s in text), None)
        if single is not None:
            raise ChatError(
                "control token in text",
                f"the control token {single!r} stands in a text; one of one character cannot be "
                "kept apart: parse control tokens in text, or leave the record out",
            )
        marks = _free_marks([self._reserved, *texts])
        return self._copy(value, "\\1" + marks[2]), marks

    def _copy(self, value: Any, with_break: str) -> Any:
        if type(value) is str:
            return self._starts.sub(with_break, value)
        if type(value) is dict:
            return {
                self._copy(key, with_break): self._copy(item, with_break)
                for key, item in value.items()
            }
        if type(value) is list:
            return [self._copy(item, with_break) for item in value]
        return value


def escaped_forms(mark: str) -> tuple[str, str]:
    """Give what JSON (or Python) escapes and URL quoting make of a mark."""
    return f"\\u{ord(mark):04x}", quote(mark)


def _free_marks(texts: list[str]) -> Marks:
    """Choose three private-use characters that no text holds, not even escaped.

    Raises:
        ChatError: there are fewer.
    """
    found: list[str] = []
    for code in _PRIVATE_USE:
        mark = chr(code)
        forms = (mark, *escaped_forms(mark))
        if not any(form in text for form in forms for text in texts):
            found.append(mark)
        if len(found) == 3:
            return found[0], found[1], found[2]
    raise ChatError(
        "private-use characters", "the texts hold all characters of the private use area"
    )


def texts_of(value: Any) -> list[str]:
    """Give all strings of a value of JSON, keys too, but for those that every message has."""
    texts = []
    values = [value]
    for item in values:
        kind = type(item)
        if kind is str:
            texts.append(item)
        elif kind is dict:
            values += item.values()
            texts += [key for key in item if key not in _USUAL]
        elif kind is list:
            values += item
    return texts


_RANGE = range(0xF8FF, 0xF7FF, -1)
"""The end of the private use area: the marks of `shield` come from its beginning."""


class HiddenTags(NamedTuple):
    """The stand-ins of a conversation, and whether a Jinja template must not see them as tags.

    It sees them as tags in all messages but the last, which is the reply to be trained: there
    many a template would cut them out, with what is between them.
    """

    placeholders: Mapping[str, Placeholder]
    hides_last: bool

    def seen(self, messages: Sequence[Message], *, prompt: bool) -> Sequence[Message]:
        """Return messages as the template is to see them; with a prompt, none is the reply."""
        if not self.placeholders:
            return messages
        n_seen = len(messages) - (self.hides_last and not prompt)
        return [
            {**message, "content": self.written(message["content"])} if i < n_seen else message
            for i, message in enumerate(messages)
        ]

    def written(self, text: str) -> str:
        """Return a text with the tags that its stand-ins stand for."""
        for character, placeholder in self.placeholders.items():
            text = text.replace(character, placeholder.string)
        return text


NO_HIDDEN_TAGS = HiddenTags({}, hides_last=False)


class Placeholders:
    """Chooses the stand-ins of one conversation, and puts them into its texts.

    `reserved`: what the template writes by itself. `value`: all that the conversation says, as JSON
    has it; it is looked at when a stand-in is asked for.
    """

    def __init__(self, reserved: str, value: Any) -> None:
        self._free = _free_characters(reserved, value)
        self._of_tags: dict[tuple[Tags, Kind], tuple[str, str]] = {}
        self.chosen: dict[str, Placeholder] = {}
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
            self.chosen[opens] = Placeholder(tags[0], kind, closes=False)
            self.chosen[closes] = Placeholder(tags[1], kind, closes=True)
        return pair


def _free_characters(reserved: str, value: Any) -> Iterator[str]:
    texts = [reserved, *texts_of(value)]
    for character in map(chr, _RANGE):
        if not any(character in text for text in texts):
            yield character
