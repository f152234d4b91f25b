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

from tokmill.errors import StateError
from tokmill.place import open_place
from tokmill.recipes.encoded import EncodedBlock
from tokmill.run.part import BlockWriter
from tokmill.settings.schema import Config, OutputSettings
from tokmill.values import RecordPlace, Reject

FINGERPRINT = "f" * 64
ORIGIN = RecordPlace(0, 0)


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
        rejects=[Reject(RecordPlace(n, 10 * n - 10), "broken", "why", b"raw") for n in rejects],
        places=np.stack((first + rows + 1, 10 * (first + rows)), axis=1),
        input_bytes=10,
    )


def samples(n_samples, lengths, *, weight=0.0, counted=None, **others):
    """Return a block whose record i gives `n_samples[i]` samples, trained but for first tokens."""
    rows = np.repeat(np.arange(len(n_samples)), n_samples)
    made = block(lengths, rows=rows, **others)
    mask = np.ones(len(made.tokens), np.uint8)
    mask[made.offsets[:-1]] = 0
    sidecars = {"mask": mask, **({"weight": mask * np.float32(weight)} if weight else {})}
    counters = {} if counted is None else {"straddling tokens": np.array(counted)}
    return dataclasses.replace(made, sidecars=sidecars, counters=counters)


def writer(directory: Path, shard_tokens: int) -> BlockWriter:
    for name in ("parts", "rejects"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    place = open_place(str(directory))
    config = Config(output=OutputSettings(dtype="uint16", shard_tokens=shard_tokens))
    return BlockWriter(place, 3, FINGERPRINT, config, lambda: None)


def finish(part: BlockWriter):
    part.end()
    return part.finish()


def write(directory: Path, shard_tokens: int, *blocks):
    part = writer(directory, shard_tokens)
    for made in blocks:
        part.add(0, "in.jsonl", made, lambda: ORIGIN)
    return finish(part)


def shards(record) -> list[tuple[str, int, int]]:
    return [(s.split, s.documents, s.tokens) for s in record.shards]


def test_a_shard_ends_before_the_document_that_would_not_fit(tmp_path):
    record = write(tmp_path, 10, block([4, 6, 1, 9, 10, 3]))
    assert shards(record) == [("train", 2, 10), ("train", 2, 10), ("train", 1, 10), ("train", 1, 3)]
    data = np.fromfile(tmp_path / "train-0000003-0001.bin", "<u2")
    assert data.tolist() == [3] + [4] * 9


def test_the_places_of_rejects_count_from_the_start_of_the_file(tmp_path):
    part = writer(tmp_path, 100)
    progress = part.add(0, "a.jsonl", block([2], rejects=[2]), lambda: RecordPlace(1000, 70_000))
    finish(part)
    (line,) = (tmp_path / "rejects" / "0000003.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "source": "a.jsonl",
        "byte_offset": 70_010,
        "line": 1002,
        "reason": "broken",
        "message": "why",
        "raw": "raw",
    }
    assert progress.first_reject == "a.jsonl:1002 (byte 70010): broken: why"


def test_records_are_counted_once_and_their_other_outcomes_as_extra(tmp_path):
    # Row 0: two samples. Row 1: one sample, two dropped. Row 2: dropped twice. Row 3: a reject.
    made = dataclasses.replace(
        samples([2, 1, 0, 0, 1], [3, 3, 3, 9], drops={"long": [1, 1, 2], "empty": [2]}),
        rejects=[Reject(RecordPlace(4, 30), "broken", "why", b"raw")],
    )
    part = writer(tmp_path, 10)
    progress = part.add(0, "in.jsonl", made, lambda: ORIGIN)
    counts = finish(part).slices[0].counts
    assert (counts.records, counts.documents, counts.extra) == (5, 4, 4)
    assert (counts.drops, counts.rejects) == ({"long": 3, "empty": 1}, {"broken": 1})
    outcomes = counts.documents + sum(counts.drops.values()) + sum(counts.rejects.values())
    assert counts.records + counts.extra == outcomes
    assert (progress.records, progress.documents) == (5, 4)


def test_the_first_record_of_a_part_wins_and_another_one_is_refused(tmp_path):
    made = block([6, 6])
    assert write(tmp_path, 10, made) == write(tmp_path, 10, made)
    name = tmp_path / "parts" / "0000003.json"
    content = name.read_bytes().replace(b"f" * 64, b"0" * 64)
    name.chmod(0o644)
    name.write_bytes(content)
    with pytest.raises(StateError, match=r"0000003\.json: holds another record of this part"):
        write(tmp_path, 10, made)
    assert name.read_bytes() == content


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=14),
    st.sets(st.integers(1, 13)),
)
def test_where_shards_end_does_not_depend_on_where_blocks_end(documents, cuts):
    lengths = [n for n, _ in documents]
    is_val = [val for _, val in documents]
    bounds = [0, *sorted(cut for cut in cuts if cut < len(lengths)), len(lengths)]
    with tempfile.TemporaryDirectory() as name:
        whole = write(Path(name, "whole"), 10, block(lengths, is_val))
        blocks = [block(lengths[a:b], is_val[a:b], first=a) for a, b in itertools.pairwise(bounds)]
        assert write(Path(name, "blocks"), 10, *blocks) == whole
    for shard in whole.shards:
        assert shard.tokens <= 10 or shard.documents == 1
    assert sum(shard.tokens for shard in whole.shards) == sum(lengths)
