"""The bill on the screen: what is shown, and what is shown only when asked for."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.disk_files import predicted_disk
from tokmill.bill.full_bill import BillSettings, OnDisk, full_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.text.breakdown import bill_tables
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GPT2 = ModelSettings(name="gpt2")
SIZE = DatasetSize(
    "pretrain", 10_000_000, 2000, 2, vocabulary=50_257, length_histogram=(0,) * 12 + (2000,)
)
PLANNED = OnDisk("out", SIZE, predicted_disk(SIZE, slices=1), 50 * 10**9)


def text(
    disk: OnDisk | None = None,
    model: ModelSettings = GPT2,
    machine: Machine | None = None,
    *,
    settings: dict[str, Any] | None = None,
    **training: Any,
) -> str:
    asked = BillSettings(
        model, TrainingSettings(**training), InferenceSettings(), ("a note",), ("zero.x = 1",)
    )
    found = full_bill(asked, disk, machine or Machine())
    console = Console(file=io.StringIO(), width=150, color_system=None)
    for table in bill_tables(found, **(settings or {})):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_the_model_and_the_settings_stand_first():
    lines = text(gpus=4, sharding="zero-2", adapter="lora").splitlines()
    assert lines[0].startswith("model: gpt2, 124,439,808 parameters: embedding 39,383,808, ")
    assert lines[1] == (
        "training: precision mixed-16, optimizer adamw, micro batch 1, sequence 1,024, "
        "attention flash, checkpointing none, lora of rank 16, 4 GPUs, zero-2"
    )
    assert lines[2:4] == ["note: a note", "not read from settings files: zero.x = 1"]


def test_nothing_empty_stands_first():
    assert text()[:5] == "model"
    assert text(PLANNED, model=ModelSettings())[:5] == "disk:"


def test_active_parameters_are_said_where_they_are_others():
    assert ", 12,879,925,248 active per token: " in text(model=ModelSettings(name="mixtral-8x7b"))
    assert "active" not in text().splitlines()[0]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("80GiB", r"^  fits on 80GiB \(80\.00 GiB\): 7\d\.\d\d GiB left$"),
        ("2GiB", r"^  does not fit on 2GiB \(2\.00 GiB\): .* missing$"),
        ("", r"^  add --gpu to see whether it fits$"),
    ],
)
def test_a_verdict_stands_under_the_peak_of_training(gpu: str, expected: str):
    assert re.search(expected, text(gpu=gpu), re.MULTILINE)


def test_what_would_make_it_fit_is_shown_with_every_remedy_alone():
    shown = text(gpu="3GiB", micro_batch=16)
    assert re.search(r"^  fits with --\S", shown, re.MULTILINE)
    assert re.search(r"^options that save memory +saves +peak +cost$", shown, re.MULTILINE)
    assert re.search(r"^  --checkpointing full +\d", shown, re.MULTILINE)


def test_formulas_are_shown_on_request_each_once():
    shown = text(settings={"explain": True})
    assert "source: " not in text()
    explained = re.findall(r"^  ([^=\n]+) = [^\n]+\n    (.*)$", shown, re.MULTILINE)
    assert len(explained) > 10
    assert len(set(explained)) == len(explained)


def test_what_is_left_out_of_host_ram_is_said_once():
    assert text().count("the system and other programs") == 1


def test_the_dataset_is_compared_with_the_model():
    shown = text(PLANNED, gpu="T4", sequence=512, epochs=2.0)
    assert re.search(r"^  tokens per parameter +0\.0804 \(compute-optimal ", shown, re.MULTILINE)
    assert re.search(r"^  FLOP +\S+ in 2 epochs$", shown, re.MULTILINE)
    assert re.search(
        r"^  documents over 512 tokens +about 2,000 \(100\.0%\), ", shown, re.MULTILINE
    )


def test_without_a_model_the_last_line_says_how_to_name_one():
    shown = text(PLANNED, ModelSettings())
    assert shown.splitlines()[-1].startswith("GPU memory: add --model")
    assert "GPU memory, training" not in shown


def test_the_verdict_on_host_ram_is_that_of_the_machine():
    assert "no machine to compare it with" in text()
    assert "does not fit: " in text(machine=Machine(memory_bytes=1 << 27))
