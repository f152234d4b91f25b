from __future__ import annotations

from collections import Counter

import pytest

from tokmill.errors import RecordError, UnreadInputError
from tokmill.recipes.spec import Progress
from tokmill.run.forecast.sample import InputSample
from tokmill.run.reject_limits import RejectLimit, check_sample
from tokmill.settings.schema import LimitSettings


@pytest.fixture
def watch(tmp_path, configure, plan_of, write_rows):
    """Give a function that makes a watch of some fraction."""

    def make(fraction: float, forward=lambda progress: None) -> RejectLimit:
        source = write_rows(tmp_path / "in.jsonl", [{"text": "a"}])
        config = configure(tmp_path / "out", source, max_reject_fraction=fraction)
        return RejectLimit(plan_of(config), forward)

    return make


def progress(n_records: int, n_rejects: int, **values) -> Progress:
    rejects = {"malformed JSON": n_rejects} if n_rejects else {}
    return Progress(records=n_records, rejects=rejects, **values)


def test_the_fraction_is_checked_from_a_thousand_records_on(watch):
    watched = watch(0.01)
    watched.progressed(progress(999, 999))
    with pytest.raises(RecordError) as caught:
        watched.progressed(progress(1, 0))
    assert str(caught.value) == (
        "999 of 1,000 records were rejected (999 malformed JSON), more than --max-reject-fraction "
        "0.01 allows; if that is the right input, raise it"
    )


def test_a_fraction_of_exactly_the_limit_is_allowed(watch):
    watched = watch(0.01)
    watched.progressed(progress(2000, 20))
    watched.check_at_end()
    with pytest.raises(RecordError, match=r"^21 of 2,001 records"):
        watched.progressed(progress(1, 1))


@pytest.mark.parametrize(("n_rejects", "raises"), [(10, False), (11, True)])
def test_at_the_end_more_than_ten_rejects_are_checked(watch, n_rejects, raises):
    watched = watch(0.01)
    watched.progressed(progress(20, n_rejects))
    if raises:
        with pytest.raises(RecordError, match=r"^11 of 20 records"):
            watched.check_at_end()
    else:
        watched.check_at_end()


def test_drops_never_count(watch):
    watched = watch(0.0)
    watched.progressed(Progress(records=5000, drops={"fewer than min_tokens": 5000}))
    watched.check_at_end()


def test_no_reject_at_all_may_be_asked_for_and_any_number_allowed(watch):
    with pytest.raises(RecordError, match=r"^1 of 1,000 records"):
        watch(0.0).progressed(progress(1000, 1))
    allowing = watch(1.0)
    allowing.progressed(progress(1000, 1000))
    allowing.check_at_end()


def test_the_message_names_the_commonest_reasons_and_the_first_reject(watch):
    watched = watch(0.5)
    rejects = {"a": 1, "b": 400, "c": 300, "d": 200}
    watched.progressed(Progress(records=10))
    watched.progressed(Progress(records=1, rejects={"a": 1}, first_reject="in.jsonl:11: a: why"))
    with pytest.raises(RecordError) as caught:
        watched.progressed(Progress(records=1000, rejects=rejects, first_reject="later"))
    assert str(caught.value) == (
        "902 of 1,011 records were rejected (400 b, 300 c, 200 d), more than --max-reject-fraction "
        "0.5 allows; the first: in.jsonl:11: a: why; if that is the right input, raise it"
    )


@pytest.mark.parametrize(
    ("n_rejects", "n_good", "n_records", "stops"),
    [
        (0, 100, 10**6, False),
        (11, 40, 51, True),
        (8, 6, 300, True),  # far more than by chance, and more than 10 are expected
        (8, 6, 14, False),  # the whole input: 10 rejects are allowed
        (1, 20, 10**6, False),  # may be chance
        (10, 990, 10**6, False),
        (11, 990, 10**6, True),
    ],
)
def test_a_sample_tells_that_a_run_would_stop(n_rejects, n_good, n_records, stops):
    rejects = Counter({"malformed JSON": n_rejects} if n_rejects else {})
    found = InputSample(["a"] * n_good, rejects=rejects, first_reject="malformed JSON: why")
    if not stops:
        check_sample(LimitSettings(), found, n_records)
        return
    with pytest.raises(RecordError) as caught:
        check_sample(LimitSettings(), found, n_records)
    assert str(caught.value) == (
        f"the run would stop: {n_rejects} of {n_rejects + n_good:,} sampled records were rejected "
        f"({n_rejects} malformed JSON), more than --max-reject-fraction 0.01 allows; the first: "
        "malformed JSON: why; if that is the right input, raise it"
    )
    check_sample(LimitSettings(max_reject_fraction=1.0), found, n_records)


def test_one_reject_in_a_sample_tells_enough_if_the_run_stops_at_the_first():
    found = InputSample(["a"] * 9, rejects=Counter({"b": 1}), first_reject="b: why")
    with pytest.raises(RecordError, match="would stop at a broken record: b: why"):
        check_sample(LimitSettings(on_error="fail"), found, 10)


def test_a_break_in_a_sample_tells_that_the_run_would_fail():
    found = InputSample(["a"], unread=["a.gz: byte 7: why"])
    with pytest.raises(UnreadInputError, match=r"the run would fail: a\.gz: byte 7: why"):
        check_sample(LimitSettings(), found, 10)
    check_sample(LimitSettings(on_unread="skip"), found, 10)


def test_everything_is_forwarded_and_only_fresh_text_counts_as_speed(watch):
    heard = []
    watched = watch(1.0, heard.append)
    told = [progress(1, 0, text_bytes=7), progress(5, 0, text_bytes=900, resumed=True)]
    for item in told:
        watched.progressed(item)
    assert heard == told
    assert watched.text_bytes == 7
