"""Packs: each row has the samples of the pack index, labels where the mask is 1, and padding."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import tokmill
from tests.loader.naive import check_sample, naive
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.loader import packs


def test_a_row_is_its_samples_and_padding(make_sft) -> None:
    directory, _ = make_sft(packed=5, weight=0.5)
    source = packs(directory, shift=False)
    assert (len(source), source.length) == (3, 5)
    check_sample(
        source[0],
        input_ids=[1, 7, 8, 3, 2],
        labels=[-100, -100, 8, 3, -100],
        position_ids=[0, 1, 2, 3, 0],
        cu_seqlens=np.array([0, 4, 5], np.int32),
        weights=np.array([0, 0, 0.5, 0.5, 0], np.float32),
    )
    check_sample(
        source[1],
        input_ids=[1, 9, 3, 1, 3],
        labels=[-100, 9, 3, -100, 3],
        position_ids=[0, 1, 2, 0, 1],
        cu_seqlens=np.array([0, 3, 5], np.int32),
        weights=np.array([0, 0.5, 0.5, 0, 0.5], np.float32),
    )


def test_rows_without_padding_have_their_own_length(make_sft) -> None:
    directory, _ = make_sft(packed=5)
    source = packs(directory, pad=False, shift=False)
    check_sample(
        source[0],
        input_ids=[1, 7, 8, 3],
        labels=[-100, -100, 8, 3],
        position_ids=[0, 1, 2, 3],
        cu_seqlens=np.array([0, 4], np.int32),
    )
    check_sample(
        source.batch([1, 0]),
        input_ids=[[1, 9, 3, 1, 3, 1, 7, 8, 3]],
        labels=[[-100, 9, 3, -100, 3, -100, -100, 8, 3]],
        position_ids=[[0, 1, 2, 0, 1, 0, 1, 2, 3]],
        cu_seqlens=np.array([0, 3, 5, 9], np.int32),
    )
    with pytest.raises(UsageError, match="different lengths: use batch"):
        source.fill([0], source.empty(1))
    assert "cu_seqlens" not in packs(directory, pad=False, cu_seqlens=False, shift=False).batch([0])
    assert source.__getitems__([]) == []


def test_shifted_labels_stay_in_their_sample(make_sft) -> None:
    directory, _ = make_sft(packed=5, weight=0.5)
    source = packs(directory, shift=True, cu_seqlens=False)
    check_sample(
        source[1],
        input_ids=[1, 9, 3, 1, 3],
        labels=[9, 3, -100, 3, -100],
        position_ids=[0, 1, 2, 0, 1],
        weights=np.array([0.5, 0.5, 0, 0.5, 0], np.float32),
    )
    np.testing.assert_array_equal(
        source.batch([1, 0])["labels"], [[9, 3, -100, 3, -100], [-100, 8, 3, -100, -100]]
    )
    flat = packs(directory, shift=True, pad=False).batch([0, 1])
    np.testing.assert_array_equal(flat["labels"], [[-100, 8, 3, -100, 9, 3, -100, 3, -100]])
    assert source.fingerprint != packs(directory, shift=False).fingerprint


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("pad", [True, False])
def test_every_sample_is_in_one_row(chats: Dataset, split: str, pad: bool) -> None:
    source, expected, index = (
        packs(chats, split, pad=pad, shift=False),
        naive(chats, split),
        chats.packs[split],
    )
    assert len(source) == index.n_rows > (split == "train")
    seen = []
    for i, row in enumerate(source.__getitems__(range(len(source)))):
        samples = index.row(i).tolist()
        seen += samples
        ids = np.concatenate([expected.documents[one] for one in samples])
        masks = np.concatenate([expected.masks[one] for one in samples])
        lengths = [len(expected.documents[one]) for one in samples]
        if pad and len(ids) < 4096:
            lengths.append(4096 - len(ids))
            ids = np.pad(ids, (0, lengths[-1]), constant_values=source.pad_id)
            masks = np.pad(masks, (0, lengths[-1]))
        check_sample(
            row,
            input_ids=ids,
            labels=np.where(masks == 1, ids, -100),
            position_ids=np.concatenate([np.arange(length) for length in lengths]),
            cu_seqlens=np.cumsum([0, *lengths]).astype(np.int32),
        )
        check_sample(source[i], **row)
    assert sorted(seen) == list(range(len(expected.documents)))


# Pieces of documents


@pytest.mark.parametrize("shift", [False, True])
def test_a_piece_is_a_segment_that_predicts_nothing_beyond_it(make_dataset, shift: bool) -> None:
    directory, _ = make_dataset()  # 1 7 8 2 | 1 9 2 | 1 2 | 1 11 12 13 2
    source = packs(tokmill.pack(directory, 4), shift=shift)
    rows = [
        ([1, 7, 8, 2], [0, 1, 2, 3], [-100, 7, 8, 2]),
        ([1, 9, 2, 2], [0, 1, 2, 0], [-100, 9, 2, -100]),  # the last is a piece of document 3
        ([1, 2, 2, 2], [0, 1, 0, 1], [-100, 2, -100, -100]),  # the last two are padding
        ([1, 11, 12, 13], [0, 1, 2, 3], [-100, 11, 12, 13]),  # goes on in row 1
    ]
    assert len(source) == len(rows)
    for i, (ids, positions, labels) in enumerate(rows):
        check_sample(
            source[i],
            input_ids=ids,
            labels=[*labels[1:], -100] if shift else labels,
            position_ids=positions,
            cu_seqlens=np.array([*np.flatnonzero(np.array(positions) == 0), 4], np.int32),
        )
    flat = packs(directory, shift=shift, pad=False).batch([2, 3])
    own = [-100, 2, -100, 11, 12, 13]
    np.testing.assert_array_equal(flat["labels"], [[*own[1:], -100] if shift else own])
    np.testing.assert_array_equal(flat["cu_seqlens"], [0, 2, 6])


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("shift", [False, True])
def test_every_token_of_every_document_is_in_one_row(pieces: Dataset, split, shift) -> None:
    source, expected, index = packs(pieces, split, shift=shift), naive(pieces, split), pieces.packs
    seen = [np.zeros(len(document), int) for document in expected.documents]
    n_labels = n_pieces = 0
    for i, row in enumerate(source.__getitems__(range(len(source)))):
        ends = row["cu_seqlens"].tolist()
        spans = index[split].row_pieces(i)
        for j, (number, span) in enumerate(zip(index[split].row(i), spans, strict=True)):
            own, ids = slice(ends[j], ends[j + 1]), expected.documents[number][span]
            seen[number][span] += 1
            np.testing.assert_array_equal(row["input_ids"][own], ids)
            np.testing.assert_array_equal(row["position_ids"][own], np.arange(len(ids)))
            labels = [*ids[1:], -100] if shift else [-100, *ids[1:]]
            np.testing.assert_array_equal(row["labels"][own], labels)
        n_labels += np.count_nonzero(row["labels"] != -100)
        n_pieces += len(spans)
    assert all((times == 1).all() for times in seen)
    assert n_labels == pieces.split(split).n_tokens - n_pieces
    assert len(source) > 1


def test_a_loader_goes_over_pieces_and_on_with_its_index_when_another_replaces_it(
    make_dataset,
) -> None:
    directory, _ = make_dataset()
    source = packs(tokmill.pack(directory, 4), shift=True)
    unread = packs(directory, shift=True)
    batches = list(tokmill.loader.Loader(source, batch=2, epochs=1))
    assert [batch["input_ids"].shape for batch in batches] == [(2, 4), (2, 4)]
    other = packs(tokmill.pack(directory, 5), shift=True)
    assert source.fingerprint != other.fingerprint
    source.check()
    again = list(tokmill.loader.Loader(source, batch=2, epochs=1))
    assert [batch["input_ids"].tolist() for batch in again] == [
        batch["input_ids"].tolist() for batch in batches
    ]
    with pytest.raises(VerifyError, match="was replaced after it was opened"):
        unread[0]
    with pytest.raises(VerifyError, match="was replaced after it was opened"):
        pickle.loads(pickle.dumps(source))
    tokmill.pack(directory, 4)
    assert packs(directory, shift=True).fingerprint == source.fingerprint
    assert pickle.loads(pickle.dumps(source))[0].keys() == source[0].keys()


def test_a_batch_is_its_rows_in_the_order_asked_for(chats: Dataset) -> None:
    source = packs(chats, shift=False)
    numbers = [2, 0, -1, 2]
    batch, rows = source.batch(numbers), [source[i] for i in numbers]
    for name in ("input_ids", "labels", "position_ids"):
        np.testing.assert_array_equal(batch[name], np.stack([row[name] for row in rows]))
    ends = [row["cu_seqlens"][1:] + 4096 * i for i, row in enumerate(rows)]
    np.testing.assert_array_equal(batch["cu_seqlens"], np.concatenate([[0], *ends]))
    into = source.empty(3)
    source.fill([1], into, np.array([2]))
    np.testing.assert_array_equal(into["labels"][2], source[1]["labels"])


def test_a_dataset_without_packs_is_refused(unpacked: Dataset, pretrained: Dataset) -> None:
    with pytest.raises(UsageError, match="samples are not packed: make it with tokmill sft"):
        packs(unpacked.directory, shift=False)
    with pytest.raises(
        UsageError, match=r"documents are not packed: run tokmill pack \S+ --length="
    ):
        packs(pretrained.directory, shift=False)


def rewritten(directory: Path, name: str, values: list[int]) -> None:
    path = directory / name
    path.unlink()
    path.write_bytes(np.array(values, "<i8").tobytes())


@pytest.mark.parametrize(
    ("rows", "samples", "message"),
    [
        ([0, 1, 3], [0, 1, 2, 3], "has 2 rows, 3 by the manifest"),
        ([0, 1, 3, 4], [0, 1, 9, 3], "names samples that are not there"),
        ([0, 1, 3, 4], [0, 1, -1, 3], "names samples that are not there"),
        ([0, 3, 1, 4], [0, 1, 2, 3], "names samples that are not there"),
        ([0, 1, 3, 9], [0, 1, 2, 3], "names samples that are not there"),
        ([0, 1, 4, 4], [0, 1, 2, 3], "a row of 10 tokens, more than 5"),
    ],
)
def test_a_damaged_pack_index_is_one_line(make_sft, rows, samples, message: str) -> None:
    directory, _ = make_sft(packed=5)
    rewritten(directory, "packs-train-rows.bin", rows)
    rewritten(directory, "packs-train-samples.bin", samples)
    with pytest.raises(VerifyError, match=message):
        packs(directory, shift=False).batch([1, 2])
