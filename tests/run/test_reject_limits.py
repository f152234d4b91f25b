from __future__ import annotations

import json
from collections import Counter

import pytest

from tokmill.chat.noticed import LOST_BLOCKS, LOST_CALLS, LOST_REASONING, WRITTEN_BY
from tokmill.dataset.counts import TRAINED_TURNS, Counts, Increments
from tokmill.dataset.manifest import SourceEntry
from tokmill.errors import RecordError, UnreadInputError
from tokmill.run.forecast import check_sample
from tokmill.run.reject_limits import RejectLimit, check_chats, check_outcome, describe_unread
from tokmill.run.sample import InputSample, SampledPiece
from tokmill.settings.schema import LimitSettings
from tokmill.sources.slices import SourceFile
from tokmill.values import RecordPlace, UnreadInput

ADVICE = "mend the records, or name other fields or files; a higher limit accepts the loss"


def watch(fraction: float, forward=lambda progress: None) -> RejectLimit:
    return RejectLimit(LimitSettings(max_reject_fraction=fraction), forward)


def progress(n_records: int, n_rejects: int, **values) -> Increments:
    rejects = {"malformed JSON": n_rejects} if n_rejects else {}
    return Increments(records=n_records, rejects=rejects, **values)


def test_the_fraction_is_checked_from_a_thousand_records_on():
    watched = watch(0.01)
    watched.progressed(progress(999, 999))
    with pytest.raises(RecordError) as caught:
        watched.progressed(progress(1, 0))
    assert str(caught.value) == (
        "999 of 1,000 records were rejected (999 malformed JSON), more than --max-reject-fraction="
        f"0.01 allows; {ADVICE}"
    )


def test_a_fraction_of_exactly_the_limit_is_allowed_and_drops_never_count():
    watched = watch(0.01)
    watched.progressed(progress(2000, 20, drops={"fewer than min_tokens": 1000}))
    with pytest.raises(RecordError, match=r"^21 of 2,001 records"):
        watched.progressed(progress(1, 1))


def test_at_the_end_more_than_ten_rejects_are_checked():
    check(source("a", 10, broken=10))
    with pytest.raises(RecordError, match=r"^11 of 20 records"):
        check(source("a", 9, broken=11))
    check(source("a", 9, broken=11), max_reject_fraction=1.0)


def test_the_message_names_the_commonest_reasons_and_the_first_reject():
    watched = watch(0.5)
    rejects = {"a": 1, "b": 400, "c": 300, "d": 200}
    watched.progressed(Increments(records=10))
    watched.progressed(Increments(records=1, rejects={"a": 1}, first_reject="in.jsonl:11: a: why"))
    with pytest.raises(RecordError) as caught:
        watched.progressed(Increments(records=1000, rejects=rejects, first_reject="later"))
    assert str(caught.value) == (
        "902 of 1,011 records were rejected (400 b, 300 c, 200 d), more than --max-reject-fraction="
        f"0.5 allows; the first: in.jsonl:11: a: why; {ADVICE}"
    )


def sampled(n_records, first_reject="", **counts):
    file, found = SourceFile("a.gz", "jsonl", "gz", 0, 0, ""), Counts(n_records, **counts)
    pieces = [SampledPiece(file, [], 0, 0, 0, counts=found)]
    return InputSample(pieces, first_rejects={"a.gz": first_reject} if first_reject else {})


@pytest.mark.parametrize(
    ("n_rejects", "n_good", "stops"),
    [(0, 100, False), (11, 40, True), (10, 4, False), (11, 1089, False), (11, 1088, True)],
)
def test_a_sample_shows_that_a_run_would_stop(n_rejects, n_good, stops):
    rejects = Counter({"malformed JSON": n_rejects} if n_rejects else {})
    found = sampled(n_rejects + n_good, rejects=rejects, first_reject="malformed JSON: why")
    if not stops:
        check_sample(LimitSettings(), found)
        return
    with pytest.raises(RecordError) as caught:
        check_sample(LimitSettings(), found)
    assert str(caught.value) == (
        f"the run would stop: {n_rejects} of {n_rejects + n_good:,} sampled records were rejected "
        f"({n_rejects} malformed JSON), more than --max-reject-fraction=0.01 allows; the first: "
        f"malformed JSON: why; {ADVICE}"
    )
    check_sample(LimitSettings(max_reject_fraction=1.0), found)


def test_a_break_in_a_sample_is_an_error_of_the_forecast():
    found = sampled(1, unread=[CUT])
    with pytest.raises(UnreadInputError, match=r"the run would fail: a\.gz: byte 1,000: why"):
        check_sample(LimitSettings(), found)
    check_sample(LimitSettings(on_unread="skip"), found)


def source(path, documents=1, unread=(), drops=None, **rejects):
    n_lost = sum(rejects.values()) + sum((drops or {}).values())
    counts = Counts(documents + n_lost, documents, rejects=Counter(rejects))
    counts.drops = Counter(drops)
    counts.unread = list(unread)
    return SourceEntry(path, counts)


def check(*sources, rejects=(), **limits):
    totals = Counts()
    for row in sources:
        totals.add(row.counts)
    check_outcome(LimitSettings(**limits), totals, sources, rejects)


CUT = UnreadInput(RecordPlace(3, 70), "cut off", "why", 7, 1000, 0)
CORRUPT = UnreadInput(RecordPlace(3, 70), "corrupt data", "why", 0, 1000, 2345)
QUOTE = UnreadInput(RecordPlace(3, 70), "open quote", "why", 1234)


@pytest.mark.parametrize(
    ("unread", "said"),
    [
        (CUT, "a: byte 1,000: why; not read: 7 bytes of text and what was cut off"),
        (CORRUPT, "a: byte 1,000: why; not read: 2,345 stored bytes"),
        (QUOTE, "a: record 3, byte 70 of the text: why; not read: 1,234 bytes of text"),
    ],
)
def test_a_break_is_described_with_its_place_and_the_bytes_lost(unread, said):
    assert describe_unread("a", unread) == said


def test_unread_input_is_an_error_that_names_every_break():
    rows = [source("a", unread=[CUT]), source("b"), source("c", unread=[QUOTE])]
    with pytest.raises(UnreadInputError) as caught:
        check(*rows)
    assert caught.value.files == (describe_unread("a", CUT), describe_unread("c", QUOTE))
    assert str(caught.value) == (
        "2 of 3 input files break off, not read: 1,241 bytes of text and what was cut off; to "
        "continue without the lost input, run the same command with --on-unread=skip; to get it, "
        "replace the broken files and run with --overwrite"
    )
    check(*rows, on_unread="skip")


def test_standard_input_that_broke_off_has_to_be_read_again():
    with pytest.raises(UnreadInputError, match="read it again with --on-unread=skip and --over"):
        check(source("-", unread=[QUOTE]))


def test_a_run_without_a_document_is_an_error_with_counts_by_reason():
    with pytest.raises(RecordError) as caught:
        check(source("a", 0, broken=2), source("b", 0, broken=1, empty=1), max_reject_fraction=1.0)
    said = "the run made no document of 4 records (3 rejected: broken; 1 rejected: empty)"
    assert str(caught.value) == said
    with pytest.raises(RecordError, match=r"no document: 4 input files without a record \(a, b, c"):
        check(*(source(path, 0) for path in "abcd"))
    with pytest.raises(RecordError, match=r"no document \(1 of 1 input file could not be read to"):
        check(source("a", 0, unread=[CUT]), on_unread="skip")


def test_a_file_with_only_rejects_is_an_error_with_the_first(tmp_path):
    entry = {"line": 2, "byte_offset": -1, "reason": "broken", "message": "why", "raw": ""}
    lines = [json.dumps({"source": path, **entry}) for path in ("a", "b", "b")]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    rows = [source("a", 9, broken=1), source("b", 0, broken=2), source("c", 0)]
    with pytest.raises(RecordError) as caught:
        check(*rows, rejects=[tmp_path / "none.jsonl", tmp_path / "r.jsonl"])
    assert str(caught.value) == (
        "every record of 1 of 3 input files was rejected (b): 2 broken; the first: b:2: broken: "
        "why; take such files out of the input, or accept them with --max-reject-fraction=1"
    )
    check(*rows, max_reject_fraction=1.0)


@pytest.mark.parametrize(("n_files", "fails"), [(10, True), (99, True), (100, False)])
def test_a_file_of_one_record_is_a_record_where_most_files_are(n_files, fails):
    rows = [*(source(f"{i}") for i in range(n_files - 1)), source("bad", 0, broken=1)]
    if fails:
        with pytest.raises(RecordError, match=r"rejected \(bad\)"):
            check(*rows)
        return
    check(*rows)
    with pytest.raises(RecordError, match=r"rejected \(two\)"):
        check(*rows, source("two", 0, broken=2), source("last", 100))


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (
            "no trained token",
            "; a sample needs a trained part (--train) of a turn (--roles, --turns) with a weight",
        ),
        ("more than max_tokens", "; raise --max-tokens"),
        ("fewer than min_tokens", "; lower --min-tokens"),
        ("duplicate", ""),
    ],
)
def test_a_run_with_only_drops_is_an_error_with_advice(reason, advice):
    with pytest.raises(RecordError) as caught:
        check(source("a", 0, drops={reason: 7}))
    said = f"the run made no document of 7 records (7 dropped: {reason})"
    assert str(caught.value) == said + advice


def test_one_of_several_sources_without_a_trained_token_is_an_error():
    untrained = source("b", 0, drops={"no trained token": 7})
    with pytest.raises(RecordError) as caught:
        check(source("a"), untrained)
    assert str(caught.value) == (
        "every record of 1 of 2 input files was dropped (b): 7 no trained token; take such files "
        "out of the input, or accept them with --max-reject-fraction=1"
    )
    check(source("a"), untrained, max_reject_fraction=1.0)
    check(source("a"), source("b", 1, drops={"no trained token": 7}))


@pytest.mark.parametrize(
    ("beside", "advice"),
    [
        ({f"{WRITTEN_BY} kimi-k2-thinking-training": 9},
         "allows; --template=kimi-k2-thinking-training writes them, or leave a field out"),
        ({LOST_BLOCKS: 9}, "allows; --inline-tags=fields reads think blocks as fields"),
        ({}, "allows; no training template of this model's family writes them"),
    ],
)  # fmt: skip
def test_the_advice_on_lost_reasoning_is_of_the_model_that_loses_it(beside, advice):
    with pytest.raises(RecordError) as caught:
        check_chats(LimitSettings(), {TRAINED_TURNS: 10, LOST_REASONING: 9, **beside}, 10)
    assert advice in str(caught.value)
    assert "smollm3" not in str(caught.value)


def test_a_fraction_of_one_allows_samples_that_lose_several_fields():
    counters = {TRAINED_TURNS: 10, LOST_REASONING: 9, LOST_CALLS: 9}
    check_chats(LimitSettings(max_reject_fraction=1.0), counters, 10)
    with pytest.raises(RecordError, match="more in 10 samples"):
        check_chats(LimitSettings(max_reject_fraction=0.9), counters, 10)
