"""Five documents of known ids, which every layout is tested with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import tokmill
from tokmill.api.dataset import Dataset

LENGTHS = (18, 301, 6, 1001, 65)
"""Tokens of each document, eos included."""
EOS = 2
N_WORDS = 64_789


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 64,789 ids: the word w123 is id 123, <eos> is 2."""
    vocabulary = {f"w{i}": i for i in range(N_WORDS) if i != EOS} | {"<eos>": EOS}
    library = Library(WordLevel(vocabulary, unk_token="w0"))
    library.pre_tokenizer = WhitespaceSplit()
    library.add_special_tokens(["<eos>"])
    directory = tmp_path_factory.mktemp("words")
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return directory


@pytest.fixture(scope="session")
def five_ids() -> list[list[int]]:
    """The ids of the five documents."""
    numbers = np.random.default_rng(7)
    return [[*numbers.integers(3, N_WORDS, n - 1).tolist(), EOS] for n in LENGTHS]


@pytest.fixture(scope="session", params=["uint16", "uint32"])
def five(request, tmp_path_factory, words: Path, five_ids: list[list[int]]) -> Dataset:
    """A dataset of the five documents in one shard, as uint16 and as uint32."""
    folder = tmp_path_factory.mktemp("five")
    lines = [json.dumps({"text": " ".join(f"w{i}" for i in ids[:-1])}) for ids in five_ids]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    dataset = tokmill.pretrain(
        folder / "in.jsonl", tokenizer=words, output=folder / "out",
        dtype=request.param, progress=False,
    )  # fmt: skip
    assert [ids.tolist() for ids in dataset] == five_ids
    return dataset
