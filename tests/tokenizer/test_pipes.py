"""A pipe among the files that transformers would open is a line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tokmill.errors import TokenizerError
from tokmill.tokenizer.conversion import convert


def test_a_pipe_among_the_files_of_a_class_of_transformers_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "GPT2Tokenizer"})
    )
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    os.mkfifo(tmp_path / "merges.txt")
    with pytest.raises(TokenizerError, match=r"merges\.txt: expected a regular file, found a pipe"):
        convert(tmp_path, where=str(tmp_path))
