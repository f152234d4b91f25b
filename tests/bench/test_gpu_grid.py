"""The grid for a real GPU, without one."""

import json

import pytest

from bench import gpu_grid
from bench.gpu_cases import SHAPES, Memory, grid, of_bill, predicted
from tokmill.bill.formula import Bill, Line
from tokmill.bill.models.load import model_from_config
from tokmill.bill.overhead import CUDA_CONTEXT, FRAGMENTATION

GIB = 1 << 30
ROW = {
    "name": "gpt2",
    "held_out": True,
    "used_by_others": 1 * GIB,
    "measured": {
        "allocated": 10 * GIB, "reserved": 12 * GIB, "reserved_now": 11 * GIB,
        "used_after": 14 * GIB,
    },
}  # fmt: skip


def test_every_kind_of_case_is_there_and_some_of_each_are_held_out():
    for held_out in (False, True):
        cases = [case for case in grid() if case.held_out is held_out]
        trained = [case.training for case in cases if case.training]
        assert {t.precision for t in trained} == {"fp32", "amp", "pure-16"}
        assert {t.checkpointing for t in trained} == {"none", "full"}
        assert {t.attention for t in trained} == {"auto", "eager"}
        assert {t.optimizer_step for t in trained} == {"foreach", "fused"}
        assert {"adamw", "adamw-8bit"} <= {t.optimizer for t in trained}
        assert {t.adapter for t in trained} == {"none", "lora"}
        assert any(case.inference for case in cases)


def test_cases_have_names_of_their_own_and_no_held_out_case_is_a_shaped_one():
    assert len({case.name for case in grid()}) == len(grid()) >= 30
    settings = [(case.shape, case.training, case.inference) for case in grid()]
    assert len(set(settings)) == len(settings)


def test_shapes_are_models_of_100_million_to_3_billion_parameters():
    found = [model_from_config(config, name).parameters for name, config in SHAPES.items()]
    assert found[0] == 124_439_808
    assert found[4:6] == [1_235_814_400, 1_100_048_384]
    assert 1e8 < min(found) < max(found) < 3.3e9


@pytest.mark.parametrize("case", grid(), ids=lambda case: case.name)
def test_the_formulas_answer_for_every_case(case):
    found = predicted(case)
    assert 1e8 < found.allocated < found.reserved < 1.2 * found.allocated
    assert found.outside == 500 << 20


def test_a_bill_is_parted_by_who_sees_its_lines():
    lines = [("weights", 70), (FRAGMENTATION.name, 7), ("casts", 30), (CUDA_CONTEXT.name, 5)]
    bill = Bill("", tuple(Line(name, n, n, n, str(n)) for name, n in lines))
    assert of_bill(bill) == Memory(allocated=100, reserved=107, outside=5)


def test_outside_is_what_the_card_holds_beside_tensors_and_others():
    assert gpu_grid.measured_memory(ROW) == Memory(10 * GIB, 12 * GIB, 2 * GIB)


def test_errors_are_relative_to_what_was_measured():
    found = gpu_grid.errors(ROW, Memory(11 * GIB, 9 * GIB, 5 * GIB))
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
        rows.append({"name": case.name, "held_out": case.held_out, "used_by_others": 0,
                     "measured": measured})  # fmt: skip
    rows[0] = {"name": rows[0]["name"], "held_out": False, "left_out": "out of memory"}
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


def test_without_stored_data_there_is_nothing_to_score(tmp_path, monkeypatch, capsys):
    path = tmp_path / "grid.json"
    monkeypatch.setattr(gpu_grid, "DATA", path)
    assert gpu_grid.main(["--score"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"{gpu_grid.NO_DATA.format(path)}\n")


def test_without_a_gpu_it_says_so_in_one_line_and_exits_with_2(capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_grid.main([]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"{gpu_grid.NO_GPU}\n")


def test_the_cases_can_be_listed_without_a_gpu(capsys):
    assert gpu_grid.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(grid()) + 1
