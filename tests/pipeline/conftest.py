"""What the tests of this room share: one part of a plan, and a tiny run of SFT."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from tokmill.config import Config, SftSettings
from tokmill.encode.choice import EngineChoice
from tokmill.encode.engine import engine_version
from tokmill.executors.prepare import prepare
from tokmill.pipeline.part import run_part
from tokmill.pipeline.plan import Plan
from tokmill.pipeline.road import PretrainRoad
from tokmill.pipeline.spec import Part, RunSpec
from tokmill.shards.record import PartRecord


@dataclasses.dataclass(frozen=True)
class PartRun:
    """A part's record, and what was reported on the way."""

    record: PartRecord
    heard: list[Any]


@pytest.fixture(scope="session")
def run_alone() -> Callable[..., PartRun]:
    """Run one part; a `report` that raises stops it."""

    def run(
        plan: Plan, part: Part | None = None, report: Callable[[Any], None] | None = None
    ) -> PartRun:
        heard: list[Any] = []
        record = run_part(
            plan.spec,
            part or plan.parts[0],
            lambda: PretrainRoad(plan.spec),
            report or heard.append,
        )
        return PartRun(record, heard)

    return run


ADDED = ("<eos>", "<|im_start|>", "<|im_end|>", "<bos>", "<think>", "</think>")
"""Ids 0 to 5; the last two are not special."""

LETTERS = {letter: len(ADDED) + i for i, letter in enumerate(sorted(ByteLevel.alphabet()))}
AB = len(ADDED) + 256
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
PREPEND = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
)


@pytest.fixture(scope="session")
def chat_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write a tokenizer of bytes with the added tokens `ADDED` and one merge, a and b.

    Keyword arguments are parts of its tokenizer.json; `flags` are of its added tokens.
    """

    def make(flags: Any = None, template: str = TEMPLATE, **parts: Any) -> Path:
        vocab = dict(zip(ADDED, range(6), strict=True)) | LETTERS | {"ab": AB}
        plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [
            {"id": i, "content": token, "special": i < 4, **plain, **(flags or {}).get(token, {})}
            for i, token in enumerate(ADDED)
        ]
        content = {
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": False,
                "use_regex": False,
            },
            "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]},
        }
        directory = tmp_path_factory.mktemp("chat-tokenizer")
        (directory / "tokenizer.json").write_text(json.dumps(content | parts))
        named = {"eos_token": "<eos>", "chat_template": template}
        (directory / "tokenizer_config.json").write_text(json.dumps(named))
        return directory

    return make


@pytest.fixture(scope="session")
def spelled() -> Callable[..., list[int]]:
    """Give the ids of texts and of added tokens, part by part; only a text "ab" is merged."""
    letter_of = {bytes([b]): c for b, c in _byte_letters()}

    def spell(*parts: str) -> list[int]:
        ids: list[int] = []
        for part in parts:
            if part in ADDED:
                ids.append(ADDED.index(part))
            elif part == "ab":
                ids.append(AB)
            else:
                ids += [LETTERS[letter_of[bytes([byte])]] for byte in part.encode()]
        return ids

    return spell


def _byte_letters() -> list[tuple[int, str]]:
    """Give the letter that stands for each byte, as GPT-2's code has it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = [chr(byte) for byte in shown] + [chr(256 + i) for i in range(len(hidden))]
    return list(zip(shown + hidden, letters, strict=True))


@pytest.fixture(scope="session")
def marks(chat_tokenizer: Callable[..., Path]) -> dict[str, tuple[str, dict[str, int]]]:
    """Give tokenizers that put a space before a text, the first or every, and their ids."""
    letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"ab", "ab"]
    ids = {letter: 6 + i for i, letter in enumerate(letters)}
    model = {
        "type": "BPE",
        "vocab": ids,
        "merges": [["a", "b"]],
        "byte_fallback": True,
        "unk_token": "<unk>",
        "fuse_unk": True,
    }
    first = chat_tokenizer(model=model, pre_tokenizer=METASPACE)
    every = chat_tokenizer(model=model, pre_tokenizer=None, normalizer=PREPEND)
    return {"first": (str(first), ids), "every": (str(every), ids)}


@pytest.fixture
def chat_config(
    tmp_path: Path,
    configure: Callable[..., Config],
    write_rows: Callable[..., Path],
    chat_tokenizer: Callable[..., Path],
) -> Callable[..., Config]:
    """Make the settings of a run of SFT over rows; `sft` are its own, `path` its tokenizer."""

    def make(rows: Sequence[Any], sft: SftSettings | None = None, **settings: Any) -> Config:
        source = write_rows(tmp_path / "in.jsonl", rows)
        chosen = settings if "path" in settings else {"path": str(chat_tokenizer()), **settings}
        return configure(tmp_path / "out", source, sft=sft or SftSettings(), **chosen)

    return make


@dataclasses.dataclass(frozen=True)
class ChatRun:
    """A run of SFT as its workers see it, and its parts."""

    spec: RunSpec
    parts: tuple[Part, ...]


@pytest.fixture
def chat_run(chat_config: Callable[..., Config]) -> Callable[..., ChatRun]:
    """Plan a run of SFT over rows; `engine` is the one that its settings name."""

    def make(rows: Sequence[Any], sft: SftSettings | None = None, **settings: Any) -> ChatRun:
        prepared = prepare(chat_config(rows, sft, **settings))
        name = prepared.config.run.engine
        engine = EngineChoice(name, engine_version(name, prepared.tokenizer), "asked for")
        return ChatRun(prepared.spec(engine, 1), prepared.parts)

    return make
