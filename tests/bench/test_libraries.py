"""A tokenizer's family is told from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.libraries import family, is_sentencepiece, tokenizer_file
from bench.values import NotMeasured


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel"}}, "byte-level BPE"),
        ({"model": {"type": "BPE"}, "pre_tokenizer": None}, "SentencePiece BPE"),
        ({"model": {"type": "WordPiece"}}, "WordPiece"),
        (
            {"model": {"vocab": {}, "merges": []}, "decoder": {"type": "ByteLevel"}},
            "byte-level BPE",
        ),
        ({"model": {"vocab": [["a", -1.0]]}}, "Unigram"),
    ],
)
def test_the_family_of_a_tokenizer_json(tmp_path: Path, content: object, name: str):
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert family(tmp_path) == name


def test_a_model_file_is_sentencepiece_unless_a_json_stands_beside_it(tmp_path: Path):
    (tmp_path / "tokenizer.model").touch()
    assert family(tmp_path) == "SentencePiece model"
    assert is_sentencepiece(tmp_path)
    (tmp_path / "tokenizer.json").touch()
    assert tokenizer_file(tmp_path).name == "tokenizer.json"


def test_a_directory_without_a_tokenizer_cannot_be_measured(tmp_path: Path):
    with pytest.raises(NotMeasured, match=r"no tokenizer\.json"):
        tokenizer_file(tmp_path)
