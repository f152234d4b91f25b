"""The disk bill on the screen."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.disk_files import DatasetDisk, Share, predicted_disk
from tokmill.bill.full_bill import BillSettings, OnDisk, full_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.text.disk import disk_tables, lengths_table
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

SIZE = DatasetSize("pretrain", 10_000_000, 2000, 2, vocabulary=50_257)
PLANNED = OnDisk("out", SIZE, predicted_disk(SIZE, slices=1), 50 * 10**9)
EXACT = tuple(
    replace(line, low_bytes=line.n_bytes, high_bytes=line.n_bytes) for line in PLANNED.bill.lines
)
FOUND = DatasetDisk(
    replace(PLANNED.bill, lines=EXACT), (), (), (".lock",), "uint16", 10_000_000, 10**7, 0
)


def text(disk: OnDisk | None, *, told: set[str] | None = None) -> str:
    training, inference = TrainingSettings(precision="fp32"), InferenceSettings()
    settings = BillSettings(ModelSettings(name="gpt2"), training, inference)
    found = full_bill(settings, disk, Machine())
    console = Console(file=io.StringIO(), width=150, color_system=None)
    for table in disk_tables(found, told=told):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_a_disk_with_room_says_how_much():
    assert re.search(r"^  50 GB free in out$", text(PLANNED), re.MULTILINE)


def test_a_disk_that_cannot_hold_what_is_to_come_is_said_aloud():
    shown = text(replace(PLANNED, free_bytes=10**9))
    expected = r"^  1 GB free in out: TOO LITTLE, 4\.5 GB still to write$"
    assert re.search(expected, shown, re.MULTILINE)


def test_of_a_finished_dataset_only_the_checkpoints_are_to_come():
    checkpoints = 3 * 12 * 124_439_808
    there = replace(PLANNED, bill=FOUND.bill, found=FOUND, free_bytes=checkpoints)
    assert "TOO LITTLE" not in text(there)
    assert "TOO LITTLE" in text(replace(there, free_bytes=checkpoints - 1))
    assert "TOO LITTLE" in text(replace(there, found=None))


def test_many_sources_are_not_all_shown():
    sources = tuple(Share(f"{i}.jsonl", 1, 2, 3) for i in range(14))
    shown = text(replace(PLANNED, found=replace(FOUND, sources=sources)))
    assert "11.jsonl" in shown
    assert "12.jsonl" not in shown
    assert "and 2 more" in shown


def test_ratios_are_those_that_can_be_told():
    shown = text(replace(PLANNED, found=FOUND))
    assert re.search(r"^  bytes per token +2\.005 \(uint16\)$", shown, re.MULTILINE)
    assert re.search(r"^  size relative to the text +200\.5% of 10 MB$", shown, re.MULTILINE)
    assert re.search(r"^  files not in the manifest +\.lock$", shown, re.MULTILINE)
    assert "as it is stored" not in shown


def test_without_a_dataset_there_are_checkpoints_alone():
    shown = text(None)
    assert "disk: checkpoints" in shown
    assert "free in" not in shown
    assert "choices" not in shown


def test_formulas_of_amounts_and_choices_are_told_once():
    told: set[str] = set()
    assert "q * T + 1024 * files" in text(PLANNED, told=told)
    assert "q * T" not in text(PLANNED, told=told)


def length_lines(histogram: list[int], context: int) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(lengths_table(histogram, context, what="documents"))
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_each_class_has_its_count_its_share_a_bar_and_its_side_of_the_context():
    _, *rows = length_lines([0, 5, 0, 10, 5], 10)
    assert [" ".join(row) for row in rows] == [
        f"2 to 3 5 25.0% {'#' * 15} fit",
        "4 to 7 0 0.0% fit",
        f"8 to 15 10 50.0% {'#' * 30} some fit",
        f"16 to 31 5 25.0% {'#' * 15} too long",
    ]


def test_a_class_that_ends_with_the_context_fits_and_one_that_begins_behind_it_does_not():
    _, *rows = length_lines([1, 1, 1, 1], 3)
    assert [row[-1] for row in rows] == ["fit", "fit", "long", "long"]
    assert rows[0][0] == "1"


def test_a_dataset_without_documents_has_no_class():
    assert len(length_lines([0, 0], 10)) == 1
    assert len(length_lines([], 10)) == 1
