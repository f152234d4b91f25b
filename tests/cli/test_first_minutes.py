"""What somebody reads who uses tokmill for the first time, and makes the usual mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(("verb", "more"), [("plan", []), ("pretrain", ["-o", "out"])])
def test_the_eos_that_is_taken_although_no_file_names_it_is_said_in_one_line(
    tokmill, corpus, base, monkeypatch, verb, more
):
    monkeypatch.chdir(corpus.parent)
    options = ["-t", base, *more]
    outcome = tokmill(verb, corpus, *options)
    assert outcome.code == 0, outcome.err
    note = f"{base}: no file names an end-of-text token; taken: id 0 <eos>, the only candidate"
    assert [line for line in outcome.err.splitlines() if "end-of-text" in line] == [
        f"{note} (--eos-token: another)"
    ]
    quiet = ["--json"] if verb == "plan" else ["-q", "--overwrite"]
    assert tokmill(verb, corpus, *options, *quiet).err == ""


@pytest.mark.parametrize(
    ("verb", "config"), [("pretrain", {}), ("sft", {"eos_token": "<|im_end|>"})]
)
def test_a_tokenizer_of_a_known_family_needs_no_option_to_end_documents(
    tokmill, corpus, base, monkeypatch, verb, config
):
    monkeypatch.chdir(corpus.parent)
    text = (base / "tokenizer.json").read_text().replace("<|im_start|>", "<|im_end|>")
    content = json.loads(text.replace("<eos>", "<|endoftext|>"))
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"filler {i}": i for i in range(max(vocabulary.values()) + 2, 6400)}
    (base / "tokenizer.json").write_text(json.dumps(content))
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    more = ["--template", "plain"] if verb == "sft" else []
    outcome = tokmill(verb, corpus, "-t", base, "-o", "out", *more)
    assert outcome.code == 0, outcome.err
    taken = "taken: id 2 <|im_end|>, with which minimind ends documents of pretraining"
    said = [line for line in outcome.err.splitlines() if taken in line]
    assert len(said) == (0 if config else 1)
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["tokenizer"]["eos"] == {"token": "<|im_end|>", "id": 2}


def test_a_first_run_names_its_input_before_engines_are_compared(
    tokmill, corpus, tokenizer_dir, tmp_path, monkeypatch
):
    pytest.importorskip("gigatoken")
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    options = ["-t", tokenizer_dir, "--engine", "gigatoken"]
    outcome = tokmill("pretrain", corpus, *options, "-o", tmp_path / "out")
    starts = [re.split(":| with ", line)[0] for line in outcome.err.splitlines()]
    opening = ["input", "fields", "first document"]
    # Once on all characters, where a release has no table, and once on this corpus.
    assert list(dict.fromkeys(starts)) == [*opening, "comparing gigatoken", "renderer"]
    quiet = tokmill("pretrain", corpus, *options, "-o", tmp_path / "quiet", "-q")
    assert quiet.err == ""


# Words of the command line


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("pretrian", "no such command 'pretrian': did you mean pretrain?"),
        ("Inspect", "no such command 'Inspect': did you mean inspect?"),
        ("a.jsonl", "no such command 'a.jsonl': expected one of pretrain, sft, "),
    ],
)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(tokmill, word, said):
    outcome = tokmill(word)
    assert outcome.code == 2
    assert outcome.error.startswith(said)


# Where a wrong value came from


def test_a_wrong_value_is_named_by_the_option_the_variable_or_the_file_that_it_came_from(
    tokmill, tmp_path, monkeypatch
):
    file = tmp_path / "run.toml"
    file.write_text("[output]\nval_fraction = 3\n")
    expected = "expected between 0.0 and 1.0, found 3.0"
    run = ("pretrain", "a.jsonl", "-t", "t", "-o", "out")
    for words, name in (
        (["--val-fraction", "3"], "--val-fraction"),
        (["--config", file], f"{file}: output.val_fraction"),
    ):
        assert tokmill(*run, *words).error == f"{name}: {expected}"
    monkeypatch.setenv("TOKMILL_VAL_FRACTION", "3")
    assert tokmill(*run).error == f"TOKMILL_VAL_FRACTION: {expected}"


def test_values_that_contradict_each_other_are_both_named(tokmill, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[limits]\nmax_tokens = 3\n")
    outcome = tokmill("pretrain", "a.jsonl", "--config", file, "--min-tokens", "4")
    assert outcome.error == "--min-tokens: 4 is more than --max-tokens, 3"


# A book as plain text


def test_a_book_that_becomes_one_document_is_noted(tokmill, tokenizer_dir, tmp_path):
    book = tmp_path / "my book.txt"
    book.write_text("hello world\n\n" * 90_000)
    outcome = tokmill("plan", book, "-t", tokenizer_dir, "--engine", "reference")
    note = f"{book}, 1.17 MB, becomes one document: --text-separator='\\n\\n' splits at empty lines"
    assert note in outcome.err.splitlines()


# Terminals


def test_text_that_the_terminal_s_encoding_lacks_is_shown_escaped(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "NO_COLOR": "1"}
    words = [sys.executable, "-m", "tokmill", "verify", "猫"]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True)
    assert ended.returncode == 2
    assert ended.stderr == (
        b"error: \\u732b: not a tokmill dataset: no such directory: name the output of a run\n"
    )
