"""LLaMA-Factory's own template code and `SupervisedDatasetProcessor`, its template `qwen`."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench.sft_references.foreign import stubbed
from bench.sft_references.one_by_one import CannotSayError, OneByOne
from bench.sft_references.transformers_chat import load_fast
from bench.sft_values import Case, Reference, Sample
from tokmill.settings.sft import SftSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokmill.chat.conversation import Conversation, Message

_END = "<|im_end|>"
_STUBS = ("llamafactory.extras", "llamafactory.data.mm_plugin", "datasets", "fsspec")
ALTERNATES = "it takes nothing but question and reply in turn"
"""Its converter drops other conversations ("Invalid role tag", "Dropped invalid example")."""


def cases(tokenizer: Path, eos: str, source: Path, work: Path) -> Iterator[tuple[Case, Reference]]:
    """Return the template `qwen` against chatml with Qwen's default system message."""
    library = load_fast(tokenizer, _END)
    template, processor = _load(source)
    template.mm_plugin = _NoMedia()
    worker = object.__new__(processor)
    worker.template, worker.tokenizer, worker.processor = template, library, None
    worker.data_args = SimpleNamespace(
        mask_history=False, train_on_prompt=False, cutoff_len=1 << 40
    )
    settings = SftSettings(
        preset="llamafactory", template="chatml", default_system=template.default_system
    )
    case = Case(tokenizer, settings, "chatml, built in", _END)
    yield case, OneByOne(lambda one: _sample(worker, one))


class _NoMedia:
    """What its template asks of images; there are none."""

    def process_messages(self, messages: list[Any], *_: Any) -> list[Any]:
        return messages

    def process_token_ids(self, ids: list[int], labels: list[int], *_: Any) -> Any:
        return ids, labels


def _load(source: Path) -> tuple[Any, Any]:
    root = source / "src" / "llamafactory"
    folders = {"llamafactory": root, "llamafactory.data": root / "data"}
    with stubbed(_STUBS, folders | {"llamafactory.data.processor": root / "data" / "processor"}):
        templates = import_module("llamafactory.data.template").TEMPLATES
        supervised = import_module("llamafactory.data.processor.supervised")
    return templates["qwen"], supervised.SupervisedDatasetProcessor


def _sample(worker: Any, conversation: Conversation) -> Sample:
    messages = conversation.messages
    system = ""
    if messages[0]["role"] in ("system", "developer"):
        system, messages = messages[0]["content"], messages[1:]
    turns = [_turn(message) for message in messages]
    _check(turns)
    tools = json.dumps(conversation.tools, ensure_ascii=False) if conversation.tools else ""
    ids, labels = worker._encode_data_example(turns[:-1], turns[-1:], system, tools, [], [], [])
    return Sample(ids, [int(isinstance(label, int)) for label in labels])


def _check(turns: Sequence[dict[str, str]]) -> None:
    asks, replies = ("user", "observation"), ("assistant", "function")
    for i, turn in enumerate(turns):
        if turn["role"] not in (replies if i % 2 else asks):
            raise CannotSayError(ALTERNATES)
    if len(turns) % 2:
        raise CannotSayError(ALTERNATES)


def _turn(message: Message) -> dict[str, str]:
    """Return a message in its form: reasoning stands in think tags, a call alone is a function."""
    role, content = message["role"], message["content"]
    reasoning = message.get("reasoning_content")
    thought = f"<think>\n{reasoning.strip(chr(10))}\n</think>\n\n" if reasoning else ""
    if role == "tool":
        return {"role": "observation", "content": content}
    if not message.get("tool_calls"):
        return {"role": role, "content": thought + content}
    if content:
        raise CannotSayError("it has no form for a call behind text")
    calls = [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message["tool_calls"]
    ]
    return {"role": "function", "content": thought + json.dumps(calls, ensure_ascii=False)}
