"""The tables of a bill: part by part, with formulas on request."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pytest

from tests.bill.text.printed import PLANNED, bill, printed
from tokmill.bill.text import PARTS
from tokmill.bill.text.breakdown import bill_tables
from tokmill.settings.model import ModelSettings


def text(
    *wanted: Any, parts: Collection[str] = PARTS, explain: bool = False, **settings: Any
) -> str:
    return printed(bill_tables(bill(*wanted, **settings), parts, explain=explain))


@pytest.mark.parametrize(
    ("part", "titles"),
    [
        ("gpu", ["parameters", "GPU memory at the peak, ", "GPU memory at each moment"]),
        ("host", ["host RAM per node at the peak, ", "host RAM at each moment"]),
        ("disk", ["disk: the dataset", "disk: checkpoints", "disk: optional"]),
        ("time", ["training"]),
        ("inference", ["parameters", "GPU memory, inference: 1 x 1,024 tokens"]),
    ],
)
def test_a_part_has_its_own_tables(part: str, titles: list[str]):
    shown = text(PLANNED, parts=(part,)).split("\n\n")
    found = [block.strip().splitlines()[0] for block in shown]
    heads = [head for head in found if not head.startswith(("shared memory", "host RAM: page"))]
    assert len(heads) == len(titles)
    for head, title in zip(heads, titles, strict=True):
        assert head.startswith(title)


def test_options_that_save_memory_are_shown_with_every_remedy_alone():
    shown = text(gpu="3GiB", micro_batch=16)
    assert re.search(r"^options that save memory +saves +peak$", shown, re.MULTILINE)
    assert re.search(r"^  --checkpointing full +\d", shown, re.MULTILINE)
    assert "options that save memory" not in text(gpu="80GiB")


def test_every_moment_has_its_total_and_one_of_them_is_the_peak():
    found = bill().of_model
    assert found is not None
    shown = text(parts=("gpu",)).partition("GPU memory at each moment of a training step, GiB")[2]
    totals = [float(n) for n in re.findall(r"^  \S.*?  +[\d.]+ +([\d.]+) +[\d.]+$", shown, re.M)]
    assert len(totals) == len(found.training.moments)
    assert max(totals) == round(found.training.peak.n_bytes / 2**30, 2)


@pytest.mark.parametrize("width", [80, 120])
def test_no_table_is_wider_than_the_screen_and_nothing_is_cut(width: int):
    settings = {"gpu": "2GiB", "micro_batch": 64, "loader_workers": 4, "start_method": "spawn"}
    found = bill(PLANNED, **settings)
    shown = printed(bill_tables(found, PARTS, explain=True), width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert found.of_model is not None
    words = " ".join(shown.split())
    for line in found.of_model.training.peak.lines:
        assert f"{line.name} = {line.formula}" in words


def test_without_a_model_there_are_host_ram_and_disk_alone():
    shown = text(PLANNED, ModelSettings())
    assert "GPU memory" not in shown
    assert "disk: the dataset" in shown
