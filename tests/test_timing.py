from __future__ import annotations

import os
import threading

import pytest

from tokmill import timing
from tokmill.timing import StageTimer


def test_a_stage_has_the_seconds_of_the_clock_and_of_the_processor(monkeypatch):
    clock, processor = iter([10.0, 11.0, 15.0, 16.0]), iter([1.0, 1.5, 1.5, 2.5])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(timing.time, "thread_time", lambda: next(processor))
    timer = StageTimer()
    for stage in ("work", "wait", "work"):
        timer.end(stage)
    assert timer.seconds == {"work": (2.0, 1.5, 10.0), "wait": (4.0, 0.0, 11.0)}


def test_threads_that_python_does_not_know_are_those_of_libraries(tmp_path):
    known = threading.current_thread().native_id
    for task, user, system in ((known, 700, 70), (1, 300, 30), (2, 40, 4)):
        (tmp_path / str(task)).mkdir()
        fields = f"{task} (name (of a) thread) S 1 1 1 0 -1 4 0 0 0 0 {user} {system} 0 0 20"
        (tmp_path / str(task) / "stat").write_text(fields)
    (tmp_path / "3").mkdir()  # it has ended
    assert timing.library_cpu_s(tmp_path) * os.sysconf("SC_CLK_TCK") == pytest.approx(374)
    assert timing.library_cpu_s(tmp_path / "no proc") == 0
