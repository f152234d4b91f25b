"""The stream of a split: spans of its tokens, and its cuts at ends of documents."""

from __future__ import annotations

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import VerifyError
from tokmill.trainers.layouts.streams import (
    check_tokens,
    copy_tokens,
    cut_at_documents,
    read_tokens,
)
from tokmill.trainers.source import ExportSource


@pytest.fixture
def source(pretrained: Dataset) -> ExportSource:
    return ExportSource(pretrained.directory)


@pytest.fixture
def tokens(source: ExportSource) -> np.ndarray:
    return np.concatenate([shard.tokens for shard in source.shards("train")])


@pytest.fixture
def ends(source: ExportSource) -> list[int]:
    lengths = [shard.lengths for shard in source.shards("train")]
    return np.cumsum(np.concatenate(lengths)).tolist()


def test_a_span_over_shards_is_copied_behind_what_stands_in_the_file(
    source, tokens, tmp_path
) -> None:
    start, stop = 3, len(tokens) - 5
    with (tmp_path / "f").open("x+b", buffering=1 << 20) as file:
        file.write(b"head")
        copy_tokens(source, "train", start, stop, file)
        file.write(b"tail")
    assert (tmp_path / "f").read_bytes() == b"head" + tokens[start:stop].tobytes() + b"tail"
    assert np.array_equal(read_tokens(source, "train", start, stop), tokens[start:stop])


def test_a_span_of_nothing_is_nothing(source) -> None:
    assert len(read_tokens(source, "train", 4, 4)) == 0


@pytest.mark.parametrize("most", [1, 400, 5000, 29_999, 60_000, 10**9])
def test_files_hold_whole_documents_and_are_equally_long(source, tokens, ends, most: int) -> None:
    cuts = cut_at_documents(source, "train", most)
    longest = max(np.diff([0, *ends]))
    assert cuts[-1] == len(tokens)
    assert set(cuts) <= set(ends)
    sizes = np.diff([0, *cuts])
    assert all(sizes > 0)
    assert all(size <= most or size in np.diff([0, *ends]) for size in sizes)
    if most >= 5000:
        assert len(cuts) <= -(-len(tokens) // most) + 1
        assert max(sizes) - min(sizes) <= 2 * longest


def test_one_file_where_all_fit(source, tokens) -> None:
    assert cut_at_documents(source, "train", len(tokens)) == [len(tokens)]


def test_as_many_files_as_a_trainer_needs(source, tokens) -> None:
    assert len(cut_at_documents(source, "train", 10**9, fewest=2)) == 2
    assert len(cut_at_documents(source, "train", 10**9, fewest=7)) == 7


def test_a_document_longer_than_a_file_has_one_of_its_own(source, ends) -> None:
    assert cut_at_documents(source, "train", 1) == ends


def test_more_tokens_than_the_dataset_are_found(source, tokens, tmp_path) -> None:
    more = np.append(tokens, tokens[:2])
    check_tokens(source, "train", 0, more[:-2], tmp_path)
    with pytest.raises(VerifyError, match="2 tokens more than the dataset"):
        check_tokens(source, "train", 0, more, tmp_path)
