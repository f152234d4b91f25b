"""torchtune's `Qwen2Tokenizer.tokenize_messages`; its mask says what is left out."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bench.libraries import family, tokenizer_file
from bench.sft_references.foreign import stubbed
from bench.sft_references.one_by_one import CannotSayError, OneByOne
from bench.sft_values import Case, Reference, Sample
from bench.values import NotMeasured
from tokmill.settings.sft import SftSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokmill.chat.conversation import Conversation

_END = "<|im_end|>"
_STUBS = (
    "torchao",
    "torchdata",
    "datasets",
    "torchtune.utils",
    "torchtune.config",
    "torchtune.modules",
)
FIRST = "first token"
"""The header of a reply that comes first is trained, its first token too."""


def cases(tokenizer: Path, eos: str, source: Path, work: Path) -> Iterator[tuple[Case, Reference]]:
    """Return the one template of its Qwen2 tokenizer, for a tokenizer with Qwen's pattern."""
    module, message = _load(source)
    library = _tokenizer(tokenizer, module, work)

    def ask(conversation: Conversation) -> Sample:
        messages = [
            message(role=role, content=content, masked=role != "assistant")
            for role, content in map(_said, conversation.messages)
        ]
        ids, excluded = library.tokenize_messages(messages)
        return Sample(ids, [int(not out) for out in excluded])

    settings = SftSettings(preset="torchtune")
    case = Case(tokenizer, settings, "torchtune, built in", _END)
    yield case, OneByOne(ask, {FIRST: _is_first_alone})


def _load(source: Path) -> tuple[Any, Any]:
    names = ("torchtune", "torchtune.models", "torchtune.models.qwen2")
    packages = {name: source / name.replace(".", "/") for name in names}
    with stubbed(_STUBS, packages):
        module = import_module("torchtune.models.qwen2._tokenizer")
        return module, import_module("torchtune.data").Message


def _tokenizer(tokenizer: Path, module: Any, work: Path) -> Any:
    """Return its tokenizer from the vocabulary and merges of a tokenizer.json."""
    if family(tokenizer) != "byte-level BPE":
        raise NotMeasured("it takes a byte-level BPE alone")
    content = json.loads(tokenizer_file(tokenizer).read_bytes())
    if json.dumps(module.PRETOKENIZE_REGEX) not in json.dumps(content["pre_tokenizer"]):
        raise NotMeasured("it splits texts by another pattern")
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    vocab_file, merges_file = work / "vocab.json", work / "merges.txt"
    vocab_file.write_text(json.dumps(content["model"]["vocab"]), encoding="utf-8")
    merges_file.write_text("\n".join(merges), encoding="utf-8")
    return module.Qwen2Tokenizer(str(vocab_file), str(merges_file), special_tokens=special)


def _said(message: dict[str, Any]) -> tuple[str, str]:
    for name in ("tool_calls", "reasoning_content"):
        if message.get(name):
            raise CannotSayError(f"torchtune's Qwen2 tokenizer has no form for {name}")
    roles = {"tool": "ipython", "developer": "system"}
    return roles.get(message["role"], message["role"]), message["content"]


def _is_first_alone(_: Conversation, theirs: Sample, ours: Sample) -> bool:
    return theirs.mask[0] == 1 and Sample(theirs.ids, [0, *theirs.mask[1:]]) == ours
