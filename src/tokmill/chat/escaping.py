"""Characters that keep text apart from control tokens while a template renders it.

They are of U+FDD0 to U+FDEF, which Unicode keeps for the inside of programs: no text has them.

Escaping: a separator goes behind the first character of every control string in the messages, but
not into the strings that the template writes itself. After rendering, intact strings are control
tokens, and the separators are removed from the rest:

    message     what is <|end|>?
    rendering   <|user|>what is <⌇|end|>?<|end|>
    read as     token <|user|>, text "what is <|end|>?", token <|end|>

A control string that the template makes of harmless texts, for example of a role between <| and |>,
is the token.

Placeholders: a message's string is text, but a tag of reasoning or of a tool call may be meant as
the token. A character takes its place until the template has written the message. Such characters
also stand at the edges of parts that have a weight of their own, where segments begin:

    content   [{"text": "bad ", "train": false}, {"text": "good"}]
    given     ⌇bad ⌇good
    segments  "bad " with weight 0, "good" with the weight of its turn
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tokmill.chat.conversation import PART_WEIGHTS, ChatError
from tokmill.chat.segments import Placeholder
from tokmill.tokenizer.markers import control_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokmill.chat.control_strings import Tags
    from tokmill.chat.conversation import Conversation
    from tokmill.chat.segments import Kind

Span = tuple[int, int]

Marks = tuple[str, str, str]
"""The characters before and behind a trained span, and the separator."""

MARKS: Marks = ("\ufdd0", "\ufdd1", "\ufdd2")
_PLACEHOLDERS = "".join(map(chr, range(0xFDD3, 0xFDF0)))

_USUAL = frozenset({"role", "content", "type", "function", "name", "arguments"})


class ControlEscaper:
    """Finds and escapes control strings."""

    marks = MARKS

    def __init__(self, control: Iterable[str], *, parse: bool) -> None:
        strings = [] if parse else sorted(filter(None, control))
        pattern = control_pattern(strings)
        self._search = re.compile(pattern).search
        # The lookahead also finds strings that overlap, such as "ab" and "ba" in "aba".
        self._starts = re.compile(f"(?={pattern})(.)", re.DOTALL)
        self._singles = [string for string in strings if len(string) == 1]

    def is_clean(self, value: Any) -> bool:
        """Return whether a value of JSON holds no control string and none of `marks`."""
        # One search over all texts: most are short, and a call costs more than searching them.
        # Marks apart: with them the pattern has no fixed beginning, and takes four times as long.
        text = "\0".join(texts_of(value))
        return not (any(mark in text for mark in MARKS) or self._search(text))

    def escaped(self, value: Any) -> Any:
        """Return a copy of a value with its control strings escaped."""
        texts = texts_of(value)
        _check_free(texts, MARKS)
        _check_unescaped(texts)
        single = next((token for token in self._singles for text in texts if token in text), None)
        if single is not None:
            raise ChatError(
                "control token in text",
                f"the control token {single!r} stands in a text; one of one character cannot be "
                "kept apart: parse control tokens in text, or leave the record out",
            )
        return self._copy(value, "\\1" + MARKS[2])

    def _copy(self, value: Any, separated: str) -> Any:
        """Return a copy; `separated` replaces the first character of each control string."""
        if type(value) is str:
            return self._starts.sub(separated, value)
        if type(value) is dict:
            return {
                self._copy(key, separated): self._copy(item, separated)
                for key, item in value.items()
            }
        if type(value) is list:
            return [self._copy(item, separated) for item in value]
        return value


_SEPARATOR = MARKS[2]
_QUOTED = quote(_SEPARATOR)
_ESCAPED_FORMS = (f"\\u{ord(_SEPARATOR):04x}", _QUOTED)
"""The separator as JSON or Python escape it, and as URLs quote it."""
_ESCAPED = re.compile(rf"(?<!\\)\\u{ord(_SEPARATOR):04x}|{re.escape(_QUOTED)}")


def with_separators(text: str) -> str:
    """Return a rendering whose template has escaped some separators with them as they were.

    Raises:
        ChatError: it has escaped them twice.
    """
    plain = _ESCAPED.sub(_SEPARATOR, text)
    _check_unescaped([plain])
    return plain


def _check_unescaped(texts: Iterable[str]) -> None:
    """Check that no text holds an escaped separator, which could not be told from ours."""
    if any(form in text for text in texts for form in _ESCAPED_FORMS):
        raise ChatError(
            "control token in text",
            "a control token's string stands in a text that the template escapes, so that it "
            "cannot be kept apart: parse control tokens in text, or leave the record out",
        )


def _check_free(texts: Iterable[str], characters: Iterable[str]) -> None:
    """Check that texts hold none of the characters."""
    for text in texts:
        if any(character in text for character in characters):
            raise ChatError(
                "noncharacters",
                "a text holds a character of U+FDD0 to U+FDEF, which are no text for Unicode: "
                "remove it",
            )


def texts_of(value: Any) -> list[str]:
    """Return all strings and keys of a value of JSON; the usual keys of messages are skipped."""
    texts = []
    values = [value]
    for item in values:
        kind = type(item)
        if kind is str:
            texts.append(item)
        elif kind is dict:
            values += item.values()
            texts += [key for key in item if key not in _USUAL]
        elif kind is list or kind is tuple:
            values += item
    return texts


class Placeholders:
    """Chooses placeholders that a conversation does not have, and puts them into its texts."""

    def __init__(self, conversation: Conversation) -> None:
        taken = conversation.placeholders
        if not taken:
            _check_free(texts_of([conversation.messages, conversation.tools]), _PLACEHOLDERS)
        self._free = (character for character in _PLACEHOLDERS if character not in taken)
        self._of_tags: dict[tuple[Tags, Kind], tuple[str, str]] = {}
        self.chosen: dict[str, Placeholder] = {}

    def put(self, text: str, blocks: Sequence[tuple[Span, Span]], tags: Tags, kind: Kind) -> str:
        """Return a text with placeholders for the tags of blocks."""
        opens, closes = self._pair(tags, kind)
        parts, end = [], 0
        for (start, inner), (stop, behind) in blocks:
            parts += [text[end:start], opens, text[inner:stop], closes]
            end = behind
        return "".join([*parts, text[end:]])

    def choose(self, placeholder: Placeholder) -> str:
        """Return a character that stands for a placeholder."""
        character = next(self._free, "")
        if not character:
            raise ChatError(PART_WEIGHTS, f"more than {len(_PLACEHOLDERS)} tags and weights")
        self.chosen[character] = placeholder
        return character

    def _pair(self, tags: Tags, kind: Kind) -> tuple[str, str]:
        pair = self._of_tags.get((tags, kind))
        if pair is None:
            opens = self.choose(Placeholder(tags[0], kind, closes=False))
            closes = self.choose(Placeholder(tags[1], kind, closes=True))
            pair = self._of_tags[tags, kind] = opens, closes
        return pair


def with_edges(conversation: Conversation) -> Conversation:
    """Return a conversation with placeholders at the edges of its parts."""
    placeholders = Placeholders(conversation)
    stop = placeholders.choose(Placeholder(""))
    factors = sorted({part.factor for part in conversation.parts})
    starts = {factor: placeholders.choose(Placeholder("", factor=factor)) for factor in factors}
    numbers = {id(message): i for i, message in enumerate(conversation.messages)}
    messages = list(conversation.messages)
    for (of_message, key), parts in groupby(conversation.parts, lambda p: (id(p.message), p.key)):
        i, pieces, end = numbers[of_message], [], 0
        text = messages[i][key]
        for part in parts:
            within = text[part.start : part.stop]
            pieces += [text[end : part.start], starts[part.factor], within, stop]
            end = part.stop
        messages[i] = {**messages[i], key: "".join([*pieces, text[end:]])}
    return replace(conversation, messages=messages, placeholders=placeholders.chosen)


def n_edges(conversation: Conversation) -> int:
    """Return how many edges stand in the messages of a conversation."""
    edges = [c for c, placeholder in conversation.placeholders.items() if not placeholder.string]
    texts = [m["content"] + m.get("reasoning_content", "") for m in conversation.messages]
    return sum(text.count(edge) for text in texts for edge in edges)


def cannot_carry() -> ChatError:
    """Return the error for a template that writes a message otherwise when it has edges."""
    return ChatError(
        PART_WEIGHTS,
        "the template, or the reading of tags, changes the text at the edge of a part that has a "
        "weight of its own: put white space at such edges, and think blocks, into parts without "
        "weights or messages of their own, or give the weight to the whole message",
    )
