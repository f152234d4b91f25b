"""The disk bill on the screen."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.bill.text.printed import FOUND, PLANNED, bill, printed
from tokmill.bill.disk_files import Share
from tokmill.bill.on_disk import OnDisk
from tokmill.bill.text.breakdown import disk_tables, lengths_table


def text(disk: OnDisk | None, *, shown: set[str] | None = None) -> str:
    return printed(disk_tables(bill(disk, precision="fp32"), shown=shown))


def test_many_sources_are_not_all_shown():
    sources = tuple(Share(f"{i}.jsonl", 1, 2, 3) for i in range(14))
    shown = text(replace(PLANNED, found=replace(FOUND, sources=sources)))
    assert "11.jsonl" in shown
    assert "12.jsonl" not in shown
    assert "and 2 more" in shown


def test_only_known_ratios_are_shown():
    shown = text(replace(PLANNED, found=FOUND))
    assert re.search(r"^  bytes per token +2\.005 \(uint16\)$", shown, re.MULTILINE)
    assert re.search(r"^  size relative to the text +200\.5% of 10 MB$", shown, re.MULTILINE)
    assert re.search(r"^  files not in the manifest +\.lock$", shown, re.MULTILINE)
    assert "as it is stored" not in shown


def test_without_a_dataset_there_are_checkpoints_alone():
    shown = text(None)
    assert "disk: checkpoints" in shown
    assert "choices" not in shown


def test_formulas_of_amounts_and_choices_are_shown_once():
    shown: set[str] = set()
    assert "q * T + 1024 * files" in text(PLANNED, shown=shown)
    assert "q * T" not in text(PLANNED, shown=shown)


def length_lines(histogram: list[int], context: int) -> list[list[str]]:
    shown = printed([lengths_table(histogram, context, "documents")])
    return [line.split() for line in shown.splitlines()]


def test_each_class_has_its_count_its_share_a_bar_and_its_side_of_the_context():
    _, *rows = length_lines([0, 5, 0, 10, 5], 10)
    assert [" ".join(row) for row in rows] == [
        f"2 to 3 5 25.0% {'#' * 10} fit",
        "4 to 7 0 0.0% fit",
        f"8 to 15 10 50.0% {'#' * 20} some fit",
        f"16 to 31 5 25.0% {'#' * 10} too long",
    ]


def test_a_class_that_ends_with_the_context_fits_and_one_that_begins_behind_it_does_not():
    _, *rows = length_lines([1, 1, 1, 1], 3)
    assert [row[-1] for row in rows] == ["fit", "fit", "long", "long"]
    assert rows[0][0] == "1"


def test_a_dataset_without_documents_has_no_class():
    assert len(length_lines([0, 0], 10)) == 1
    assert len(length_lines([], 10)) == 1
