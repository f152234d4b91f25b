from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.counts import CHECKED, OTHER_KEYS, ROUTED, Counts
from tokmill.dataset.part_record import PartRecord, parse_record
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

SHARD = ShardEntry(
    "train",
    2,
    5,
    (
        FileEntry("train-0000000-0000.bin", 10, "blake3", "aa"),
        FileEntry("train-0000000-0000.idx", 82, "blake3", "bb"),
    ),
)
RECORD = PartRecord(
    3,
    "f1",
    (SHARD,),
    FileEntry("rejects/0000000.jsonl", 7, "blake3", "cc"),
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


def test_keys_that_nothing_reads_are_named_up_to_a_hundred():
    counts = Counts(unread_keys=Counter({f"k{i:03}": 2 for i in range(99)}))
    counts.add(Counts(unread_keys=Counter({"k000": 1, "z": 4, "y": 3, "x" * 61: 5, "a\n": 6})))
    assert (counts.unread_keys["k000"], len(counts.unread_keys)) == (3, 100)
    assert counts.unread_keys[OTHER_KEYS] == 4 + 3 + 5 + 6
    assert "unread_keys" not in Counts().as_json()


@given(COUNTS)
def test_counts_read_back(counts):
    assert Counts.from_json(json.loads(json.dumps(counts.as_json()))) == counts


@pytest.mark.parametrize("record", [RECORD, PartRecord(0, "f2", (), None, {}, ())])
def test_a_record_reads_back_from_its_own_bytes(record):
    read = parse_record(record.as_bytes(), "0000003.json")
    assert read == record
    assert read.as_bytes() == record.as_bytes()


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
