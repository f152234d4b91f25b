from __future__ import annotations

from tokmill.page.profile import profile_rows

ENGINE = {
    "name": "gigatoken",
    "version": "0.10.0",
    "reason": "fastest on a sample",
    "n_checked": 12,
    "mb_per_s": {},
    "refused": {"fastokens": "ids differ"},
}
RUN = {"stage_s": {"read": 1.0, "encode": 3.0}, "wall_s": 2.5, "cpu_s": 3.75}


def _profile(run: dict, text_bytes: int) -> list[tuple[str, str]]:
    return profile_rows({"run": run, "totals": {"text_bytes": text_bytes}, "engine": ENGINE})


def test_each_stage_has_its_seconds_share_and_speed():
    rows = dict(_profile(RUN, 6_000_000))
    assert rows["encode"].split()[:5] == ["3.00", "s", "75%", "2", "MB/s"]
    assert rows["parse"].split()[:3] == ["0.00", "s", "0%"]
    assert rows["total"] == "4.00 s in all threads, 2.50 s elapsed, 3.75 s of CPU time"


def test_a_run_that_did_nothing_has_a_profile():
    empty = {"stage_s": {}, "wall_s": 0.1, "cpu_s": 0.1}
    rows = dict(_profile(empty, 0))
    assert rows["total"] == "0.00 s in all threads, 0.10 s elapsed, 0.10 s of CPU time"


def test_the_profile_says_why_the_engine_was_chosen_and_what_was_compared():
    assert dict(_profile(RUN, 1))["engine"] == (
        "gigatoken 0.10.0 (fastest on a sample; same ids as the reference on 12 texts)\n"
        "fastokens not used: ids differ"
    )
