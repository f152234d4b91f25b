"""Built-in templates other than ChatML: Llama 3, Alpaca, plain, baby-llama2, nanochat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.chat.builtin.literals import as_json, refuse, require
from tokmill.chat.conversation import ChatError
from tokmill.chat.segments import Kind
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.segments import Segments

_NO_TOOLS = ("tool_calls", "reasoning_content")


class Llama3:
    """Llama 3 (meta-llama/Meta-Llama-3-8B-Instruct); white space around contents is removed."""

    name = "llama3"
    _START, _STOP, _END = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"

    def __init__(self, control: Mapping[str, int], bos: str, default_system: str = "") -> None:
        require(control, (bos or "bos", self._START, self._STOP, self._END), self.name)
        self._bos = bos
        self.default_system = default_system

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        messages = conversation.messages
        if conversation.tools:
            raise ChatError("not in this template", "template llama3 cannot write tools")
        begun = False
        if self.default_system and messages[0]["role"] not in ("system", "developer"):
            segments.begin_turn("system")
            segments.control(self._bos, Kind.OTHER)
            self._turn("system", self.default_system, segments)
            begun = True
        for i, message in enumerate(messages):
            refuse(message, i + 1, _NO_TOOLS, self.name)
            role = message["role"]
            if role == "tool":
                raise ChatError(
                    "not in this template", f"message {i + 1}: template llama3 has no role tool"
                )
            segments.begin_turn(role, conversation.weights[i])
            if not begun:
                segments.control(self._bos, Kind.OTHER)
                begun = True
            self._turn("system" if role == "developer" else role, message["content"], segments)

    def _turn(self, name: str, content: str, segments: Segments) -> None:
        segments.control(self._START, Kind.HEADER)
        segments.text(name, Kind.HEADER)
        segments.control(self._STOP, Kind.HEADER)
        segments.text("\n\n", Kind.HEADER)
        segments.text(content.strip(), Kind.CONTENT)
        segments.control(self._END, Kind.EOT)


class Alpaca:
    """Stanford Alpaca, with the reply on a new line and eos behind it.

    The two preambles, for instructions with and without an input, are Stanford's; a system message
    replaces them. A blank line separates turns, as in LLaMA-Factory's template.
    """

    name = "alpaca"
    _PREAMBLE = (
        "Below is an instruction that describes a task. "
        "Write a response that appropriately completes the request."
    )
    _PREAMBLE_WITH_INPUT = (
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the request."
    )

    def __init__(self, eos: str, default_system: str = "") -> None:
        self._eos = eos
        self.default_system = default_system

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        messages, weights = conversation.messages, conversation.weights
        segments.begin_turn("system")
        segments.text(self._preamble(messages[0]), Kind.OTHER)
        segments.text("\n\n", Kind.OTHER)
        for i, message in enumerate(messages):
            refuse(message, i + 1, _NO_TOOLS, self.name)
            role = message["role"]
            if role in ("system", "developer") and i == 0:
                continue
            segments.begin_turn(role, weights[i])
            if role == "user":
                segments.text("### Instruction:\n", Kind.HEADER)
                segments.text(message["content"], Kind.CONTENT)
                segments.text("\n\n", Kind.SUFFIX)
            elif role == "assistant":
                segments.text("### Response:\n", Kind.HEADER)
                segments.text(message["content"], Kind.CONTENT)
                segments.control(self._eos, Kind.EOT)
                if i < len(messages) - 1:
                    segments.text("\n\n", Kind.SUFFIX)
            else:
                raise ChatError(
                    "not in this template", f"message {i + 1}: template alpaca has no role {role}"
                )

    def _preamble(self, first: Message) -> str:
        if first["role"] in ("system", "developer"):
            return str(first["content"])
        if self.default_system:
            return self.default_system
        return self._PREAMBLE_WITH_INPUT if first.get("with_input") else self._PREAMBLE


class Plain:
    """Contents one after another, eos behind every reply: no template at all."""

    name = "plain"

    def __init__(self, eos: str, default_system: str = "") -> None:
        self._eos = eos
        self.default_system = default_system

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        first = conversation.messages[0]["role"]
        if self.default_system and first not in ("system", "developer"):
            segments.begin_turn("system")
            segments.text(self.default_system, Kind.CONTENT)
        for i, message in enumerate(conversation.messages):
            refuse(message, i + 1, _NO_TOOLS, self.name)
            segments.begin_turn(message["role"], conversation.weights[i])
            segments.text(message["content"], Kind.CONTENT)
            if message["role"] == "assistant":
                segments.control(self._eos, Kind.EOT)


class BabyLlama2:
    """One `prompt <bos> answer <eos>`, as in github.com/DLLXW/baby-llama2-chinese."""

    name = "baby-llama2"

    def __init__(self, bos: str, eos: str) -> None:
        if not bos:
            raise UsageError(
                "template baby-llama2 puts bos between prompt and answer: name it with --bos-token"
            )
        self._bos = bos
        self._eos = eos

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        messages, weights = conversation.messages, conversation.weights
        roles = [message["role"] for message in messages]
        if roles != ["user", "assistant"]:
            raise ChatError(
                "not in this template",
                f"template baby-llama2 has one prompt and one answer; found {', '.join(roles)}",
            )
        for i, message in enumerate(messages):
            refuse(message, i + 1, _NO_TOOLS, self.name)
        segments.begin_turn("user", weights[0])
        segments.text(messages[0]["content"], Kind.CONTENT)
        segments.begin_turn("assistant", weights[1])
        segments.control(self._bos, Kind.HEADER)
        segments.text(messages[1]["content"], Kind.CONTENT)
        segments.control(self._eos, Kind.EOT)


class Nanochat:
    """nanochat; calls of the tool `python` and their output stand inside the reply."""

    name = "nanochat"

    def __init__(self, control: Mapping[str, int]) -> None:
        names = ("user", "assistant", "python", "output")
        marks = [f"<|{name}_{edge}|>" for name in names for edge in ("start", "end")]
        require(control, ("<|bos|>", *marks), self.name)

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample: user and assistant alternate; a system message may precede them."""
        messages, weights = conversation.messages, conversation.weights
        if messages[0]["role"] == "system" and len(messages) > 1:
            joined = f"{messages[0]['content']}\n\n{messages[1]['content']}"
            messages = [{**messages[1], "content": joined}, *messages[2:]]
            weights = weights[1:]
        segments.begin_turn("user", weights[0])
        segments.control("<|bos|>", Kind.OTHER)
        n_joined = len(conversation.messages) - len(messages)
        expected = "user"
        for i, message in enumerate(messages):
            number = i + 1 + n_joined
            role = message["role"]
            if role == "tool" and expected == "user" and i:
                self._output(message, segments)
                expected = "assistant again"
                continue
            if role != expected.split()[0]:
                raise ChatError(
                    "not in this template",
                    f"message {number} is of role {role}, template nanochat expects {expected}",
                )
            refuse(message, number, ("reasoning_content",), self.name)
            follows = messages[i + 1]["role"] if i + 1 < len(messages) else ""
            if i and expected != "assistant again":
                segments.begin_turn(role, weights[i])
            self._message(message, segments, opens=expected == role, closes=follows != "tool")
            expected = "assistant" if role == "user" else "user"

    def _message(self, message: Message, segments: Segments, *, opens: bool, closes: bool) -> None:
        role = message["role"]
        if opens:
            segments.control(f"<|{role}_start|>", Kind.HEADER)
        segments.text(message["content"], Kind.CONTENT)
        for call in message.get("tool_calls") or ():
            segments.control("<|python_start|>", Kind.TOOL_CALL)
            segments.text(_python(call), Kind.TOOL_CALL)
            segments.control("<|python_end|>", Kind.TOOL_CALL)
        if closes:
            segments.control(f"<|{role}_end|>", Kind.EOT)

    def _output(self, message: Message, segments: Segments) -> None:
        segments.control("<|output_start|>", Kind.OTHER)
        segments.text(message["content"], Kind.OTHER)
        segments.control("<|output_end|>", Kind.OTHER)


def _python(call: Mapping[str, dict[str, object]]) -> str:
    """Return the code of a call of the tool `python`: a string, or its argument `code`."""
    function = call["function"]
    if function["name"] != "python":
        raise ChatError(
            "not in this template",
            f"template nanochat knows the tool python, not {function['name']}",
        )
    arguments = function["arguments"]
    if isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        return str(arguments["code"])
    return arguments if isinstance(arguments, str) else as_json(arguments)
