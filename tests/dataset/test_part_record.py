from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.counts import CHECKED, OTHER_KEYS, ROUTED, Counts
from tokmill.dataset.part_record import PartRecord, SliceCounts, parse_record
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

SHARD = ShardEntry(
    "train",
    2,
    5,
    (
        FileEntry("train-0000003-0000.bin", 10, "blake3", "a" * 64),
        FileEntry("train-0000003-0000.idx", 82, "blake3", "b" * 64),
    ),
)
RECORD = PartRecord(
    3,
    "f1",
    (SHARD,),
    FileEntry("rejects/0000003.jsonl", 7, "blake3", "c" * 64),
    (
        SliceCounts(0, Counts(4, 2, 5, 20, 100, Counter(short=1), Counter(json=1))),
        SliceCounts(1, Counts(records=1, drops=Counter(short=1))),
    ),
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


@pytest.mark.parametrize("record", [RECORD, PartRecord(0, "f2", (), None, (), ())])
def test_a_record_reads_back_from_its_own_bytes(record):
    read = parse_record(record.as_bytes(), "0000003.json", record.part, 2)
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
        RECORD.as_bytes().replace(b'"part":3', b'"part":4'),
        RECORD.as_bytes().replace(b"rejects/0000003", b"rejects/0000004"),
        RECORD.as_bytes().replace(b"rejects/0000003.jsonl", b"../victim"),
        RECORD.as_bytes().replace(b"train-0000003-0000.bin", b"plan.json"),
        RECORD.as_bytes().replace(b"train-0000003-0000.idx", b"train-0000003-0001.idx"),
        RECORD.as_bytes().replace(b'"slice":1', b'"slice":0'),
        RECORD.as_bytes().replace(b'"slice":1', b'"slice":2'),
        RECORD.as_bytes().replace(b'"tokens":5', b'"tokens":6', 1),
    ],
)
def test_a_damaged_record_is_refused_with_advice(content):
    with pytest.raises(StateError, match=r"^here: damaged record of a part \(.*\): run with --ov"):
        parse_record(content, "here", 3, 2)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("part",), -1, "part: expected a whole number from 0, found -1"),
        (("part",), True, "part: expected a whole number from 0, found True"),
        (("fingerprint",), None, "fingerprint: expected a string, found None"),
        (("shards",), {}, "shards: expected a list, found an object"),
        (("shards", 0), 5, "shards[0]: expected an object, found 5"),
        (("shards", 0, "split"), "x", "shards[0].split: expected train or val, found 'x'"),
        (("shards", 0, "tokens"), 0, "shards[0].tokens: expected a whole number from 1, found 0"),
        (
            ("shards", 0, "files", 1, "bytes"),
            "7",
            "shards[0].files[1].bytes: expected a whole number from 0, found '7'",
        ),
        (
            ("shards", 0, "files", 0, "sha256"),
            "a" * 64,
            "shards[0].files[0]: train-0000003-0000.bin: expected one sum, blake3 or sha256, "
            "found 2",
        ),
        (("rejects", "name"), "a\0", "rejects.name: expected a string, found 'a\\x00'"),
        (("slices", 1, "slice"), 1.0, "slices[1].slice: expected a whole number from 0, found 1.0"),
        (
            ("slices", 0, "drops", "short"),
            "1",
            "slices[0].drops.short: expected a whole number from 0, found '1'",
        ),
        (
            ("slices", 0, "length"),
            {"records": 1 << 36, "bytes": 0},
            "slices[0].length.records: expected a whole number from 0 to 68,719,476,735, found "
            "68719476736",
        ),
        (("slices", 0, "unread"), [{}], "slices[0].unread[0].line: missing"),
        (("length_histogram", 1), None, "length_histogram[1]: expected a whole number from 0"),
    ],
)
def test_a_wrong_value_of_a_record_is_named_with_its_place(place, value, told):
    data = json.loads(RECORD.as_bytes())
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(StateError) as error:
        parse_record(json.dumps(data).encode(), "here", 3, 2)
    assert str(error.value).startswith(f"here: damaged record of a part ({told}")


def test_what_a_newer_version_may_add_to_a_record_is_not_looked_at():
    data = json.loads(RECORD.as_bytes())
    for added in (data, data["shards"][0], data["slices"][0], data["rejects"]):
        added["added"] = [None]
    assert parse_record(json.dumps(data).encode(), "here", 3, 2) == RECORD


def test_a_record_of_a_newer_format_is_refused():
    newer = RECORD.as_bytes().replace(b'"format_version":1', b'"format_version":2')
    with pytest.raises(StateError, match="format version 2 is newer than version 1"):
        parse_record(newer, "here", 3, 2)
