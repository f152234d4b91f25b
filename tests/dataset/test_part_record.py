from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset.checksum import Checksum, FileEntry
from tokmill.dataset.counts import CHECKED, OTHER_KEYS, ROUTED, Counts
from tokmill.dataset.part_record import PartRecord, parse_record
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

SHARD = ShardEntry(
    "train",
    2,
    5,
    (
        FileEntry("train-0000000-0000.bin", 10, Checksum("blake3", "aa")),
        FileEntry("train-0000000-0000.idx", 82, Checksum("blake3", "bb")),
    ),
)
RECORD = PartRecord(
    3,
    "f1",
    (SHARD,),
    FileEntry("rejects/0000000.jsonl", 7, Checksum("blake3", "cc")),
    {
        0: Counts(4, 2, 5, 20, 100, Counter(short=1), Counter(json=1)),
        1: Counts(records=1, drops=Counter(short=1)),
    },
    (0, 2),
)

COUNTS = st.builds(
    Counts,
    *[st.integers(0, 1 << 40)] * 5,
    st.dictionaries(st.sampled_from(["short", "long"]), st.integers(1, 9)).map(Counter),
    st.dictionaries(st.sampled_from(["json", "utf8", "空"]), st.integers(1, 9)).map(Counter),
    *[st.integers(0, 1 << 40)] * 2,
    st.dictionaries(st.sampled_from(["straddling tokens"]), st.integers(1, 9)).map(Counter),
    checks=st.dictionaries(st.sampled_from([CHECKED, ROUTED]), st.integers(1, 9)).map(Counter),
)


def test_counts_of_pretraining_are_written_as_before_there_were_samples():
    assert list(Counts(records=1, documents=1).as_json()) == [
        "records",
        "documents",
        "tokens",
        "text_bytes",
        "input_bytes",
        "drops",
        "rejects",
    ]
    assert Counts.from_json(Counts(records=1).as_json()) == Counts(records=1)


def test_counts_of_samples_are_added():
    counts = Counts(extra=1, trained_tokens=10, counters=Counter(a=1))
    counts.add(Counts(extra=2, trained_tokens=5, counters=Counter(a=1, b=3)))
    assert counts == Counts(extra=3, trained_tokens=15, counters=Counter(a=2, b=3))


def test_keys_that_nothing_reads_are_named_up_to_a_hundred():
    counts = Counts(unread_keys=Counter({f"k{i:03}": 2 for i in range(99)}))
    counts.add(Counts(unread_keys=Counter({"k000": 1, "z": 4, "y": 3, "x" * 61: 5, "a\n": 6})))
    assert (counts.unread_keys["k000"], len(counts.unread_keys)) == (3, 100)
    assert counts.unread_keys[OTHER_KEYS] == 4 + 3 + 5 + 6
    assert "unread_keys" not in Counts().as_json()


@given(COUNTS)
def test_counts_read_back(counts):
    assert Counts.from_json(json.loads(json.dumps(counts.as_json()))) == counts


@given(COUNTS, COUNTS)
def test_counts_add_up_field_by_field(first, second):
    total = Counts()
    total.add(first)
    total.add(second)
    assert total.records == first.records + second.records
    assert total.documents == first.documents + second.documents
    assert total.tokens == first.tokens + second.tokens
    assert total.text_bytes == first.text_bytes + second.text_bytes
    assert total.input_bytes == first.input_bytes + second.input_bytes
    assert total.drops == first.drops + second.drops
    assert total.rejects == first.rejects + second.rejects
    assert total.checks == first.checks + second.checks


def test_reasons_are_listed_in_order():
    counts = Counts(drops=Counter({"short": 1, "long": 2}), rejects=Counter({"utf8": 1, "json": 1}))
    assert list(counts.as_json()["drops"]) == ["long", "short"]
    assert list(counts.as_json()["rejects"]) == ["json", "utf8"]


def test_the_counts_of_a_part_are_the_sum_of_its_slices():
    assert RECORD.total() == Counts(5, 2, 5, 20, 100, Counter(short=2), Counter(json=1))


@pytest.mark.parametrize("record", [RECORD, PartRecord(0, "f2", (), None, {}, ())])
def test_a_record_reads_back_from_its_own_bytes(record):
    read = parse_record(record.as_bytes(), "0000003.json")
    assert read == record
    assert read.as_bytes() == record.as_bytes()


def test_a_record_has_its_format_version_part_and_fingerprint():
    data = json.loads(RECORD.as_bytes())
    assert (data["format_version"], data["part"], data["fingerprint"]) == (1, 3, "f1")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"fingerprint":"f1"}',
        b'{"fingerprint":"f1","part":"x","shards":[]}',
        RECORD.as_bytes().replace(b'"shards":[', b'"shards":[5,'),
        RECORD.as_bytes()[:-9],
    ],
)
def test_a_damaged_record_is_refused_with_advice(content):
    with pytest.raises(StateError, match=r"^here: damaged record of a part \(.*\): run with --ov"):
        parse_record(content, "here")
