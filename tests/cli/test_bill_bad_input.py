"""A user's mistakes about the bill, through the command line: one clear line, or a note beside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

GPT2 = ("memory", "--model", "gpt2")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--model", "lama-3-8b"), "model lama-3-8b: no file and no built-in model (near: llama-3"),
        (("--model", "no/such/config.json"), "no/such/config.json: no such file; give a config"),
        (("--layers", "2"), "no model: give --model (tokmill memory --models lists names), --fam"),
        (("--family", "llama"), "family llama: a model by numbers needs --layers, --hidden"),
        ((*GPT2[1:], "--family", "llama"), "model gpt2: its family is gpt2, not llama; leave out "),
        ((*GPT2[1:], "--experts", "8"), "model gpt2: --experts 8 does not exist in gpt2"),
        ((*GPT2[1:], "--layers", "9" * 12), "model gpt2: --layers: expected a whole number from"),
        (
            (*GPT2[1:], "--micro-batch", "-3"),
            "--micro-batch (training.micro_batch): expected",
        ),
        ((*GPT2[1:], "--gpu", "Voodoo"), "gpu: 'Voodoo' is not known"),
        ((*GPT2[1:], "--deepspeed", "no.json"), "no.json: "),
        ((*GPT2[1:], "--weights", "nf4"), "weights: nf4 is for weights that are not trained, but"),
        (
            (*GPT2[1:], "--gpus", "2", "--offload", "all"),
            "offload: all needs sharding zero-1, zero-2, zero-3, fsdp or",
        ),
    ],
)
def test_a_mistake_is_one_line(tokmill, options, expected):
    outcome = tokmill("memory", *options)
    assert outcome.code == 2
    assert outcome.error.startswith(expected)
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b"[]", "expected a JSON object, found list"),
        (b'{"model_type": "unheard_of"}', "cannot count the parameters of unheard_of: "),
        (b'{"model_type": "llama", "hidden_size": "64"}', "hidden_size: expected a whole number f"),
    ],
)
def test_a_configuration_that_is_none_is_one_line(tokmill, tmp_path, text, expected):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    outcome = tokmill("memory", "--model", path)
    assert outcome.code == 2
    assert outcome.error.removeprefix(f"{path}: ").startswith(expected)


def test_lengths_beyond_the_positions_are_said(tokmill):
    options = (*GPT2, "--sequence", "4096", "--context", "1025")
    expected = [
        "sequence: 4,096 tokens are more than the model's 1,024 positions",
        "context: 1,025 tokens are more than the model's 1,024 positions",
    ]
    assert json.loads(tokmill(*options, "--json").out)["notes"] == expected
    rows = tokmill(*options).out.splitlines()
    assert [row.removeprefix("note").strip() for row in rows if "positions" in row] == expected
    assert "positions" not in tokmill(*GPT2, "--sequence", "1024").out


@pytest.mark.parametrize("options", [("--json",), ("--explain",)])
def test_output_that_finds_no_room_is_one_line(options):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tokmill", *GPT2, *options], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 5
    assert done.stderr == b"error: standard output: no space left on device\n"


def test_output_that_is_closed_is_no_error():
    words = f"{sys.executable} -m tokmill memory --model gpt2 >&-"
    done = subprocess.run(["/bin/sh", "-c", words], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_figure_is_lost_in_a_terminal_of_40_columns(tokmill, monkeypatch):
    def figures(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        out = tokmill("memory", "--model", "llama-3-8b", "--gpu", "T4").out
        assert max(map(len, out.splitlines())) <= width
        return sorted(word for word in out.split() if re.fullmatch(r"\d+\.\d+", word))

    assert figures(40) == figures(200)


def test_an_unknown_gpu_is_said_where_no_model_is_named(tokmill, single):
    outcome = tokmill("report", single.directory, "--gpu", "H1000")
    assert outcome.code == 2
    assert outcome.error.startswith(
        "gpu: 'H1000' is not known: expected its memory (24GiB) or one of"
    )
