from __future__ import annotations

import pytest

from tokmill.errors import RecordError
from tokmill.executors.watch import RejectWatch
from tokmill.pipeline.spec import Progress


@pytest.fixture
def watch(tmp_path, configure, plan_of, write_rows):
    """Give a function that makes a watch of some fraction."""

    def make(fraction: float, forward=lambda progress: None) -> RejectWatch:
        source = write_rows(tmp_path / "in.jsonl", [{"text": "a"}])
        config = configure(tmp_path / "out", source, max_reject_fraction=fraction)
        return RejectWatch(plan_of(config), forward)

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
        "999 of 1,000 records were rejected (999 malformed JSON), more than max_reject_fraction "
        "0.01 allows; if that is the right input, raise --max-reject-fraction"
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
        "902 of 1,011 records were rejected (400 b, 300 c, 200 d), more than max_reject_fraction "
        "0.5 allows; the first: in.jsonl:11: a: why; if that is the right input, raise "
        "--max-reject-fraction"
    )


def test_everything_is_forwarded_and_only_fresh_text_counts_as_speed(watch):
    heard = []
    watched = watch(1.0, heard.append)
    told = [progress(1, 0, text_bytes=7), progress(5, 0, text_bytes=900, resumed=True)]
    for item in told:
        watched.progressed(item)
    assert heard == told
    assert watched.text_bytes == 7
