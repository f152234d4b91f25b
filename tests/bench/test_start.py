from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.start import CPU, EXIT, IMPORTS, INTERPRETER, REST, WALL, Stages, measure, rows_of, run

SAMPLES = Path(__file__).parents[2] / "data_samples"


def test_the_time_of_a_stage_is_without_that_of_the_stages_inside():
    stages = Stages()
    inner = stages.timed("reference", lambda: sum(range(300_000)))
    outer = stages.timed("tokenizer files", lambda: inner() + inner())
    assert outer() == 2 * sum(range(300_000))
    assert stages.seconds["reference"] > stages.seconds["tokenizer files"] >= 0
    assert sum(stages.seconds.values()) == pytest.approx(0)


def test_an_engine_loads_while_the_main_thread_waits_for_blocks():
    stages = Stages()
    load = stages.timed("engine", lambda: None)
    compare = stages.timed("comparison, beside", lambda: None)

    def wait() -> None:
        for function in (load, compare):
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()

    stages.timed("blocks", wait)()
    assert stages.seconds["blocks"] + stages.seconds["engine"] + stages.seconds[REST] == (
        pytest.approx(0)
    )
    assert stages.seconds["comparison, beside"] > 0


def test_a_stage_that_fails_counts_too():
    stages = Stages()
    with pytest.raises(ZeroDivisionError):
        stages.timed("inputs", lambda: 1 // 0)()
    assert stages.seconds["inputs"] > 0


def test_a_row_has_the_medians_and_stages_without_time_are_left_out():
    found = {
        "a": [{"inputs": 0.001, WALL: 1.0}, {"inputs": 0.003, WALL: 2.0}, {WALL: 1.5}],
        "b": [{"engine": 0.0001, WALL: 0.25}],
    }
    assert rows_of(found) == [["inputs", "1", "0"], [WALL, "1500", "250"]]


def test_a_run_is_divided_into_stages(tokenizer_dir):
    words = ("pretrain", SAMPLES / "records.jsonl", tokenizer_dir, ("--engine", "tokenizers"))
    (found,) = measure(*words, rounds=1)
    stages = {name: value for name, value in found.items() if name not in (WALL, CPU)}
    assert stages.keys() >= {INTERPRETER, IMPORTS, "tokenizer files", "blocks", "manifest", EXIT}
    beside = stages.pop("comparison, beside", 0.0)
    assert sum(stages.values()) == pytest.approx(found[WALL], abs=0.02 + beside)
    assert found[CPU] > 0


def test_a_command_that_fails_shows_its_message(tmp_path):
    with pytest.raises(SystemExit, match="error: "):
        run(["pretrain", "missing.jsonl", "-o", str(tmp_path / "out")], tmp_path)
