"""Windows: rows over the stream of a split, equal to a concatenation of its documents."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.loader.naive import check_sample, naive
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.loader import documents, packs, windows
from tokmill.loader.source import cu_seqlens


def positions(numbers: np.ndarray) -> list[int]:
    """Return the position of each token in its document, from 0 at the start of the row."""
    found: list[int] = []
    for i, number in enumerate(numbers.tolist()):
        found.append(found[-1] + 1 if i and numbers[i - 1] == number else 0)
    return found


@pytest.mark.parametrize("length", [1, 64, 4096])
@pytest.mark.parametrize("shift", [False, True])
def test_rows_are_the_stream_of_the_split(any_dataset: Dataset, length: int, shift: bool) -> None:
    source = windows(any_dataset, length, shift=shift)
    expected = naive(any_dataset)
    ids, labels = expected.ids, expected.labels
    assert len(source) == (len(ids) - shift) // length
    assert source.n_left_out == len(ids) - len(source) * length - shift < length
    for i in {0, 1, len(source) // 2, len(source) - 1} & set(range(len(source))):
        start = i * length
        check_sample(
            source[i],
            input_ids=ids[start : start + length],
            labels=labels[start + shift : start + shift + length],
        )
    batch = source.batch(range(len(source)))
    check_sample(
        batch,
        input_ids=ids[: len(source) * length].reshape(-1, length),
        labels=labels[shift : len(source) * length + shift].reshape(-1, length),
    )


@pytest.mark.parametrize("length", [5, 1000])
@pytest.mark.parametrize("shift", [False, True])
def test_documents_inside_rows_are_told_apart(any_dataset, length: int, shift: bool) -> None:
    source = windows(
        any_dataset, length, shift=shift, document_ids=True, position_ids=True, cu_seqlens=True
    )
    plain = windows(any_dataset, length, shift=shift)
    numbers = naive(any_dataset).numbers
    for i in range(0, len(source), 1 + len(source) // 50):
        own = numbers[i * length : (i + 1) * length]
        places = positions(own)
        starts = [place for place, position in enumerate(places) if position == 0]
        check_sample(
            source[i],
            **plain[i],
            document_ids=own,
            position_ids=places,
            cu_seqlens=np.array([*starts, length], np.int32),
        )


def test_a_batch_is_its_rows_in_the_order_asked_for(chats: Dataset) -> None:
    source = windows(chats, 100, document_ids=True, cu_seqlens=True, shift=False)
    numbers = [5, 0, -1, 5]
    batch = source.batch(np.array(numbers))
    rows = source.__getitems__(numbers)
    for name in ("input_ids", "labels", "document_ids", "position_ids"):
        np.testing.assert_array_equal(batch[name], np.stack([row[name] for row in rows]))
        np.testing.assert_array_equal(batch[name], np.stack([source[i][name] for i in numbers]))
    ends = [row["cu_seqlens"][1:] + 100 * i for i, row in enumerate(rows)]
    np.testing.assert_array_equal(batch["cu_seqlens"], np.concatenate([[0], *ends]))
    np.testing.assert_array_equal(batch["cu_seqlens"], cu_seqlens(batch["position_ids"]))
    assert source.__getitems__([]) == []
    assert source.batch([])["input_ids"].shape == (0, 100)


def test_a_window_over_many_small_shards_is_whole(make_dataset) -> None:
    shards = {f"train-000000{i}-0000": [[i + 3, 2]] for i in range(9)}
    directory, _ = make_dataset(shards)
    source = windows(directory, 7, shift=True, document_ids=True, cu_seqlens=True)
    check_sample(
        source[1],
        input_ids=[2, 7, 2, 8, 2, 9, 2],
        labels=[7, 2, 8, 2, 9, 2, 10],
        document_ids=[3, 4, 4, 5, 5, 6, 6],
        position_ids=[0, 0, 1, 0, 1, 0, 1],
        cu_seqlens=np.array([0, 1, 3, 5, 7], np.int32),
    )
    assert (len(source), source.n_left_out) == (2, 3)


def test_labels_stand_where_the_mask_is_1(make_sft) -> None:
    directory, _ = make_sft(weight=0.5)
    check_sample(
        windows(directory, 7, shift=False)[0],
        input_ids=[1, 7, 8, 3, 1, 9, 3],
        labels=[-100, -100, 8, 3, -100, 9, 3],
        weights=np.array([0, 0, 0.5, 0.5, 0, 0.5, 0.5], np.float32),
    )
    check_sample(
        windows(directory, 4, shift=True)[1],
        input_ids=[1, 9, 3, 1],
        labels=[9, 3, -100, 3],
        weights=np.array([0.5, 0.5, 0, 0.5], np.float32),
    )


@pytest.mark.parametrize("length", [0, -1, True, 1.5, "4096", None])
def test_a_length_that_is_none_is_refused(pretrained: Dataset, length: Any) -> None:
    with pytest.raises(UsageError, match=r"length: expected a whole number from 1, found "):
        windows(pretrained, length, shift=False)


@pytest.mark.parametrize("make", [partial(windows, length=64), packs])
def test_whether_labels_are_shifted_must_be_said(chats: Dataset, make: Any) -> None:
    with pytest.raises(TypeError, match=r"missing 1 required keyword-only argument: 'shift'"):
        make(chats)


@pytest.mark.parametrize("make", [windows, packs])
@pytest.mark.parametrize("shift", [None, "False", 0])
def test_a_shift_that_is_no_bool_is_refused(chats: Dataset, make: Any, shift: Any) -> None:
    with pytest.raises(UsageError) as caught:
        make(chats, shift=shift)
    assert str(caught.value) == (
        "shift: expected True, if your loop compares logits with labels as they are, or False, if "
        f"the model shifts labels itself, as those of transformers do; found {shift!r}"
    )


def test_a_split_shorter_than_a_row_is_refused(make_dataset) -> None:
    directory, _ = make_dataset()
    assert len(windows(directory, 14, shift=False)) == 1
    with pytest.raises(UsageError, match="train has 14 tokens, a row reads 15: choose a shorter"):
        windows(directory, 15, shift=False)
    with pytest.raises(UsageError, match="a row reads 15"):
        windows(directory, 14, shift=True)


def test_a_fingerprint_names_what_decides_samples(pretrained: Dataset) -> None:
    one = windows(pretrained, 64, shift=False)
    assert (
        one.fingerprint
        == windows(pretrained.directory, 64, document_ids=True, shift=False).fingerprint
    )
    others = [
        windows(pretrained, 65, shift=False),
        windows(pretrained, 64, shift=True),
        windows(pretrained, 64, split="val", shift=False),
    ]
    assert len({source.fingerprint for source in (one, *others)}) == 4
    assert pretrained.identity in one.fingerprint


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([4, 8], "documents that overlap or begin outside the shard"),
        ([-8, -4], "documents that overlap or begin outside the shard"),
        ([8, 1 << 40], "documents that overlap or begin outside the shard"),
    ],
)
def test_an_index_with_impossible_offsets_is_one_line(make_dataset, offsets, message) -> None:
    directory, _ = make_dataset()
    path = directory / "train-0000000-0000.idx"
    data = bytearray(path.read_bytes())
    data[34 + 8 : 34 + 24] = np.array(offsets, "<i8").tobytes()
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(VerifyError, match=message):
        documents(directory)[1] if offsets[0] != 4 else windows(
            directory, 7, document_ids=True, shift=False
        )[0]


def test_an_error_of_the_disk_is_one_line(make_dataset, monkeypatch) -> None:
    directory, _ = make_dataset()

    def broken(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(VerifyError, match=r"train-0000000-0000\.bin: .*Input/output error"):
        windows(directory, 7, shift=False)[0]
