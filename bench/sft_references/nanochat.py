"""nanochat's `RustBPETokenizer.render_conversation`, with tiktoken over another vocabulary.

The vocabulary of a byte-level tokenizer.json whose ids grow with the merges (so that its ids are
ranks) gets nanochat's special tokens: for tiktoken, and as a tokenizer.json for tokmill.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.libraries import family, tokenizer_file
from bench.sft_references.foreign import load_file
from bench.sft_references.one_by_one import CannotSayError, OneByOne
from bench.sft_values import Case, Reference, Sample
from bench.values import NotMeasured
from tokmill.settings.sft import SftSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tokmill.chat.conversation import Conversation

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_NO_LIMIT = 1 << 40


def cases(tokenizer: Path, eos: str, source: Path, work: Path) -> Iterator[tuple[Case, Reference]]:
    """Return the one template of nanochat."""
    module = load_file(source / "nanochat" / "tokenizer.py", ["rustbpe"])
    if family(tokenizer) != "byte-level BPE":
        raise NotMeasured("tiktoken takes a byte-level BPE alone")
    content = json.loads(tokenizer_file(tokenizer).read_bytes())
    if content.get("normalizer"):
        raise NotMeasured("tiktoken has no normalizer")
    vocab = content["model"]["vocab"]
    first = max(vocab.values(), default=0) + 1
    special = {name: first + i for i, name in enumerate(module.SPECIAL_TOKENS)}
    reference = module.RustBPETokenizer(_encoding(content, special), "<|bos|>")
    directory = work / f"{tokenizer.name}-nanochat"
    directory.mkdir(exist_ok=True)
    content["added_tokens"] = [_added(name, id_) for name, id_ in special.items()]
    content["post_processor"] = None
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    settings = SftSettings(preset="nanochat")

    def ask(conversation: Conversation) -> Sample:
        said = {"messages": _messages(conversation)}
        return Sample(*reference.render_conversation(said, max_tokens=_NO_LIMIT))

    yield Case(directory, settings, "nanochat, built in", "<|assistant_end|>"), OneByOne(ask)


def _encoding(content: Mapping[str, Any], special: Mapping[str, int]) -> Any:
    import tiktoken

    splitters = content["pre_tokenizer"]
    steps = splitters.get("pretokenizers", [splitters])
    pattern = next((s["pattern"]["Regex"] for s in steps if s["type"] == "Split"), _GPT2)
    added = {token["content"] for token in content["added_tokens"]}
    byte_of = _bytes_of_characters()
    ranks = {
        bytes(byte_of[character] for character in string): id_
        for string, id_ in content["model"]["vocab"].items()
        if string not in added
    }
    return tiktoken.Encoding(
        "borrowed", pat_str=pattern, mergeable_ranks=ranks, special_tokens=dict(special)
    )


def _bytes_of_characters() -> dict[str, int]:
    """Return the bytes that byte-level BPE writes as printable characters (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + i): byte for i, byte in enumerate(others)}


def _added(name: str, id_: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": name, "special": True, **flags}


def _messages(conversation: Conversation) -> list[dict[str, Any]]:
    """Return messages in nanochat's form: of tools it knows python, whose calls are parts."""
    found: list[dict[str, Any]] = []
    follows_tool = False
    for message in conversation.messages:
        if message.get("reasoning_content"):
            raise CannotSayError("nanochat has no form for reasoning")
        if message["role"] == "tool":
            if not found or found[-1]["role"] != "assistant":
                raise CannotSayError("nanochat has output of tools in replies alone")
            found[-1]["content"].append({"type": "python_output", "text": message["content"]})
            follows_tool = True
            continue
        said: Any = message["content"]
        if message["role"] == "assistant":
            said = [{"type": "text", "text": said}, *map(_call, message.get("tool_calls", ()))]
            if follows_tool:
                found[-1]["content"] += said
                follows_tool = False
                continue
        found.append({"role": message["role"], "content": said})
    return found


def _call(call: Mapping[str, Any]) -> dict[str, str]:
    function = call["function"]
    arguments = function["arguments"]
    if function["name"] != "python" or not isinstance(arguments.get("code"), str):
        raise CannotSayError("nanochat knows the tool python alone")
    return {"type": "python", "text": arguments["code"]}
