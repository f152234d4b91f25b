"""What a command does not need, it does not import: a small run consists of its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tokmill as package
from tests.cli.conftest import write_lines

STARTED = """
import sys
from tokmill.__main__ import main

try:
    main()
finally:
    print("IMPORTED", *sorted(sys.modules))
"""

ALWAYS = (
    "awkward", "datasets", "fastokens", "gigatoken", "huggingface_hub", "importlib.metadata",
    "jinja2", "numpy.ma", "obstore", "pandas", "psutil", "ray", "sentencepiece", "torch",
    "transformers", "tokmill.chat.jinja", "tokmill.loader", "tokmill.mixing", "tokmill.page.report",
    "tokmill.trainers",
)  # fmt: skip
"""Packages and modules that no command below needs."""

DECODING = ("multiprocessing", "pyarrow", "tokmill.dataset.writer", "tokmill.run")
READING = (
    "pyarrow", "rich", "tokenizers", "tokmill.dataset.writer", "tokmill.engines", "tokmill.run",
)  # fmt: skip

UNNEEDED = {
    "--help": ("numpy", "pyarrow", "rich", "tokenizers", "tomllib", "tokmill.settings"),
    "pretrain {input} -t {tokenizer} -o {output}": (
        "multiprocessing", "rich", "tokmill.bill.full_bill", "tokmill.run.forecast",
        "tokmill.run.ray", "tokmill.run.workers",
    ),
    "pretrain {input} -t {tokenizer} -o {with_engine} --engine gigatoken": ("rich",),
    "inspect {dataset} -n 1": DECODING,
    "stats {dataset}": DECODING,
    "verify {dataset}": READING,
    "memory --model gpt2": ("numpy", "pyarrow", "tokenizers", "tokmill.run"),
}  # fmt: skip


@pytest.fixture(scope="module")
def named(tmp_path_factory, tokenizer_dir) -> dict[str, Path]:
    """An input, and a dataset made of it."""
    folder = tmp_path_factory.mktemp("start-up")
    path = write_lines(folder / "a.jsonl", [{"text": "hello world"}] * 3)
    package.pretrain(path, tokenizer=tokenizer_dir, output=folder / "dataset", progress=False)
    places = {name: folder / name for name in ("dataset", "output", "with_engine")}
    return {"input": path, "tokenizer": tokenizer_dir, **places}


@pytest.mark.parametrize("command", UNNEEDED)
def test_a_command_imports_nothing_that_it_does_not_need(named, command):
    words = [word.format(**named) for word in command.split()]
    # A terminal, or a width in COLUMNS, wraps the lines of a summary with rich.
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-c", STARTED, *words],
        capture_output=True, text=True, check=False, env=variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    imported = done.stdout.rpartition("IMPORTED ")[2].split()
    # gigatoken's engine is its own package, and pyarrow asks numpy.ma of a mask of documents.
    needed = {"gigatoken", "numpy.ma"} if "gigatoken" in words else set()
    unneeded = [
        name
        for name in imported
        for kept_out in {*ALWAYS, *UNNEEDED[command]} - needed
        if name == kept_out or name.startswith(f"{kept_out}.")
    ]
    assert unneeded == []
