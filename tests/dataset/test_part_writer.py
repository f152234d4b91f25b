"""Documents are cut into shards in one way, whoever writes them, and however many come at once."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset import part_writer
from tokmill.dataset.part_writer import EncodedDocuments, PartWriter
from tokmill.place import open_place
from tokmill.settings.schema import OutputSettings


def documents(lengths, records=None) -> EncodedDocuments:
    """Return documents whose tokens, mask, origin and kept field are the number of the document."""
    offsets = np.cumsum([0, *lengths])
    numbers = np.arange(len(lengths))
    of_token = np.repeat(numbers, lengths)
    return EncodedDocuments(
        of_token.astype("<u2"),
        offsets,
        {"mask": of_token.astype("u1")},
        {
            "origin": np.stack([numbers, numbers], axis=1),
            "meta": pa.record_batch({"url": pa.array(map(str, numbers), pa.large_string())}),
        },
        None if records is None else np.array(records),
    )


def write(directory: Path, shard_tokens: int, *batches: EncodedDocuments, split="train"):
    place = open_place(str(directory))
    directory.mkdir(exist_ok=True)
    place.make_folders()
    output = OutputSettings(dtype="uint16", shard_tokens=shard_tokens)
    writer = PartWriter(place, 0, "f" * 64, output)
    for batch in batches:
        writer.append(split, batch)
    writer.end()
    return writer.finish()


def lengths_of_shards(record) -> list[int]:
    return [shard.tokens for shard in record.shards]


@pytest.mark.parametrize(
    ("lengths", "limit", "expected"),
    [
        ([4, 6, 1, 9, 10, 3], 10, [10, 10, 10, 3]),
        ([11, 1, 12], 10, [11, 1, 12]),  # a longer document has a shard for itself
        ([5, 5, 5], 9, [5, 5, 5]),
        ([1, 1, 1], 1, [1, 1, 1]),
        ([7, 3], 0, [7, 3]),
        ([], 10, []),
    ],
)
@pytest.mark.parametrize("at_once", [1, 4, 1 << 20])
def test_a_shard_ends_before_the_document_that_would_not_fit(
    tmp_path, monkeypatch, lengths, limit, expected, at_once
):
    monkeypatch.setattr(part_writer, "MOST_AT_ONCE", at_once)
    assert lengths_of_shards(write(tmp_path, limit, documents(lengths))) == expected


def test_the_documents_of_a_record_stay_in_one_shard(tmp_path):
    made = documents([3, 3, 3, 3, 8, 8, 1], records=[0, 0, 1, 1, 2, 2, 3])
    assert lengths_of_shards(write(tmp_path, 10, made)) == [6, 6, 16, 1]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=12),
    st.sets(st.integers(1, 11)),
    st.integers(1, 30),
    st.integers(1, 20),
)
def test_the_bytes_depend_on_documents_alone(
    drawn: list[tuple[int, bool]], cuts: set[int], limit: int, at_once: int
) -> None:
    lengths = [n for n, _ in drawn]
    records = np.cumsum([begins for _, begins in drawn])
    whole = documents(lengths, records)
    # A block ends with a record.
    ends = [i for i in sorted(cuts) if i < len(lengths) and records[i] != records[i - 1]]
    batches = [whole.between(*pair) for pair in itertools.pairwise([0, *ends, len(lengths)])]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        at_first = write(Path(name, "whole"), limit, whole)
        patch.setattr(part_writer, "MOST_AT_ONCE", at_once)
        assert write(Path(name, "pieces"), limit, *batches) == at_first
    n_records = len(set(records.tolist()))
    assert sum(lengths_of_shards(at_first)) == sum(lengths)
    for shard in at_first.shards:
        assert shard.tokens <= limit or shard.documents == 1 or n_records < len(lengths)


def test_splits_take_their_documents_with_all_sidecars(tmp_path):
    made = documents([2, 1, 3], records=[0, 0, 1])
    by_split = dict(made.by_split(np.array([False, True, False])))
    assert by_split["train"].tokens.tolist() == [0, 0, 2, 2, 2]
    assert by_split["train"].of_tokens["mask"].tolist() == [0, 0, 2, 2, 2]
    assert by_split["train"].of_documents["origin"].tolist() == [[0, 0], [2, 2]]
    assert by_split["train"].of_documents["meta"].column("url").to_pylist() == ["0", "2"]
    assert (by_split["val"].tokens.tolist(), by_split["val"].records.tolist()) == ([1], [0])
    record = write(tmp_path, 10, by_split["val"], split="val")
    assert [(shard.split, shard.files[0].name) for shard in record.shards] == [
        ("val", "val-0000000-0000.bin")
    ]


def test_lengths_are_counted_by_powers_of_two(tmp_path):
    record = write(tmp_path, 100, documents([1, 2, 3]), documents([4, 7, 8, 1]))
    assert record.length_histogram == (2, 2, 2, 1)
