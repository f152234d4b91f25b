"""Replies that hold reasoning or calls in their text, read as a template wants them.

What becomes of a block is one of the forms of `inline_forms`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tokmill.chat.inline import (
    CALL_TAGS,
    leading_block,
    split_calls,
    split_reasoning,
    trailing_blocks,
)
from tokmill.chat.segments import Kind
from tokmill.chat.stand_ins import StandIns

if TYPE_CHECKING:
    from collections import Counter

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.inline import Tags
    from tokmill.chat.inline_forms import InlineForms

READ_REASONING = "replies whose leading think block was read as reasoning"
READ_CALLS = "replies whose tool_call blocks were read as calls"
LOST_REASONING = "replies whose reasoning the template leaves out"


class InlineReader:
    """Reads what stands inline in replies; pure, so threads may share one.

    `reserved`: what the template writes by itself.
    """

    def __init__(self, forms: InlineForms, reserved: str) -> None:
        self._forms = forms
        self._reserved = reserved
        self._closing_tags = forms.closing_tags

    def read(self, conversation: Conversation, noticed: Counter[str]) -> Conversation:
        """Return a conversation as the template is to get it; count in `noticed` what was read.

        Raises:
            ChatError: the texts leave no private-use character for a stand-in.
        """
        messages = conversation.messages
        if self._forms.loses_field:
            noticed[LOST_REASONING] += sum(bool(m.get("reasoning_content")) for m in messages)
        if not any(self._may_hold(message) for message in messages):
            return conversation
        stand_ins = StandIns(self._reserved, [messages, conversation.tools])
        return replace(
            conversation,
            messages=[
                self._read(message, stand_ins, noticed) if self._may_hold(message) else message
                for message in messages
            ],
            stand_ins=stand_ins.chosen,
            hides_tags=self._forms.hides,
        )

    def _may_hold(self, message: Message) -> bool:
        content = message["content"]
        return message["role"] == "assistant" and any(tag in content for tag in self._closing_tags)

    def _read(self, message: Message, stand_ins: StandIns, noticed: Counter[str]) -> Message:
        read = message
        if not message.get("reasoning_content"):
            read = self._with_reasoning(message, stand_ins, noticed)
        if self._forms.calls and not message.get("tool_calls"):
            read = self._with_calls(read, stand_ins, noticed)
        return read

    def _with_reasoning(
        self, message: Message, stand_ins: StandIns, noticed: Counter[str]
    ) -> Message:
        content = message["content"]
        for tags in self._forms.fields:
            if found := split_reasoning(content, tags):
                noticed[READ_REASONING] += 1
                reasoning, rest = found[0] or self._forms.empty, found[1]
                return {**message, "content": rest, "reasoning_content": reasoning}
        for tags in self._forms.tokens:
            if leading_block(content, tags) is not None:
                noticed[LOST_REASONING if self._forms.loses_tokens else READ_REASONING] += 1
                return {**message, "content": self._hidden(content, tags, stand_ins)}
        return message

    def _hidden(self, content: str, tags: Tags, stand_ins: StandIns) -> str:
        """Return a text with stand-ins for the tags of its block, begun as the prompt begins it."""
        after_open = self._forms.after_open
        if after_open is not None:
            _, tag, inner = content.partition(tags[0])
            begins = inner.startswith(after_open)
            content = tag + (inner if begins else after_open + inner.lstrip("\n"))
        block = leading_block(content, tags)
        return stand_ins.put(content, [block] if block else [], tags, Kind.REASONING)

    def _with_calls(self, message: Message, stand_ins: StandIns, noticed: Counter[str]) -> Message:
        content = message["content"]
        if self._forms.calls == "field":
            found = split_calls(content)
            if found is None:
                return message
            noticed[READ_CALLS] += 1
            return {**message, "content": found[0], "tool_calls": found[1]}
        blocks = trailing_blocks(content)
        if not blocks:
            return message
        noticed[READ_CALLS] += 1
        text = stand_ins.put(content, blocks, CALL_TAGS, Kind.TOOL_CALL)
        return {**message, "content": text}
