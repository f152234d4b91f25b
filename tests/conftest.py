"""Fixtures of the whole suite: a tiny tokenizer, and records made of Python rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from tokmill.batch import RAW_LIMIT_BYTES, Place, Records
from tokmill.config import TokenizerSettings
from tokmill.encode.tokenizer import Tokenizer, load_tokenizer

TRAINING_TEXTS = ["hello world hello there", "the cat, the hat; 123 123", "猫猫 狗狗 维基百科"]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Engine choices are remembered here, and not in the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKMILL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE: <eos> 0, <bos> 1, <|im_start|> 2, 256 bytes, merges, and a plain <tool>."""
    library = Library(BPE())
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    library.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=290,
        special_tokens=["<eos>", "<bos>", "<|im_start|>"],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(TRAINING_TEXTS, trainer)
    library.add_tokens(["<tool>"])
    directory = tmp_path_factory.mktemp("tokenizer")
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return directory


@pytest.fixture(scope="session")
def tokenizer(tokenizer_dir: Path) -> Tokenizer:
    """The tiny tokenizer, as workers get it."""
    return load_tokenizer(TokenizerSettings(path=str(tokenizer_dir)))


@dataclass(frozen=True)
class RowLookup:
    """Answers from the Python rows: row i is line i + 1, ten bytes further than the one before."""

    rows: Sequence[Mapping[str, Any]]

    def place(self, row: int) -> Place:
        return Place(row + 1, 10 * row)

    def raw(self, row: int) -> bytes:
        return json.dumps(self.rows[row], ensure_ascii=False).encode()[:RAW_LIMIT_BYTES]

    def keys(self, row: int) -> list[str]:
        return list(self.rows[row])


@pytest.fixture(scope="session")
def records() -> Callable[[Sequence[Mapping[str, Any]], pa.Schema], Records]:
    """Make `Records` of dicts, with the columns of a schema; a key that a dict lacks is null."""

    def make(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Records:
        wanted = [{name: row.get(name) for name in schema.names} for row in rows]
        return Records(pa.RecordBatch.from_pylist(wanted, schema), RowLookup(rows), ())

    return make
