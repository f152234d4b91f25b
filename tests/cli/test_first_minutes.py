"""What somebody reads who uses tokmill for the first time, and makes the usual mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": f"hello world {i}"}) + "\n" for i in range(40)))
    return path


@pytest.fixture
def base(tokenizer_dir: Path, tmp_path: Path) -> Path:
    """A tokenizer.json without the files beside it, as many base models come."""
    path = tmp_path / "base"
    path.mkdir()
    (path / "tokenizer.json").write_bytes((tokenizer_dir / "tokenizer.json").read_bytes())
    return path


@pytest.mark.parametrize(
    ("verb", "more"), [("plan", []), ("pretrain", ["-o", "out"]), ("sft", ["-o", "sft"])]
)
def test_the_eos_that_is_taken_although_no_file_names_it_is_said_in_one_line(
    tokmill: Callable[..., Any],
    corpus: Path,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    more: list[str],
) -> None:
    monkeypatch.chdir(corpus.parent)
    options = ["-t", base, *more, *(["--template", "plain"] if verb == "sft" else [])]
    outcome = tokmill(verb, corpus, *options)
    assert outcome.code == 0, outcome.err
    note = f"{base}: no file names an end-of-text token; taken: id 0 <eos>, the only candidate"
    assert [line for line in outcome.err.splitlines() if "end-of-text" in line] == [
        f"{note} (--eos-token: another)"
    ]
    quiet = ["--json"] if verb == "plan" else ["-q", "--overwrite"]
    assert tokmill(verb, corpus, *options, *quiet).err == ""
