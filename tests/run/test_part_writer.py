from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.dataset.commit_record import ResumePoint
from tokmill.errors import RecordError, StateError
from tokmill.recipes.encoded import EncodedBlock
from tokmill.run.part_writer import PartWriter
from tokmill.values import Place, Reject

FINGERPRINT = "f" * 64
ORIGIN = Place(0, 0)


class Rows:
    """Row i is line i + 1 of ten bytes."""

    def __init__(self, first: int) -> None:
        self._first = first

    def place(self, row: int) -> Place:
        return Place(self._first + row + 1, 10 * (self._first + row))

    def places(self, rows):
        return np.stack((self._first + rows + 1, 10 * (self._first + rows)), axis=1)


def block(lengths, is_val=None, *, first=0, rows=None, drops=None, rejects=()):
    """Return a block whose document of n tokens is n times the number of its line."""
    rows = np.arange(len(lengths)) if rows is None else np.array(rows, np.int64)
    offsets = np.cumsum([0, *lengths])
    return EncodedBlock(
        tokens=np.repeat((first + rows + 1).astype(np.uint16), lengths),
        offsets=offsets.astype(np.int64),
        rows=rows,
        text_bytes=np.array(lengths, np.int64) * 3,
        is_val=np.zeros(len(lengths), bool) if is_val is None else np.array(is_val, bool),
        drops={reason: np.array(dropped) for reason, dropped in (drops or {}).items()},
        rejects=[Reject(Place(n, 10 * n - 10), "broken", "why", b"raw") for n in rejects],
        lookup=Rows(first),
        input_bytes=10,
    )


def samples(n_samples, lengths, *, weight=0.0, counted=None, **others):
    """Return a block whose record i gives `n_samples[i]` samples, trained but for first tokens."""
    rows = np.repeat(np.arange(len(n_samples)), n_samples)
    made = block(lengths, rows=rows, **others)
    mask = np.ones(len(made.tokens), np.uint8)
    mask[made.offsets[:-1]] = 0
    weights = mask * np.float32(weight) if weight else None
    counters = {} if counted is None else {"straddling tokens": np.array(counted)}
    return dataclasses.replace(made, mask=mask, loss_weights=weights, counters=counters)


def writer(directory: Path, shard_tokens: int, *, fail: bool = False) -> PartWriter:
    for name in ("parts", "rejects"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    return PartWriter(directory, 3, FINGERPRINT, np.dtype("<u2"), "blake3", shard_tokens, fail)


def write(directory: Path, shard_tokens: int, *blocks):
    part = writer(directory, shard_tokens)
    for made in blocks:
        part.add(0, "in.jsonl", made, lambda: ORIGIN)
    return part.finish()


def shards(record) -> list[list[tuple[str, int, int]]]:
    return [
        [(s.split, s.n_documents, s.n_tokens) for s in commit.shards] for commit in record.commits
    ]


def test_a_commit_ends_before_the_document_that_would_not_fit(tmp_path):
    record = write(tmp_path, 10, block([4, 6, 1, 9, 10, 3]))
    assert shards(record) == [
        [("train", 2, 10)],
        [("train", 2, 10)],
        [("train", 1, 10)],
        [("train", 1, 3)],
    ]
    assert [commit.next for commit in record.commits] == [
        ResumePoint(0, 3, 20),
        ResumePoint(0, 5, 40),
        ResumePoint(0, 6, 50),
        None,
    ]
    data = np.fromfile(tmp_path / "train-0000003-0001.bin", "<u2")
    assert data.tolist() == [3] + [4] * 9


def test_a_longer_document_gets_a_shard_of_its_own(tmp_path):
    record = write(tmp_path, 10, block([2, 25, 3, 4, 11]))
    assert shards(record) == [
        [("train", 1, 2)],
        [("train", 1, 25)],
        [("train", 2, 7)],
        [("train", 1, 11)],
    ]


def test_a_longer_first_document_leaves_no_empty_shard(tmp_path):
    assert shards(write(tmp_path, 10, block([25, 25]))) == [[("train", 1, 25)], [("train", 1, 25)]]


def test_train_and_val_end_in_the_same_commit(tmp_path):
    # val would have room for more, but train's third document does not fit.
    record = write(tmp_path, 10, block([5, 2, 5, 2, 5, 2], [0, 1, 0, 1, 0, 1]))
    assert shards(record) == [[("train", 2, 10), ("val", 2, 4)], [("train", 1, 5), ("val", 1, 2)]]
    record = write(tmp_path / "b", 10, block([1, 6, 1, 6, 1], [0, 1, 0, 1, 0]))
    assert shards(record) == [[("train", 2, 2), ("val", 1, 6)], [("train", 1, 1), ("val", 1, 6)]]


def test_a_long_validation_document_is_alone_in_its_shard(tmp_path):
    record = write(tmp_path, 10, block([1, 30, 2, 1], [0, 1, 0, 1]))
    assert shards(record) == [[("train", 2, 3), ("val", 1, 30)], [("val", 1, 1)]]


def test_a_split_without_documents_has_no_shard(tmp_path):
    record = write(tmp_path, 10, block([4, 4], [1, 1]))
    assert shards(record) == [[("val", 2, 8)]]
    assert sorted(path.name for path in tmp_path.glob("*-*")) == [
        "val-0000003-0000.bin",
        "val-0000003-0000.idx",
        "val-0000003-0000.origin",
    ]


def test_a_part_without_documents_has_a_commit_without_shards(tmp_path):
    record = write(tmp_path, 10, block([]))
    assert shards(record) == [[]]
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["0000003.json"]


def test_drops_and_rejects_are_counted_in_the_commit_where_they_stand(tmp_path):
    # Lines: 1 document, 2 reject, 3 drop, 4 document (next commit), 5 drop, 6 reject.
    made = block([6, 6], rows=[0, 3], drops={"short": [2, 4]}, rejects=[2, 6])
    record = write(tmp_path, 10, made)
    first, second = (commit.counts[0] for commit in record.commits)
    assert (first.records, first.documents, first.drops, first.rejects) == (
        3,
        1,
        {"short": 1},
        {"broken": 1},
    )
    assert (second.records, second.documents, second.drops, second.rejects) == (
        3,
        1,
        {"short": 1},
        {"broken": 1},
    )
    assert record.commits[0].next == ResumePoint(0, 4, 30)
    lines = [json.loads(path.read_bytes())["line"] for path in sorted(tmp_path.glob("rejects/*"))]
    assert lines == [2, 6]


def test_the_histogram_counts_documents_by_powers_of_two(tmp_path):
    record = write(tmp_path, 100, block([1, 2, 3, 4, 7, 8, 9], [0, 0, 1, 0, 1, 0, 0]))
    assert record.commits[0].length_histogram == (1, 2, 2, 2)


def test_counts_are_kept_by_slice(tmp_path):
    part = writer(tmp_path, 100)
    part.add(0, "a.jsonl", block([2, 3]), lambda: ORIGIN)
    part.end_slice(0, 111)
    part.add(1, "b.jsonl", block([4]), lambda: ORIGIN)
    part.end_slice(1, 222)
    record = part.finish()
    assert {
        i: (c.documents, c.tokens, c.text_bytes, c.input_bytes)
        for i, c in record.commits[0].counts.items()
    } == {0: (2, 5, 15, 111), 1: (1, 4, 12, 222)}


def test_the_places_of_rejects_count_from_the_start_of_the_file(tmp_path):
    part = writer(tmp_path, 100)
    progress = part.add(0, "a.jsonl", block([2], rejects=[2]), lambda: Place(1000, 70_000))
    part.finish()
    (line,) = (tmp_path / "rejects" / "0000003-0000.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "source": "a.jsonl",
        "byte_offset": 70_010,
        "line": 1002,
        "reason": "broken",
        "message": "why",
        "raw": "raw",
    }
    assert progress.first_reject == "a.jsonl:1002 (byte 70010): broken: why"


def test_fail_raises_at_the_first_reject_and_discard_leaves_nothing(tmp_path):
    part = writer(tmp_path, 100, fail=True)
    with pytest.raises(RecordError, match=r"^a\.jsonl:2 \(byte 10\): broken: why; --on-error skip"):
        part.add(0, "a.jsonl", block([2], rejects=[2, 3]), lambda: ORIGIN)
    part.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_finished_commits_stay_and_are_kept_by_the_next_attempt(tmp_path):
    part = writer(tmp_path, 10)
    part.add(0, "a.jsonl", block([6, 6, 6]), lambda: ORIGIN)
    part.discard()
    assert sorted(path.name for path in tmp_path.glob("parts/*")) == [
        "0000003-0000.json",
        "0000003-0001.json",
    ]
    again = writer(tmp_path, 10)
    start, counts = again.resume()
    assert start == ResumePoint(0, 3, 20)
    assert (counts.documents, counts.tokens) == (2, 12)
    again.add(0, "a.jsonl", block([6], first=2), lambda: ORIGIN)
    record = again.finish()
    assert record == write(tmp_path / "whole", 10, block([6, 6, 6]))
    assert [path.name for path in tmp_path.glob("parts/*")] == ["0000003.json"]


def test_a_commit_never_ends_between_two_samples_of_a_record(tmp_path):
    # Records of 4 + 4, 3 + 3 + 3, 20 + 1 and 2 tokens.
    made = samples([2, 3, 2, 1], [4, 4, 3, 3, 3, 20, 1, 2])
    record = write(tmp_path, 10, made)
    assert shards(record) == [
        [("train", 2, 8)],
        [("train", 3, 9)],
        [("train", 2, 21)],
        [("train", 1, 2)],
    ]
    assert [commit.next for commit in record.commits] == [
        ResumePoint(0, 2, 10),
        ResumePoint(0, 3, 20),
        ResumePoint(0, 4, 30),
        None,
    ]


def test_a_record_with_samples_in_both_splits_is_not_divided(tmp_path):
    made = samples([1, 2, 1], [6, 6, 2, 2], is_val=[0, 0, 1, 1])
    record = write(tmp_path, 10, made)
    assert shards(record) == [[("train", 1, 6)], [("train", 1, 6), ("val", 2, 4)]]


def test_records_are_counted_once_and_their_other_outcomes_as_extra(tmp_path):
    # Row 0: two samples. Row 1: one sample, two dropped. Row 2: dropped twice. Row 3: a reject.
    made = dataclasses.replace(
        samples([2, 1, 0, 0, 1], [3, 3, 3, 9], drops={"long": [1, 1, 2], "empty": [2]}),
        rejects=[Reject(Place(4, 30), "broken", "why", b"raw")],
    )
    part = writer(tmp_path, 10)
    progress = part.add(0, "in.jsonl", made, lambda: ORIGIN)
    first, second = (commit.counts[0] for commit in part.finish().commits)
    assert (first.records, first.documents, first.extra) == (4, 3, 4)
    assert (first.drops, first.rejects) == ({"long": 3, "empty": 1}, {"broken": 1})
    assert (second.records, second.documents, second.extra) == (1, 1, 0)
    for counts in (first, second):
        outcomes = counts.documents + sum(counts.drops.values()) + sum(counts.rejects.values())
        assert counts.records + counts.extra == outcomes
    assert (progress.records, progress.documents) == (5, 4)


def test_documents_for_pretraining_have_no_extra(tmp_path):
    record = write(tmp_path, 10, block([6, 6], rows=[0, 3], drops={"short": [1, 2]}))
    assert [commit.counts[0].as_json().get("extra") for commit in record.commits] == [None, None]
    assert record.counts().records == 4


@pytest.mark.parametrize("weight", [0, 0.5])
def test_masks_and_weights_go_with_their_tokens(tmp_path, weight):
    made = samples([1, 1, 1, 1], [2, 3, 4, 5], is_val=[0, 1, 0, 1], weight=weight)
    record = write(tmp_path, 8, made)
    endings = ["bin", "idx", "mask", *(["weight"] if weight else []), "origin"]
    assert [
        [[file.name.split(".")[1] for file in shard.files] for shard in commit.shards]
        for commit in record.commits
    ] == [[endings, endings]]
    for split, masks in (("train", [0, 1, 0, 1, 1, 1]), ("val", [0, 1, 1, 0, 1, 1, 1, 1])):
        path = tmp_path / f"{split}-0000003-0000.mask"
        assert np.fromfile(path, np.uint8).tolist() == masks
        if weight:
            found = np.fromfile(path.with_suffix(".weight"), "<f4")
            assert found.tolist() == [value * 0.5 for value in masks]


def test_trained_tokens_and_counters_are_counted_in_their_commit(tmp_path):
    made = samples([2, 1, 1], [4, 4, 5, 3], counted=[1, 0, 0, 2])
    record = write(tmp_path, 13, made)
    first, second = (commit.counts[0] for commit in record.commits)
    assert (first.trained_tokens, first.counters) == (10, {"straddling tokens": 1})
    assert (second.trained_tokens, second.counters) == (2, {"straddling tokens": 2})


def test_checked_and_routed_documents_are_counted_in_the_commit_and_slice_where_they_stand(
    tmp_path,
):
    checks = {"checked": np.array([1, 0, 1]), "routed": np.zeros(3, np.int64)}
    made = dataclasses.replace(block([4, 4, 5]), checks=checks)
    record = write(tmp_path, 8, made)
    assert [commit.counts[0].checks for commit in record.commits] == [
        {"checked": 1},
        {"checked": 1},
    ]
    assert "routed" not in record.as_bytes().decode()


def test_samples_are_counted_the_same_when_a_run_continues_inside_a_block(tmp_path):
    made = samples([2, 1, 2, 1], [3, 3, 5, 4, 4, 2], counted=[1, 1, 1, 1, 1, 1])
    whole = write(tmp_path / "whole", 8, made)
    part = writer(tmp_path / "stopped", 8)
    part.add(0, "in.jsonl", made, lambda: ORIGIN)
    part.discard()
    again = writer(tmp_path / "stopped", 8)
    start, _ = again.resume()
    assert start == ResumePoint(0, 4, 30)
    rest = dataclasses.replace(samples([1], [2], counted=[1]), lookup=Rows(3))
    rest.tokens[:] = 4
    again.add(0, "in.jsonl", rest, lambda: ORIGIN)
    assert again.finish() == whole


def test_commits_of_other_settings_are_refused(tmp_path):
    part = writer(tmp_path, 10)
    part.add(0, "a.jsonl", block([6, 6]), lambda: ORIGIN)
    part.discard()
    other = PartWriter(tmp_path, 3, "0" * 64, np.dtype("<u2"), "blake3", 10, False)
    with pytest.raises(StateError, match=r"0000003-0000\.json: was written from other inputs"):
        other.resume()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=14),
    st.sets(st.integers(1, 13)),
)
def test_where_commits_end_does_not_depend_on_where_blocks_end(documents, cuts):
    lengths = [n for n, _ in documents]
    is_val = [val for _, val in documents]
    bounds = [0, *sorted(cut for cut in cuts if cut < len(lengths)), len(lengths)]
    with tempfile.TemporaryDirectory() as name:
        whole = write(Path(name, "whole"), 10, block(lengths, is_val))
        blocks = [block(lengths[a:b], is_val[a:b], first=a) for a, b in itertools.pairwise(bounds)]
        assert write(Path(name, "blocks"), 10, *blocks) == whole
    for commit in whole.commits:
        assert commit.shards
        for shard in commit.shards:
            assert shard.n_tokens <= 10 or shard.n_documents == 1
    assert sum(s.n_tokens for commit in whole.commits for s in commit.shards) == sum(lengths)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=9),
    st.sets(st.integers(1, 8)),
)
def test_samples_are_cut_at_records_wherever_blocks_end(records, cuts):
    bounds = [0, *sorted(cut for cut in cuts if cut < len(records)), len(records)]

    def made(start: int, stop: int):
        own = records[start:stop]
        lengths = [length for found in own for length in found]
        n_samples = [len(found) for found in own]
        drops = {"no trained token": [i for i, n in enumerate(n_samples) if not n]}
        return samples(n_samples, lengths, first=start, drops=drops, counted=lengths)

    with tempfile.TemporaryDirectory() as name:
        whole = write(Path(name, "whole"), 10, made(0, len(records)))
        parts = [made(start, stop) for start, stop in itertools.pairwise(bounds)]
        assert write(Path(name, "parts"), 10, *parts) == whole
    counts = whole.counts()
    assert counts.records == len(records)
    assert counts.documents + sum(counts.drops.values()) == counts.records + counts.extra
    assert counts.counters["straddling tokens"] == counts.tokens
    assert counts.trained_tokens == counts.tokens - counts.documents
