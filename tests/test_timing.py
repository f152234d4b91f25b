from __future__ import annotations

from tokmill import timing
from tokmill.timing import StageSeconds, StageTimer, add_seconds


def test_the_times_of_a_stage_add_up_and_skipped_time_is_not_counted():
    laps = StageTimer()
    laps.end("read")
    first = laps.seconds["read"]
    laps.skip()
    laps.end("parse")
    laps.end("read")
    assert list(laps.seconds) == ["read", "parse"]
    assert laps.seconds["read"].wall_s >= first.wall_s >= 0
    assert laps.seconds["parse"].wall_s >= 0
    assert laps.seconds["parse"].since_s >= laps.seconds["read"].since_s == first.since_s


def test_a_stage_has_the_seconds_of_the_clock_and_of_the_processor(monkeypatch):
    clock, processor = iter([10.0, 11.0, 15.0, 16.0]), iter([1.0, 1.5, 1.5, 2.5])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(timing.time, "thread_time", lambda: next(processor))
    timer = StageTimer()
    for stage in ("work", "wait", "work"):
        timer.end(stage)
    assert timer.seconds == {"work": (2.0, 1.5, 10.0), "wait": (4.0, 0.0, 11.0)}


def test_seconds_are_added_stage_by_stage():
    total = {"read": StageSeconds(1.0, 0.5, 20.0)}
    add_seconds(
        total, {"read": StageSeconds(0.5, 0.25, 10.0), "hash": StageSeconds(2.0, 1.0, 30.0)}
    )
    assert total == {"read": (1.5, 0.75, 10.0), "hash": (2.0, 1.0, 30.0)}
