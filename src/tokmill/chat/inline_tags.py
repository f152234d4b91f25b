"""Tags inside the text of replies: which of them a template knows, and replies read accordingly.

A small chat is rendered to see how a template writes a reply that begins with a block of reasoning.
The first of these that fits is used:

    field     it writes a message's reasoning between the same tags (Qwen3, ChatML, minimind): the
              block becomes the message's reasoning
    hidden    it keeps the text, or drops the block as in earlier turns (DeepSeek-R1): placeholders
              hide the tags of the last reply from it, and become control tokens afterwards
    seen      the template reads the tags itself, as in the framework that a preset follows

A block at the beginning of a reply is its reasoning, blocks at its end are its calls; the rest is
text. A reply may lack the opening tag of its reasoning, where the prompt held the tag.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tokmill.chat.control_strings import CALL_TAGS, REASONING_TAGS
from tokmill.chat.conversation import ChatError
from tokmill.chat.escaping import Placeholders
from tokmill.chat.noticed import LOST_BLOCKS, LOST_REASONING
from tokmill.chat.segments import Kind
from tokmill.chat.tagged_blocks import (
    leading_block,
    opened,
    read_call,
    split_reasoning,
    trailing_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokmill.chat.control_strings import Tags, Vocabulary
    from tokmill.chat.conversation import Conversation, Counts, Message
    from tokmill.chat.template_source import ChatTemplate
    from tokmill.settings.sft import SftSettings

    Written = Callable[[Message], str]

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
    have the closing tag alone get the opening one, too. `template_opens`: whether the template
    writes the opening tag before each reply whose block it keeps, so that the reply's own would be
    a second one. `calls`: `field` or `token` for calls that end a reply, '' if they are text.
    `loses_tokens`: whether the template leaves out reasoning between `tokens` of its last reply;
    `writes_fields`: whether it writes reasoning that stands in a field.
    """

    fields: tuple[Tags, ...] = ()
    empty: str = ""
    tokens: tuple[Tags, ...] = ()
    hides: bool = False
    after_open: str | None = None
    template_opens: bool = False
    calls: str = ""
    loses_tokens: bool = False
    writes_fields: bool = False

    @property
    def closing_tags(self) -> list[str]:
        """Return closing tags; every text with something to recognise has at least one of them."""
        ends = [tags[1] for tags in chain(self.fields, self.tokens)]
        return list(dict.fromkeys([*ends, CALL_TAGS[1]] if self.calls else ends))


def inline_forms(
    settings: SftSettings, template: ChatTemplate, vocabulary: Vocabulary
) -> InlineForms:
    """Return the tags to recognise with this template."""
    written = partial(_written, template)
    every_tag = _every_tag(template, vocabulary)
    if settings.inline_tags == "fields":
        fields = tuple(dict.fromkeys([*_field_tags(written), *every_tag]))
        return InlineForms(fields, _empty(written, fields), calls="field")
    # With parse, all such strings are control tokens, and templates see them.
    if settings.inline_tags == "text" or settings.preset in _TEXT_PRESETS or vocabulary.parse:
        return InlineForms()
    known = _known_tags((*every_tag, CALL_TAGS), template, vocabulary)
    is_seen = settings.preset in _SEEN_PRESETS
    fields = () if is_seen else _field_tags(written)
    tokens = tuple(tags for tags in known if tags not in (*fields, CALL_TAGS))
    hides = not is_seen and bool(tokens) and all(_keeps_hidden(written, tags) for tags in tokens)
    calls = "token" if CALL_TAGS in known else ""
    if settings.preset == "tokmill" and _writes_calls(written):
        calls = "field"
    return InlineForms(
        fields,
        _empty(written, fields),
        tokens,
        hides,
        _after_open(template.generation_prompt, tokens),
        not hides and any(_is_opened(template, tags) for tags in tokens),
        calls,
        not hides and any(_loses(written, tags) for tags in tokens),
        _THOUGHT in written(_REASONED),
    )


def _known_tags(
    every_tag: Iterable[Tags], template: ChatTemplate, vocabulary: Vocabulary
) -> list[Tags]:
    """Return the tags that the tokenizer has as control tokens, or the template writes itself."""
    return [
        tags
        for tags in every_tag
        if any(tag in vocabulary.control for tag in tags) or tags[1] in template.literals
    ]


def _after_open(prompt: str, tokens: Iterable[Tags]) -> str | None:
    """Return what a prompt that opens a block writes behind the tag; None if it opens none."""
    begun = prompt.rstrip("\n")
    is_open = any(begun.endswith(opens) for opens, _ in tokens)
    return prompt[len(begun) :] if is_open else None


_CLOSING_TAG = re.compile(r"</([a-z_.:-]*(?:think|thought|reason)[a-z_.:-]*)>")


def _every_tag(template: ChatTemplate, vocabulary: Vocabulary) -> tuple[Tags, ...]:
    """Return the tags of reasoning that data sets use, and those of the template's own family.

    Such as <seed:think>, which the template writes or the tokenizer has.
    """
    texts = (template.literals, *vocabulary.control)
    names = [name for text in texts for name in _CLOSING_TAG.findall(text)]
    own = [(f"<{name}>", f"</{name}>") for name in names]
    return tuple(dict.fromkeys([*REASONING_TAGS, *own]))


def _field_tags(written: Written) -> tuple[Tags, ...]:
    """Return the tags that a template writes around the reasoning of a reply, if it writes it."""
    match = _WRITTEN_THOUGHT.search(written(_REASONED))
    return () if match is None else ((match["tag"], match["end"]),)


def _empty(written: Written, fields: tuple[Tags, ...]) -> str:
    """Return the reasoning for which a template writes an empty block: '' or a newline."""
    for empty in ("", "\n"):
        if fields and fields[0][1] in written({"content": _REPLY, "reasoning_content": empty}):
            return empty
    return ""


def _loses(written: Written, tags: Tags) -> bool:
    """Return whether a template writes a reply without the reasoning between tags in it."""
    text = written({"content": f"{tags[0]}{_THOUGHT}{tags[1]}{_REPLY}"})
    return _REPLY in text and _THOUGHT not in text


def _keeps_hidden(written: Written, tags: Tags) -> bool:
    """Return whether a template writes a text without a tag of its own before it."""
    before, thought, _ = written({"content": _THOUGHT}).partition(_THOUGHT)
    return bool(thought) and not before.rstrip().endswith(tags)


def _is_opened(template: ChatTemplate, tags: Tags) -> bool:
    """Return whether a template writes the opening tag before each reply whose block it keeps."""
    reply = {"role": "assistant", "content": f"{_THOUGHT}{tags[1]}{_REPLY}"}
    asked = {"role": "user", "content": _QUESTION}
    try:
        texts = [template.text_of([asked, reply]), template.text_of([asked, reply, asked])]
    except ChatError:
        return False
    if _THOUGHT not in texts[0]:
        return False
    before = [text.partition(_THOUGHT)[0] for text in texts if _THOUGHT in text]
    return all(text.rstrip("\n").endswith(tags[0]) for text in before)


def _writes_calls(written: Written) -> bool:
    """Return whether a template writes a call of a message as it stands in a block."""
    call = {"name": _NAME, "arguments": {"k": _VALUE}}
    message = {"content": "", "tool_calls": [{"type": "function", "function": call}]}
    match = _WRITTEN_CALL.search(written(message))
    try:
        return match is not None and json.loads(match[1]) == call
    except ValueError:
        return False


def _written(template: ChatTemplate, reply: Message) -> str:
    """Return the rendering of a question and a reply; '' if the template refuses them."""
    asked = {"role": "user", "content": _QUESTION}
    try:
        return template.text_of([asked, {"role": "assistant", **reply}])
    except ChatError:
        return ""


READ_REASONING = "replies whose leading think block was read as reasoning"
READ_CALLS = "replies whose tool_call blocks were read as calls"


class InlineReader:
    """Reads reasoning and calls in the text of replies; threads may share one."""

    def __init__(self, forms: InlineForms) -> None:
        self._forms = forms
        self._closing_tags = forms.closing_tags

    def read(self, conversation: Conversation, counts: Counts) -> Conversation:
        """Return a conversation as the template is to get it; add what was read to `counts`."""
        messages = conversation.messages
        if not any(self._may_hold(message) for message in messages):
            return conversation
        placeholders = Placeholders(conversation)
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

    def _read(self, message: Message, placeholders: Placeholders, counts: Counts) -> Message:
        if not message.get("reasoning_content"):
            message = self._with_reasoning(message, placeholders, counts)
        if self._forms.calls and not message.get("tool_calls"):
            message = self._with_calls(message, placeholders, counts)
        return message

    def _with_reasoning(
        self, message: Message, placeholders: Placeholders, counts: Counts
    ) -> Message:
        """Return a message with its reasoning in a field, or with placeholders for its tags."""
        content = message["content"]
        for tags in self._forms.fields:
            if halves := split_reasoning(opened(content, tags), tags):
                counts[READ_REASONING] += 1
                reasoning, rest = halves[0] or self._forms.empty, halves[1]
                return {**message, "content": rest, "reasoning_content": reasoning}
        for tags in self._forms.tokens:
            is_begun = self._forms.template_opens or self._forms.after_open is not None
            text = opened(content, tags) if is_begun else content
            if leading_block(text, tags) is not None:
                counts[self._count_of_block()] += 1
                return {**message, "content": self._with_placeholders(text, tags, placeholders)}
        return message

    def _count_of_block(self) -> str:
        """Return the name under which a leading block counts that stays in its text."""
        if not self._forms.loses_tokens:
            return READ_REASONING
        return LOST_BLOCKS if self._forms.writes_fields else LOST_REASONING

    def _with_placeholders(self, content: str, tags: Tags, placeholders: Placeholders) -> str:
        """Return a text with placeholders for the tags of its block, begun as the prompt begins."""
        after_open = self._forms.after_open
        if after_open is not None:
            _, tag, inner = content.partition(tags[0])
            begins = inner.startswith(after_open)
            content = tag + (inner if begins else after_open + inner.lstrip("\n"))
        block = leading_block(content, tags)
        text = placeholders.put(content, [block] if block else [], tags, Kind.REASONING)
        if block and self._forms.template_opens:  # without the placeholder of the opening tag
            return text[block[0][0] + 1 :].lstrip("\n")
        return text

    def _with_calls(self, message: Message, placeholders: Placeholders, counts: Counts) -> Message:
        """Return a message with the calls that end its text in a field, or as placeholders."""
        content = message["content"]
        blocks = trailing_blocks(content)
        if not blocks:
            return message
        counts[READ_CALLS] += 1
        if self._forms.calls != "field":
            text = placeholders.put(content, blocks, CALL_TAGS, Kind.TOOL_CALL)
            return {**message, "content": text}
        calls = [
            {"type": "function", "function": read_call(content[begin[1] : end[0]])}
            for begin, end in blocks
        ]
        return {**message, "content": content[: blocks[0][0][0]].rstrip("\n"), "tool_calls": calls}
