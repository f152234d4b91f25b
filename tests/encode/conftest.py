"""Fixtures of encoding: batches of samples, and tokenizers made of a few parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from tokmill.batch import SampleBatch
from tokmill.config import TokenizerSettings
from tokmill.encode.tokenizer import Tokenizer, load_tokenizer

Segment = tuple[str | int, float] | tuple[str | int, float, bool]
"""Text or the id of a control token, its weight, and whether a turn ends with it."""


@pytest.fixture(scope="session")
def sample_batch() -> Callable[[Sequence[Sequence[Segment]]], SampleBatch]:
    """Make a batch of samples, each a list of segments; the text "!x" is x, told alone."""

    def make(samples: Sequence[Sequence[Segment]]) -> SampleBatch:
        segments = [segment for sample in samples for segment in sample]
        return SampleBatch(
            text=pa.array([_text(segment[0]) for segment in segments], pa.large_string()),
            offsets=np.cumsum([0, *map(len, samples)], dtype=np.int64),
            control=np.array([_control(segment[0]) for segment in segments], np.int32),
            weights=np.array([segment[1] for segment in segments], np.float32),
            turn_ends=np.array([len(s) > 2 and s[2] for s in segments], np.bool_),
            rows=np.arange(len(samples)),
            refused=[],
            drops={},
        )

    return make


def _text(value: str | int) -> str:
    return f"<{value}>" if isinstance(value, int) else value.removeprefix("!")


def _control(value: str | int) -> int:
    if isinstance(value, int):
        return value
    return -2 if value.startswith("!") else -1


@pytest.fixture
def make_tokenizer(tmp_path: Path) -> Callable[..., Tokenizer]:
    """Load a tokenizer.json of the parts given; its eos is id 0."""

    def make(model: dict[str, Any], **parts: Any) -> Tokenizer:
        content = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None, "model": model}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content | parts))
        return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="0"))

    return make


@pytest.fixture(scope="session")
def bytes_model() -> Callable[..., dict[str, Any]]:
    """Make a BPE of the 256 bytes, ids 0 to 255, and of merges given as pairs, from id 256 on."""

    def make(*merges: tuple[str, str]) -> dict[str, Any]:
        tokens = [*sorted(ByteLevel.alphabet()), *(a + b for a, b in merges)]
        vocab = {token: id_ for id_, token in enumerate(tokens)}
        return {"type": "BPE", "vocab": vocab, "merges": list(merges)}

    return make


@pytest.fixture(scope="session")
def marks_model() -> dict[str, Any]:
    """Give a BPE in SentencePiece's way: bytes to fall back on, ▁, a to e, and four merges."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcde"]
    merges = [("▁", "a"), ("a", "b"), ("▁", "▁"), ("▁a", "b")]
    vocab = {token: id_ for id_, token in enumerate([*tokens, *(a + b for a, b in merges)])}
    return {
        "type": "BPE",
        "vocab": vocab,
        "merges": merges,
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
    }
