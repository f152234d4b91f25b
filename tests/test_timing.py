from __future__ import annotations

from tokmill.timing import StageTimer, add_seconds


def test_the_times_of_a_stage_add_up_and_skipped_time_is_not_counted():
    laps = StageTimer()
    laps.end("read")
    first = laps.seconds["read"]
    laps.skip()
    laps.end("parse")
    laps.end("read")
    assert list(laps.seconds) == ["read", "parse"]
    assert laps.seconds["read"] >= first >= 0
    assert laps.seconds["parse"] >= 0


def test_seconds_are_added_stage_by_stage():
    total = {"read": 1.0}
    add_seconds(total, {"read": 0.5, "hash": 2.0})
    assert total == {"read": 1.5, "hash": 2.0}
