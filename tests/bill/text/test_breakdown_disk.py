"""The disk bill on the screen."""

from __future__ import annotations

from dataclasses import replace

from tests.bill.text.printed import FOUND, PLANNED, bill, printed
from tokmill.bill.on_disk import OnDisk
from tokmill.bill.text.breakdown import disk_tables


def text(disk: OnDisk | None) -> str:
    return printed(disk_tables(bill(disk, precision="fp32"), explain=False))


def test_without_a_dataset_there_are_checkpoints_alone():
    shown = text(None)
    assert "disk: checkpoints" in shown
    assert "choices" not in shown


def test_a_finished_dataset_names_unlisted_files():
    lines = [line.split() for line in text(replace(PLANNED, found=FOUND)).splitlines()]
    assert ["files", "not", "in", "the", "manifest", ".lock"] in lines
