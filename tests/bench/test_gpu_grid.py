"""The grid for a real GPU, without one."""

import json

import pytest

from bench import gpu_grid
from bench.gpu_grid import Memory, grid, predicted

GIB = 1 << 30


def test_every_kind_of_case_is_there_and_some_of_each_are_held_out():
    assert len({case.name for case in grid()}) == len(grid()) >= 30
    for held_out in (False, True):
        cases = [case for case in grid() if case.held_out is held_out]
        trained = [case.training for case in cases if not case.serves]
        assert {t.precision for t in trained} == {"fp32", "amp", "pure-16"}
        assert {t.checkpointing for t in trained} == {"none", "full"}
        assert {t.attention for t in trained} == {"auto", "eager"}
        assert {t.optimizer_step for t in trained} == {"foreach", "fused"}
        assert {"adamw", "adamw-8bit"} <= {t.optimizer for t in trained}
        assert {t.adapter for t in trained} == {"none", "lora"}
        assert any(case.serves for case in cases)


def test_errors_are_relative_to_what_was_measured():
    measured = {
        "allocated": 10 * GIB, "reserved": 12 * GIB, "reserved_now": 11 * GIB,
        "used_after": 14 * GIB,
    }  # fmt: skip
    row = {"used_by_others": 1 * GIB, "measured": measured}
    found = gpu_grid.errors(row, Memory(11 * GIB, 9 * GIB, 5 * GIB))
    assert found == pytest.approx({"allocated": 0.1, "reserved": -0.25, "total": 0.0})


@pytest.mark.parametrize(
    ("errors", "met"),
    [
        ([0.01, -0.03, 0.10], True),
        ([0.01, -0.031, 0.04], False),
        ([0.01, 0.02, -0.11], False),
        ([], False),
    ],
)
def test_the_demand_is_on_the_median_and_on_the_worst(errors, met):
    assert gpu_grid.meets_the_demand(errors) is met


def stored(share):
    """Return data in which every case took `share` of what is expected; one was left out."""
    rows = []
    for case in grid():
        expected = predicted(case)
        reserved = round(expected.reserved * share)
        measured = {
            "allocated": round(expected.allocated * share),
            "reserved": reserved,
            "reserved_now": reserved,
            "used_after": reserved + expected.outside,
        }
        rows.append({"name": case.name, "used_by_others": 0, "measured": measured})
    rows[0] = {"name": rows[0]["name"], "left_out": "out of memory"}
    return {"schema": 1, "formulas": {"commit": "0" * 40, "changed": False}, "cases": rows}


@pytest.mark.parametrize(("share", "code", "error"), [(1.0, 0, "+0.0%"), (0.8, 1, "+25.0%")])
def test_stored_data_are_scored(tmp_path, monkeypatch, capsys, share, code, error):
    path = tmp_path / "grid.json"
    path.write_text(json.dumps(stored(share)), encoding="utf-8")
    monkeypatch.setattr(gpu_grid, "DATA", path)
    assert gpu_grid.main(["--score"]) == code
    shown = capsys.readouterr().out
    assert f"left out: {grid()[0].name}: out of memory" in shown
    assert shown.count(error) >= len(grid()) - 1
    assert "measured with the formulas of 000000000000; others now" in shown


def test_without_a_gpu_or_stored_data_it_says_so_in_one_line(tmp_path, capsys, monkeypatch):
    path = tmp_path / "grid.json"
    monkeypatch.setattr(gpu_grid, "DATA", path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for options, message in ((["--score"], gpu_grid.NO_DATA.format(path)), ([], gpu_grid.NO_GPU)):
        assert gpu_grid.main(options) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", f"{message}\n")
