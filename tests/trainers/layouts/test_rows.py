"""Rows of a split: where parts begin, what a batch holds, and which packs are read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.layouts import rows
from tokmill.trainers.layouts.rows import DocumentRows, PackedRows, rows_of
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.source import ExportSource


@pytest.fixture
def documents(pretrained: Dataset) -> DocumentRows:
    return DocumentRows(ExportSource(pretrained.directory), "train")


@pytest.fixture
def packed(chats: Dataset) -> PackedRows:
    source = ExportSource(chats.directory)
    return PackedRows(source, "train", source.packs["train"])


def test_counts_are_those_of_the_split(documents, packed, pretrained, chats) -> None:
    split = pretrained.split("train")
    assert documents.n_rows == documents.n_samples == len(split)
    assert documents.n_tokens == split.n_tokens
    assert documents.packs is None
    split = chats.split("train")
    assert (packed.n_samples, packed.n_tokens) == (len(split), split.n_tokens)
    assert packed.n_rows == chats.packs["train"].n_rows


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7, 1000])
def test_parts_cover_all_rows_and_none_is_empty(documents, packed, n_parts) -> None:
    for found in (documents, packed):
        cuts = found.cuts(n_parts)
        assert cuts[0] == 0
        assert cuts[-1] == found.n_rows
        assert (np.diff(cuts) > 0).all()
        assert len(cuts) <= n_parts + 1


def test_parts_of_documents_have_about_the_same_tokens(documents, pretrained) -> None:
    split = pretrained.split("train")
    lengths = np.array([len(split[i]) for i in range(len(split))])
    cuts = documents.cuts(4)
    sums = [int(lengths[start:stop].sum()) for start, stop in pairwise(cuts)]
    assert max(sums) - min(sums) <= 2 * lengths.max()


@pytest.mark.parametrize("batch_tokens", [1, 300, 1 << 18])
def test_batches_join_to_the_documents(documents, pretrained, monkeypatch, batch_tokens) -> None:
    monkeypatch.setattr(rows, "BATCH_TOKENS", batch_tokens)
    split = pretrained.split("train")
    for start, stop in ((0, documents.n_rows), (3, 5), (documents.n_rows - 1, documents.n_rows)):
        batches = list(documents.batches(start, stop))
        ids = np.concatenate([batch.ids for batch in batches])
        assert ids.tolist() == np.concatenate([split[i] for i in range(start, stop)]).tolist()
        assert all(len(batch.row_offsets) == len(batch.row_samples) for batch in batches)
        single = [len(batch.sample_lengths) == 1 for batch in batches]
        fits = [len(batch.ids) <= batch_tokens for batch in batches]
        assert all(one or other for one, other in zip(single, fits, strict=True))


def test_no_rows_give_no_batches(documents, packed) -> None:
    assert list(documents.batches(2, 2)) == []
    assert list(packed.batches(1, 1)) == []


@pytest.mark.parametrize("batch_tokens", [1, 9000, 1 << 18])
def test_batches_of_packs_hold_their_samples(packed, chats, monkeypatch, batch_tokens) -> None:
    monkeypatch.setattr(rows, "BATCH_TOKENS", batch_tokens)
    split, packs = chats.split("train"), chats.packs["train"]
    row = 0
    for batch in packed.batches(0, packed.n_rows):
        for i in range(len(batch.row_offsets) - 1):
            span = slice(*batch.row_offsets[i : i + 2])
            samples = packs.row(row)
            assert batch.ids[span].tolist() == np.concatenate([split[n] for n in samples]).tolist()
            mask = np.concatenate([split.mask(n) for n in samples])
            assert batch.mask[span].tolist() == mask.tolist()
            lengths = batch.sample_lengths[slice(*batch.row_samples[i : i + 2])]
            assert lengths.tolist() == [len(split[n]) for n in samples]
            row += 1
    assert row == packed.n_rows


def test_samples_begin_where_those_before_end(packed) -> None:
    batch = next(iter(packed.batches(0, packed.n_rows)))
    assert batch.sample_starts[0] == 0
    assert (batch.sample_starts[1:] == np.cumsum(batch.sample_lengths)[:-1]).all()
    assert (batch.mask[batch.sample_starts] == 0).all()


def test_options_choose_the_rows(chats: Dataset, unpacked: Dataset) -> None:
    with_packs, without = ExportSource(chats.directory), ExportSource(unpacked.directory)
    found = rows_of(with_packs, "train", ExportOptions())
    assert found.packs is with_packs.packs["train"]
    assert rows_of(with_packs, "train", ExportOptions(unpacked=True)).packs is None
    assert rows_of(without, "train", ExportOptions()).packs is None
    made = rows_of(without, "train", ExportOptions(packing=4096)).packs
    assert made is not None
    assert made.samples.tolist() == chats.packs["train"].samples.tolist()
    assert made.row_offsets.tolist() == chats.packs["train"].row_offsets.tolist()


def test_unpacked_text_is_refused(pretrained: Dataset) -> None:
    with pytest.raises(UsageError, match="--unpacked is for packed chats, and this dataset has te"):
        rows_of(ExportSource(pretrained.directory), "train", ExportOptions(unpacked=True))
