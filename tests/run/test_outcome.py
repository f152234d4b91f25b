from __future__ import annotations

import json
from collections import Counter

import pytest

from tokmill.dataset.counts import Counts
from tokmill.errors import RecordError, UnreadInputError
from tokmill.run.outcome import check_outcome, describe_unread, summed_unread
from tokmill.settings.schema import LimitSettings
from tokmill.values import Place, UnreadInput


def source(path, documents=1, unread=(), drops=None, **rejects):
    n_lost = sum(rejects.values()) + sum((drops or {}).values())
    counts = Counts(documents + n_lost, documents, rejects=Counter(rejects))
    counts.drops = Counter(drops)
    counts.unread = list(unread)
    return {"path": path, **counts.as_json()}


def check(*sources, rejects=(), **limits):
    totals = Counts()
    for row in sources:
        totals.add(Counts.from_json(row))
    check_outcome(LimitSettings(**limits), totals, sources, rejects)


CUT = UnreadInput(Place(3, 70), "cut off", "why", 7, 1000, 0)
CORRUPT = UnreadInput(Place(3, 70), "corrupt data", "why", 0, 1000, 2345)
QUOTE = UnreadInput(Place(3, 70), "open quote", "why", 1234)


@pytest.mark.parametrize(
    ("unread", "said"),
    [
        (CUT, "a: byte 1,000: why; not read: 7 bytes of text and what was cut off"),
        (CORRUPT, "a: byte 1,000: why; not read: 2,345 stored bytes"),
        (QUOTE, "a: record 3, byte 70 of the text: why; not read: 1,234 bytes of text"),
    ],
)
def test_a_break_is_described_with_its_place_and_what_is_lost(unread, said):
    assert describe_unread("a", unread) == said


def test_what_is_unread_is_summed_over_files():
    rows = [source("a", unread=[CUT, CORRUPT]), source("b"), source("c", unread=[QUOTE])]
    assert summed_unread(rows) == {"files": 2, "text_bytes": 1241, "stored_bytes": 2345}
    assert summed_unread(rows[1:2]) == {}


def test_unread_input_is_an_error_that_names_every_break():
    rows = [source("a", unread=[CUT]), source("b"), source("c", unread=[QUOTE])]
    with pytest.raises(UnreadInputError) as caught:
        check(*rows)
    assert caught.value.files == (describe_unread("a", CUT), describe_unread("c", QUOTE))
    assert str(caught.value) == (
        "2 of 3 input files break off, not read: 1,241 bytes of text and what was cut off; to do "
        "without what is lost, run the same command with --on-unread skip; to have it, replace "
        "what is broken and run with --overwrite"
    )
    check(*rows, on_unread="skip")


def test_standard_input_that_broke_off_has_to_be_read_again():
    with pytest.raises(UnreadInputError, match="read it again with --on-unread skip and --over"):
        check(source("-", unread=[QUOTE]))


def test_no_document_is_an_error_that_counts_what_became_of_the_records():
    with pytest.raises(RecordError) as caught:
        check(source("a", 0, broken=2), source("b", 0, broken=1, empty=1), max_reject_fraction=1.0)
    said = "the run made no document of 4 records (3 rejected: broken; 1 rejected: empty)"
    assert str(caught.value) == said
    with pytest.raises(RecordError, match=r"no document: 4 input files without a record \(a, b, c"):
        check(*(source(path, 0) for path in "abcd"))
    with pytest.raises(RecordError, match=r"no document \(1 of 1 input file could not be read to"):
        check(source("a", 0, unread=[CUT]), on_unread="skip")


def test_a_source_of_rejects_alone_is_an_error_with_its_first(tmp_path):
    entry = {"line": 2, "byte_offset": -1, "reason": "broken", "message": "why", "raw": ""}
    lines = [json.dumps({"source": path, **entry}) for path in ("a", "b", "b")]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    rows = [source("a", 9, broken=1), source("b", 0, broken=2), source("c", 0)]
    with pytest.raises(RecordError) as caught:
        check(*rows, rejects=[tmp_path / "none.jsonl", tmp_path / "r.jsonl"])
    assert str(caught.value) == (
        "every record of 1 of 3 input files was rejected (b): 2 broken; the first: b:2: broken: "
        "why; take such files out of the input, or accept them with --max-reject-fraction 1"
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
            "; a sample needs a turn of a trained role (--roles, --turns) that has no weight of 0",
        ),
        ("more than max_tokens", "; raise --max-tokens"),
        ("fewer than min_tokens", "; lower --min-tokens"),
        ("duplicate", ""),
    ],
)
def test_a_run_of_drops_alone_is_an_error_that_says_what_helps(reason, advice):
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
        "out of the input, or accept them with --max-reject-fraction 1"
    )
    check(source("a"), untrained, max_reject_fraction=1.0)
    check(source("a"), source("b", 1, drops={"no trained token": 7}))


def test_a_source_of_which_all_is_too_long_is_the_user_s_choice():
    check(source("a"), source("b", 0, drops={"more than max_tokens": 7}))
    check(source("a"), source("b", 0, drops={"more than max_tokens": 6, "no trained token": 1}))
