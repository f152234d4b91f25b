from __future__ import annotations

from tokmill.page.profile import profile_rows

RUN = {"stage_s": {"read": 1.0, "encode": 3.0}, "wall_s": 2.5, "cpu_s": 3.75}


def test_each_stage_has_its_seconds_share_and_speed():
    rows = dict(profile_rows({"run": RUN, "totals": {"text_bytes": 6_000_000}}))
    assert rows["encode"].split()[:5] == ["3.00", "s", "75%", "2", "MB/s"]
    assert rows["parse"].split()[:3] == ["0.00", "s", "0%"]
    assert rows["total"] == "4.00 s in all threads, 2.50 s elapsed, 3.75 s of CPU time"


def test_a_run_that_did_nothing_has_a_profile():
    empty = {"stage_s": {}, "wall_s": 0.1, "cpu_s": 0.1}
    rows = dict(profile_rows({"run": empty, "totals": {"text_bytes": 0}}))
    assert rows["total"] == "0.00 s in all threads, 0.10 s elapsed, 0.10 s of CPU time"
