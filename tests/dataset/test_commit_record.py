from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset.checksum import Checksum, FileEntry
from tokmill.dataset.commit_record import (
    Commit,
    PartRecord,
    ResumePoint,
    read_committed,
    read_record,
)
from tokmill.dataset.counts import CHECKED, OTHER_KEYS, ROUTED, Counts
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
FIRST = Commit(
    (SHARD,),
    FileEntry("rejects/0000000-0000.jsonl", 7, Checksum("blake3", "cc")),
    {0: Counts(4, 2, 5, 20, 100, Counter(short=1), Counter(json=1))},
    (0, 2),
    ResumePoint(1, 12, 345),
)
LAST = Commit((), None, {1: Counts(records=1, drops=Counter(short=1))}, (), None)
RECORD = PartRecord(3, "f1", (FIRST, LAST))

COUNTS = st.builds(
    Counts,
    *[st.integers(0, 1 << 40)] * 5,
    st.dictionaries(st.sampled_from(["short", "long"]), st.integers(1, 9)).map(Counter),
    st.dictionaries(st.sampled_from(["json", "utf8", "空"]), st.integers(1, 9)).map(Counter),
    *[st.integers(0, 1 << 40)] * 2,
    st.dictionaries(st.sampled_from(["straddling tokens"]), st.integers(1, 9)).map(Counter),
    checks=st.dictionaries(st.sampled_from([CHECKED, ROUTED]), st.integers(1, 9)).map(Counter),
)


def test_a_commit_reads_back():
    for commit in (FIRST, LAST):
        assert Commit.from_json(json.loads(json.dumps(commit.as_json()))) == commit


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


def test_the_counts_of_a_part_are_the_sum_of_its_commits():
    assert RECORD.counts() == Counts(5, 2, 5, 20, 100, Counter(short=2), Counter(json=1))


def test_a_record_reads_back_from_its_own_bytes(tmp_path: Path):
    path = tmp_path / "0000003.json"
    path.write_bytes(RECORD.as_bytes())
    read = read_record(path, "f1")
    assert read == RECORD
    assert read is not None
    assert read.as_bytes() == RECORD.as_bytes()


def test_a_record_has_its_format_version_part_and_fingerprint():
    data = json.loads(RECORD.as_bytes())
    assert (data["format_version"], data["part"], data["fingerprint"]) == (1, 3, "f1")


def test_a_record_that_is_not_there_is_none(tmp_path: Path):
    assert read_record(tmp_path / "0000000.json", "f1") is None


def test_a_record_of_other_inputs_or_settings_is_refused(tmp_path: Path):
    path = tmp_path / "0000003.json"
    path.write_bytes(RECORD.as_bytes())
    with pytest.raises(StateError) as caught:
        read_record(path, "f2")
    assert str(caught.value) == (
        f"{path}: was written from other inputs or settings: run with --overwrite to start again"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"fingerprint":"f1"}',
        b'{"fingerprint":"f1","part":"x","steps":[]}',
        b'{"fingerprint":"f1","part":0,"steps":[5]}',
        b'{"fingerprint":"f1","part":0,"steps":[{"shards":[]}]}',
        RECORD.as_bytes().replace(b'"byte_offset"', b'"offset"'),
        RECORD.as_bytes()[:-9],
    ],
)
def test_a_damaged_record_is_refused_with_advice(tmp_path: Path, content):
    path = tmp_path / "0000003.json"
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"damaged commit record \(.*\): run with --overwrite$"):
        read_record(path, "f1")


@pytest.mark.parametrize("kind", ["missing", "shorter", "directory", "under a file"])
def test_a_record_with_a_missing_file_is_removed(tmp_path: Path, kind):
    path = tmp_path / "0000003.json"
    path.write_bytes(PartRecord(3, "f1", (Commit((SHARD,), None, {}, (), None),)).as_bytes())
    names = [entry.name for entry in SHARD.files]
    for entry in SHARD.files:
        (tmp_path / entry.name).write_bytes(b"x" * entry.n_bytes)
    assert read_committed(path, "f1", tmp_path) is not None
    (tmp_path / names[0]).unlink()
    if kind == "shorter":
        (tmp_path / names[0]).write_bytes(b"x")
    elif kind == "directory":
        (tmp_path / names[0]).mkdir()
    place = tmp_path / names[1] if kind == "under a file" else tmp_path
    assert read_committed(path, "f1", place) is None
    assert not path.exists()
