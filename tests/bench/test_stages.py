"""The processor's time of tokmill by stage."""

from __future__ import annotations

import pytest

from bench.contenders import JSONL, PARQUET
from bench.stages import COLUMNS, stage_cells, stage_seconds, stage_shares, stage_table
from bench.values import Sample, Timing

STAGE_CPU_S = {
    "prepare": 1.0,
    "load engine": 0.5,
    "encode": 4.0,
    "parse": 2.0,
    "write": 0.25,
    "checkpoint": 0.25,
    "wait": 0.0,
    "compare": 0.25,
    "threads of libraries": 0.5,
}


def timing(*, command_cpu_s: float = 10.0, **stages: float) -> Timing:
    run = {"cpu_s": 9.0, "stage_cpu_s": STAGE_CPU_S | stages}
    notes = {"run": run, "command_cpu_s": command_cpu_s}
    return Timing(5.0, 4.0, 2_000_000, 9, 9, 1.0, notes)


def test_start_up_is_what_the_run_does_not_count_its_preparation_and_the_engine():
    found = stage_seconds(timing())
    assert found["start-up"] == 1.0 + 1.0 + 0.25 + 0.5
    assert found["engine"] == 4 + 0.5
    assert found["write"] == 0.5
    assert found["hash"] == 0


def test_the_rest_is_what_no_calling_thread_took():
    found = stage_seconds(timing())
    assert found["rest"] == pytest.approx(10 - 2.75 - 4.5 - 2 - 0.5)
    assert sum(found.values()) == pytest.approx(10)
    assert stage_seconds(timing(command_cpu_s=8.9))["rest"] == pytest.approx(0.15)  # clocks differ


def test_shares_are_the_medians_of_the_rounds():
    shares = stage_shares([timing(), timing(encode=3.5), timing(encode=3.9)])
    assert set(shares) == set(COLUMNS)
    assert shares["engine"] == pytest.approx(0.44)


def test_the_table_has_shares_and_milliseconds_for_a_megabyte():
    samples = [Sample("en", "gpt2", JSONL, 1, timing())]
    rows = stage_table(samples, [JSONL, PARQUET]).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == ["processor time by stage", "tokmill", "ms/MB"]
    assert cells[2] == ["engine", "45%", "2250"]
    assert cells[-1] == ["all", "100%", "5000"]


def test_cells_are_dashes_where_nothing_was_measured():
    assert stage_cells([]) == ["-"] * len(COLUMNS)
    assert stage_cells([timing()])[0] == "45%"
