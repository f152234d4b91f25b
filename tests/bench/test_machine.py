"""What a figure names: the machine, and who else was using it."""

from __future__ import annotations

import pytest

from bench.machine import CpuClock, described


def test_others_are_what_the_machine_did_and_our_children_did_not():
    start, stop = CpuClock(machine_s=100, children_s=10), CpuClock(machine_s=107, children_s=15)
    assert stop.others_since(start) == pytest.approx(2)


def test_others_are_never_less_than_nothing():
    """The machine's clock ticks in hundredths."""
    assert CpuClock(100, 15).others_since(CpuClock(100, 10)) == 0


def test_a_machine_is_described_with_the_versions_of_what_is_timed():
    found = described()
    assert found["cores"] >= 1
    assert found["versions"]["numpy"][0].isdigit()
