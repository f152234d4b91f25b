"""Strings of control tokens in pretraining text: they stay text, are counted, and have advice."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import tokmill
from tests.cli.conftest import Outcome, manifest

STORIES = "hello world.\n<eos>\nthe cat.\n<eos>\nhello there.\n"


@pytest.fixture(name="command")
def of_command(request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """The command line; here `tokmill` is the package."""
    run: Callable[..., Outcome] = request.getfixturevalue("tokmill")
    return run


def rows(path: Path, *texts: str) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def stories(path: Path) -> Path:
    path.write_text(STORIES)
    return path


def kept(out: str) -> str:
    """Return the line about what stayed text; '' without one."""
    lines = [line for line in out.splitlines() if line.startswith("kept text")]
    return lines[0].removeprefix("kept text").strip() if lines else ""


CASES = [
    # the input, what is said, the options of the advice, documents with them
    (
        lambda folder: stories(folder / "in.txt"),
        "2 <eos> in texts, kept as text; --text-separator '<eos>' makes a document of each piece",
        "--text-separator '<eos>'",
        3,
    ),
    (
        lambda folder: rows(folder / "in.jsonl", "hello</s>", "world</s>\n", "the cat</s>"),
        "3 </s> in texts, kept as text; --strip-end '</s>' leaves it out where a text ends with it",
        "--strip-end '</s>'",
        3,
    ),
    (
        lambda folder: rows(folder / "in.jsonl", "hello<eos> world", "the <bos>cat"),
        "1 <bos>, 1 <eos> in texts, kept as text; --control-tokens-in-text parse makes control "
        "tokens of them, reject rejects them",
        "--control-tokens-in-text parse",
        2,
    ),
    (
        lambda folder: rows(folder / "in.jsonl", "a<file_sep>b<|im_end|>c", "the<|eot_id|>d"),
        "1 <file_sep>, 1 <|eot_id|>, 1 <|im_end|> in texts, kept as text; this tokenizer has no "
        "such token",
        "",
        2,
    ),
    (lambda folder: rows(folder / "in.jsonl", "a < b <b>bold</b> <s>x", "<|>"), "", "", 2),
]


@pytest.mark.parametrize(("write", "said", "options", "documents"), CASES)
def test_they_are_counted_in_plan_and_run_and_the_advice_works(
    command, pretrain, tokenizer_dir, tmp_path, write, said, options, documents
):
    path = write(tmp_path)
    planned = command("plan", path, "-t", tokenizer_dir, "--engine", "reference")
    outcome = pretrain(path)
    assert kept(planned.out) == (said and f"{said} (in the records)")
    assert kept(outcome.out) == said
    assert kept(command("report", tmp_path / "out").out) == said
    mended = pretrain(path, *shlex.split(options), "--overwrite")
    assert manifest(tmp_path / "out")["totals"]["documents"] == documents
    assert kept(mended.out) == ("" if options else said)


def test_an_end_is_left_out_with_the_white_space_behind_it_and_nothing_else(pretrain, tmp_path):
    path = rows(tmp_path / "in.jsonl", "a\n</s> \n", "</s>b", "</s>", "c</s></s>", "d")
    assert pretrain(path, "--strip-end", "</s>").code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["drops"]) == (4, {"empty": 1})
    dataset = tokmill.open(tmp_path / "out")
    texts = [dataset.text(i).removesuffix("<eos>") for i in range(4)]
    assert texts == ["a\n", "</s>b", "c</s>", "d"]


def test_the_bytes_of_shards_and_the_plan_do_not_depend_on_the_counts(pretrain, tmp_path):
    path = rows(tmp_path / "in.jsonl", "hello<eos>", "world")
    assert pretrain(path, "-q").code == 0
    plan = json.loads((tmp_path / "out/plan.json").read_bytes())
    assert "strip_end" not in plan["settings"]["render"]
    counters = manifest(tmp_path / "out")["totals"]["counters"]
    assert counters == {"control token <eos> at the end of texts": 1}
