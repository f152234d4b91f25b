"""`tokmill sft` on what stands inside texts: think blocks in replies, rendered conversations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SAMPLES

RENDERED = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>"


@pytest.fixture
def sft(tokmill: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run `sft` over records with the tokenizer of the samples and the reference engine."""

    def run(*records: dict[str, Any], options: tuple[str, ...] = ()) -> Any:
        path = tmp_path / "in.jsonl"
        if not path.exists():
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return tokmill(
            *("sft", path, "-o", tmp_path / "out", "-t", SAMPLES / "tokenizer"),
            *("--engine", "reference", "--threads", "1", *options),
        )

    return run


def test_think_blocks_are_read_and_what_stays_text_is_said(sft, tmp_path, tokmill):
    reply = "<think>\nR\n</think>\n\nA </think>"
    chat = {"prompt": "Q <|im_end|>", "completion": reply}
    outcome = sft(chat, options=("--template", "chatml"))
    assert outcome.code == 0
    assert "1 reply whose leading think block was read as reasoning" in outcome.out
    assert "1 think and tool_call tag kept as text" in outcome.out
    assert "1 string of control tokens kept as text" in outcome.out
    shown = tokmill("inspect", tmp_path / "out").out
    assert "‹<think>›\nR\n‹</think>›\n\nA </think>‹<|im_end|>›" in shown


def test_rendered_texts_end_the_run_before_it_writes(sft, tmp_path):
    outcome = sft({"text": RENDERED}, options=("--template", "chatml"))
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "rendered conversations in 1 of 1 text (found '<|im_start|>')" in outcome.err
    assert "--rendered-text=parse" in outcome.err
    assert not (tmp_path / "out").exists()


def test_rendered_texts_are_taken_as_they_are_by_an_option(sft, tmp_path, tokmill):
    outcome = sft({"text": RENDERED}, {"text": "B"}, options=("--rendered-text", "parse"))
    assert outcome.code == 0
    assert "text: each record is taken as it is" in outcome.err
    assert tokmill("verify", tmp_path / "out").code == 0
    shown = tokmill("inspect", tmp_path / "out").out
    assert "‹<|im_start|>›«user\nQ‹<|im_end|>›\n‹<|im_start|>›assistant\nA‹<|im_end|>›»" in shown


def test_a_set_of_texts_says_what_they_become(sft):
    outcome = sft({"text": "A"}, options=("--template", "chatml"))
    assert outcome.code == 0
    said = "text: each record becomes one assistant message; all of it is trained\n"
    assert outcome.err.count(said) == 1
