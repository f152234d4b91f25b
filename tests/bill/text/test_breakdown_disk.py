"""The disk bill on the screen."""

from __future__ import annotations

from dataclasses import replace

from tests.bill.text.printed import FOUND, PLANNED, bill, printed
from tokmill.bill.on_disk import OnDisk, Share
from tokmill.bill.text.breakdown import disk_tables, lengths_table


def text(disk: OnDisk | None, *, shown: set[str] | None = None) -> str:
    return printed(disk_tables(bill(disk, precision="fp32"), shown=shown))


def test_without_a_dataset_there_are_checkpoints_alone():
    shown = text(None)
    assert "disk: checkpoints" in shown
    assert "choices" not in shown


def test_a_finished_dataset_has_its_splits_its_sources_and_unlisted_files():
    shares = (Share("train", 90, 900, 1800), Share("val", 10, 100, 200))
    many = tuple(Share(f"s{i}", 1, 10, 20) for i in range(14))
    shown = text(replace(PLANNED, found=replace(FOUND, splits=shares, sources=many)))
    lines = [line.split() for line in shown.splitlines()]
    assert ["train", "90", "900", "1.8", "kB"] in lines
    assert ["s11", "1", "10", "20", "B"] in lines
    assert ["and", "2", "more"] in lines
    assert ["files", "not", "in", "the", "manifest", ".lock"] in lines


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
