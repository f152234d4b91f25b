"""Tags inside the text of replies: which of them a template knows, and replies read accordingly.

A small chat is rendered to see how a template writes a reply that begins with a block of reasoning.
The first of these that fits is used:

    field     it writes a message's reasoning between the same tags (Qwen3, ChatML, minimind): the
              block becomes the message's reasoning
    hidden    it keeps the text, or drops the block as in earlier turns (DeepSeek-R1): placeholders
              hide the tags of the last reply from it, and become control tokens afterwards
    seen      the template reads the tags itself, as in the framework that a preset follows
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.escaping import Placeholders
from tokmill.chat.inline_blocks import (
    CALL_TAGS,
    REASONING_TAGS,
    leading_block,
    opened,
    split_calls,
    split_reasoning,
    trailing_blocks,
)
from tokmill.chat.lost import LOST_REASONING
from tokmill.chat.segments import Kind, Segments

if TYPE_CHECKING:
    from collections import Counter

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Message
    from tokmill.chat.inline_blocks import Tags
    from tokmill.chat.template_source import ChatTemplate
    from tokmill.settings.sft import SftSettings

_TEXT_PRESETS = frozenset({"torchtune", "nanochat", "baby-llama2"})
"""Frameworks that take a whole message as text."""

_SEEN_PRESETS = frozenset({"trl", "llamafactory"})
"""Frameworks that give contents unchanged to the template, and then look for control tokens."""

_QUESTION, _REPLY, _THOUGHT, _NAME, _VALUE = "Qx1", "Rz3", "Tw5", "Fu7", "Vs9"
_REASONED = {"content": _REPLY, "reasoning_content": _THOUGHT}
_WRITTEN_THOUGHT = re.compile(
    rf"(?P<tag>(?P<bracket>[<\[])(?P<name>[^<>\[\]/\s]+)(?P<close>[>\]]))\s*{_THOUGHT}\s*"
    r"(?P<end>(?P=bracket)/(?P=name)(?P=close))"
)
_WRITTEN_CALL = re.compile(rf"{CALL_TAGS[0]}\s*(\{{.*?\}})\s*{CALL_TAGS[1]}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InlineForms:
    """The tags recognised in the text of replies, and their treatment.

    `fields`: tags whose leading block becomes the message's reasoning; `empty`: the reasoning of
    an empty block. `tokens`: tags of leading blocks that stay in place as control tokens. `hides`:
    whether these are hidden from the template in the last reply. `after_open`: the newlines that
    the generation prompt puts behind such a tag, None if it writes no tag. If it does, replies that
    have the closing tag alone get the opening one, too. `calls`: `field` or
    `token` for calls that end a reply, '' if they are text. `loses_tokens`: whether the template
    leaves out reasoning between `tokens` of its last reply.
    """

    fields: tuple[Tags, ...] = ()
    empty: str = ""
    tokens: tuple[Tags, ...] = ()
    hides: bool = False
    after_open: str | None = None
    calls: str = ""
    loses_tokens: bool = False

    @property
    def closing_tags(self) -> list[str]:
        """Return closing tags; every text with something to recognise has at least one of them."""
        ends = [tags[1] for tags in chain(self.fields, self.tokens)]
        return list(dict.fromkeys([*ends, CALL_TAGS[1]] if self.calls else ends))


def inline_forms(
    settings: SftSettings, template: ChatTemplate, vocabulary: Vocabulary
) -> InlineForms:
    """Return the tags to recognise with this template."""
    if settings.inline_tags == "fields":
        fields = tuple(dict.fromkeys([*_field_tags(template, vocabulary), *REASONING_TAGS]))
        empty = _empty(template, vocabulary, fields[0])
        return InlineForms(fields, empty, calls="field")
    # With parse, all such strings are control tokens, and templates see them.
    if settings.inline_tags == "text" or settings.preset in _TEXT_PRESETS or vocabulary.parse:
        return InlineForms()
    fields = () if settings.preset in _SEEN_PRESETS else _field_tags(template, vocabulary)
    known = [tags for tags in REASONING_TAGS if _knows(template, vocabulary, tags)]
    tokens = tuple(tags for tags in known if tags not in fields)
    hides = bool(tokens) and settings.preset not in _SEEN_PRESETS
    hides = hides and all(_keeps_hidden(template, vocabulary, tags) for tags in tokens)
    return InlineForms(
        fields,
        _empty(template, vocabulary, fields[0]) if fields else "",
        tokens,
        hides,
        _after_open(template, tokens),
        _calls(settings, template, vocabulary),
        not hides
        and any(
            _loses(template, vocabulary, {"content": f"{start}{_THOUGHT}{end}{_REPLY}"})
            for start, end in tokens
        ),
    )


def _field_tags(template: ChatTemplate, vocabulary: Vocabulary) -> tuple[Tags, ...]:
    """Return the tags that a template writes around the reasoning of a reply, if it writes it."""
    text = _written(template, vocabulary, _REASONED)
    found = _WRITTEN_THOUGHT.search(text)
    return () if found is None else ((found["tag"], found["end"]),)


def _empty(template: ChatTemplate, vocabulary: Vocabulary, tags: Tags) -> str:
    """Return the reasoning for which a template writes an empty block: '' or a newline."""
    for empty in ("", "\n"):
        message = {"content": _REPLY, "reasoning_content": empty}
        if tags[1] in _written(template, vocabulary, message):
            return empty
    return ""


def _loses(template: ChatTemplate, vocabulary: Vocabulary, reply: Message) -> bool:
    """Return whether a template writes a reply without its reasoning."""
    text = _written(template, vocabulary, reply)
    return _REPLY in text and _THOUGHT not in text


def _knows(template: ChatTemplate, vocabulary: Vocabulary, tags: Tags) -> bool:
    """Return whether a tag is a control token, or the template looks for it."""
    literals = getattr(template, "literals", "")
    return any(tag in vocabulary.control for tag in tags) or tags[1] in literals


def _keeps_hidden(template: ChatTemplate, vocabulary: Vocabulary, tags: Tags) -> bool:
    """Return whether a template writes a text without a tag of its own before it."""
    text = _written(template, vocabulary, {"content": _THOUGHT})
    before = text.partition(_THOUGHT)[0].rstrip()
    return _THOUGHT in text and not before.endswith(tags)


def _after_open(template: ChatTemplate, tokens: tuple[Tags, ...]) -> str | None:
    prompt: str = getattr(template, "generation_prompt", "")
    text = prompt.rstrip("\n")
    return prompt[len(text) :] if any(text.endswith(tags[0]) for tags in tokens) else None


def _calls(settings: SftSettings, template: ChatTemplate, vocabulary: Vocabulary) -> str:
    as_tokens = "token" if _knows(template, vocabulary, CALL_TAGS) else ""
    if settings.preset != "tokmill":
        return as_tokens
    call = {"name": _NAME, "arguments": {"k": _VALUE}}
    message = {"content": "", "tool_calls": [{"type": "function", "function": call}]}
    found = _WRITTEN_CALL.search(_written(template, vocabulary, message))
    try:
        is_field = found is not None and json.loads(found[1]) == call
    except ValueError:
        is_field = False
    return "field" if is_field else as_tokens


def _written(template: ChatTemplate, vocabulary: Vocabulary, reply: Message) -> str:
    """Return the rendering of a question and a reply; '' if the template refuses them."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": _QUESTION},
        {"role": "assistant", **reply},
    ]
    text_of = getattr(template, "text_of", None)
    try:
        if text_of is not None:
            return str(text_of(messages))
        segments = Segments(vocabulary.control)
        segments.begin_sample()
        template.render(Conversation(messages, [None, None]), segments)
        return "".join(segments.parts)
    except ChatError:
        return ""


READ_REASONING = "replies whose leading think block was read as reasoning"
READ_CALLS = "replies whose tool_call blocks were read as calls"


class InlineReader:
    """Reads reasoning and calls in the text of replies; threads may share one.

    `reserved`: the text that the template writes itself.
    """

    def __init__(self, forms: InlineForms, reserved: str) -> None:
        self._forms = forms
        self._reserved = reserved
        self._closing_tags = forms.closing_tags

    def read(self, conversation: Conversation, counts: Counter[str]) -> Conversation:
        """Return a conversation as the template is to get it; add what was read to `counts`."""
        messages = conversation.messages
        if not any(self._may_hold(message) for message in messages):
            return conversation
        placeholders = Placeholders(self._reserved, [messages, conversation.tools])
        return replace(
            conversation,
            messages=[
                self._read(message, placeholders, counts) if self._may_hold(message) else message
                for message in messages
            ],
            placeholders={**conversation.placeholders, **placeholders.chosen},
            hides_tags=self._forms.hides,
        )

    def _may_hold(self, message: Message) -> bool:
        content = message["content"]
        return message["role"] == "assistant" and any(tag in content for tag in self._closing_tags)

    def _read(self, message: Message, placeholders: Placeholders, counts: Counter[str]) -> Message:
        read = message
        if not message.get("reasoning_content"):
            read = self._with_reasoning(message, placeholders, counts)
        if self._forms.calls and not message.get("tool_calls"):
            read = self._with_calls(read, placeholders, counts)
        return read

    def _with_reasoning(
        self, message: Message, placeholders: Placeholders, counts: Counter[str]
    ) -> Message:
        content = message["content"]
        for tags in self._forms.fields:
            if found := split_reasoning(opened(content, tags), tags):
                counts[READ_REASONING] += 1
                reasoning, rest = found[0] or self._forms.empty, found[1]
                return {**message, "content": rest, "reasoning_content": reasoning}
        for tags in self._forms.tokens:
            text = content if self._forms.after_open is None else opened(content, tags)
            if leading_block(text, tags) is not None:
                counts[LOST_REASONING if self._forms.loses_tokens else READ_REASONING] += 1
                return {**message, "content": self._with_placeholders(text, tags, placeholders)}
        return message

    def _with_placeholders(self, content: str, tags: Tags, placeholders: Placeholders) -> str:
        """Return a text with placeholders for the tags of its block, begun as the prompt begins."""
        after_open = self._forms.after_open
        if after_open is not None:
            _, tag, inner = content.partition(tags[0])
            begins = inner.startswith(after_open)
            content = tag + (inner if begins else after_open + inner.lstrip("\n"))
        block = leading_block(content, tags)
        return placeholders.put(content, [block] if block else [], tags, Kind.REASONING)

    def _with_calls(
        self, message: Message, placeholders: Placeholders, counts: Counter[str]
    ) -> Message:
        content = message["content"]
        if self._forms.calls == "field":
            found = split_calls(content)
            if found is None:
                return message
            counts[READ_CALLS] += 1
            return {**message, "content": found[0], "tool_calls": found[1]}
        blocks = trailing_blocks(content)
        if not blocks:
            return message
        counts[READ_CALLS] += 1
        text = placeholders.put(content, blocks, CALL_TAGS, Kind.TOOL_CALL)
        return {**message, "content": text}
