"""ChatML and its variants: the templates of Qwen 2.5, minimind and torchtune.

    <|im_start|>user
    Hello<|im_end|>
    <|im_start|>assistant
    Hi<|im_end|>

Tools are written as in Qwen/Qwen2.5-7B-Instruct. Reasoning, which that template leaves out, is
written as in Qwen3: between think tags, before the reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.chat.builtin.literals import Literals, as_json, function_of, refuse, require
from tokmill.chat.segments import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.segments import Segments

START, END = "<|im_start|>", "<|im_end|>"

_TOOLS_HEAD = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
_TOOLS_TAIL = """
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


class ChatML:
    """ChatML with tools; `default_system` precedes conversations without a system message."""

    name = "chatml"

    def __init__(self, control: Mapping[str, int], default_system: str = "") -> None:
        require(control, (START, END), self.name)
        self._literals = Literals(control)
        self.default_system = default_system
        self._plain_codes: list[int] = []

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        messages, weights = conversation.messages, conversation.weights
        first = self._system(conversation, segments)
        previous = ""
        for i in range(first, len(messages)):
            message, role = messages[i], messages[i]["role"]
            follows = messages[i + 1]["role"] if i + 1 < len(messages) else ""
            if role == "assistant":
                segments.begin_turn(role, weights[i])
                self._assistant(message, segments)
            elif role == "tool":
                segments.begin_turn(role, weights[i])
                self._tool(message, segments, opens=previous != "tool", closes=follows != "tool")
            else:
                name = "system" if role == "developer" else role
                segments.begin_turn(role, weights[i])
                self._plain(name, message["content"], segments)
            previous = role

    def _system(self, conversation: Conversation, segments: Segments) -> int:
        """Write system message and tools; return the number of the first message behind them."""
        first = conversation.messages[0]
        has_system = first["role"] in ("system", "developer")
        system = first["content"] if has_system else self.default_system
        if not (has_system or system or conversation.tools):
            return 0
        if has_system:
            segments.begin_turn(first["role"], conversation.weights[0])
        else:
            segments.begin_turn("system")
        segments.control(START, Kind.HEADER)
        segments.text("system\n", Kind.HEADER)
        segments.text(system, Kind.CONTENT)
        if conversation.tools:
            if has_system or system:
                segments.text("\n\n", Kind.CONTENT)
            self._literals.write(segments, _TOOLS_HEAD, Kind.CONTENT)
            for tool in conversation.tools:
                segments.text("\n" + as_json(tool), Kind.CONTENT)
            self._literals.write(segments, _TOOLS_TAIL, Kind.CONTENT)
        self._close(segments)
        return int(has_system)

    def _plain(self, name: str, content: str, segments: Segments) -> None:
        codes = self._plain_codes
        if not codes:
            around = (("", Kind.HEADER), ("", Kind.CONTENT), (END, Kind.EOT), ("", Kind.SUFFIX))
            codes += segments.codes((START, Kind.HEADER), *around)
        segments.add((START, name + "\n", content, END, "\n"), codes)

    def _close(self, segments: Segments) -> None:
        segments.control(END, Kind.EOT)
        segments.text("\n", Kind.SUFFIX)

    def _assistant(self, message: Message, segments: Segments) -> None:
        content = message["content"]
        if len(message) == 2:
            self._plain("assistant", content, segments)
            return
        segments.control(START, Kind.HEADER)
        segments.text("assistant\n", Kind.HEADER)
        if reasoning := message.get("reasoning_content"):
            self._think(reasoning, segments)
        segments.text(content, Kind.CONTENT)
        if calls := message.get("tool_calls"):
            self._calls(calls, segments, after_content=bool(content))
        self._close(segments)

    def _think(self, reasoning: str, segments: Segments) -> None:
        stripped = reasoning.strip("\n")
        self._literals.write(segments, "<think>", Kind.REASONING)
        segments.text(f"\n{stripped}\n", Kind.REASONING)
        self._literals.write(segments, "</think>", Kind.REASONING)
        segments.text("\n\n", Kind.REASONING)

    def _calls(
        self, calls: Sequence[Mapping[str, object]], segments: Segments, *, after_content: bool
    ) -> None:
        for call in calls:
            name, arguments = function_of(call)
            if after_content:
                segments.text("\n", Kind.TOOL_CALL)
            self._literals.write(segments, "<tool_call>", Kind.TOOL_CALL)
            body = f'\n{{"name": "{name}", "arguments": {arguments}}}\n'
            segments.text(body, Kind.TOOL_CALL)
            self._literals.write(segments, "</tool_call>", Kind.TOOL_CALL)
            after_content = True

    def _tool(self, message: Message, segments: Segments, *, opens: bool, closes: bool) -> None:
        if opens:
            segments.control(START, Kind.HEADER)
            segments.text("user", Kind.HEADER)
        self._literals.write(segments, "\n<tool_response>", Kind.HEADER)
        segments.text("\n" + message["content"] + "\n", Kind.CONTENT)
        self._literals.write(segments, "</tool_response>", Kind.CONTENT)
        if closes:
            self._close(segments)


class Minimind(ChatML):
    """minimind: every reply has think tags, also without reasoning.

    With `parse`, think tags in a reply's content are its reasoning, as in minimind; without it they
    are text, as is every control token's string.
    """

    name = "minimind"

    def __init__(
        self, control: Mapping[str, int], default_system: str = "", *, parse: bool = False
    ) -> None:
        super().__init__(control, default_system)
        self._parse = parse

    def _assistant(self, message: Message, segments: Segments) -> None:
        segments.control(START, Kind.HEADER)
        segments.text("assistant\n", Kind.HEADER)
        reasoning, content = message.get("reasoning_content"), message["content"]
        if self._parse and reasoning is None and "</think>" in content:
            before, content = content.split("</think>")[0], content.split("</think>")[-1]
            reasoning = before.rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.lstrip("\n")
        self._think(reasoning or "", segments)
        segments.text(content.lstrip("\n"), Kind.CONTENT)
        if calls := message.get("tool_calls"):
            self._calls(calls, segments, after_content=bool(content))
        self._close(segments)


class Torchtune(ChatML):
    """torchtune 0.6 with Qwen2: every message is encoded by itself; no tools.

    The last reply ends in the end-of-turn token without the newline; a conversation that ends in
    another role gets one more such token. Nothing is written around the output of a tool.
    """

    name = "torchtune"

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        last = len(conversation.messages) - 1
        for i, message in enumerate(conversation.messages):
            refuse(message, i + 1, ("tool_calls", "reasoning_content"), self.name)
            role = message["role"]
            segments.begin_turn(role, conversation.weights[i])
            if role != "tool":
                segments.control(START, Kind.HEADER)
                name = "system" if role == "developer" else role
                segments.text(name + "\n", Kind.HEADER, alone=True)
            segments.text(message["content"], Kind.CONTENT, alone=True)
            if role != "tool" and (role != "assistant" or i != last):
                segments.control(END, Kind.EOT)
                segments.text("\n", Kind.SUFFIX, alone=True)
        segments.control(END, Kind.EOT)
