"""Sources work in torch's DataLoader as they are, in any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.loader.naive import naive
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.loader import collate, documents, packs, pinned_empty, tensors, windows

torch: Any = pytest.importorskip("torch", reason="tests of torch's DataLoader need torch")
START = [(0, None), (2, "fork")]


def load(source: Any, n_workers: int, start: str | None, **options: Any) -> list[Any]:
    """Return every batch of a DataLoader."""
    loader = torch.utils.data.DataLoader(
        source, num_workers=n_workers, multiprocessing_context=start, **options
    )
    return list(loader)


@pytest.mark.parametrize(("n_workers", "start"), START)
def test_a_data_loader_stacks_windows(pretrained: Dataset, n_workers, start) -> None:
    source = windows(pretrained, 256, shift=True, position_ids=True)
    batches = load(source, n_workers, start, batch_size=16)
    assert batches[0]["input_ids"].shape == (16, 256)
    assert batches[0]["labels"].dtype == torch.int64
    ids = torch.cat([batch["input_ids"] for batch in batches]).numpy().ravel()
    np.testing.assert_array_equal(ids, naive(pretrained).ids[: len(source) * 256])
    np.testing.assert_array_equal(
        batches[1]["labels"].numpy(), source.batch(range(16, 32))["labels"]
    )


@pytest.mark.parametrize(("n_workers", "start"), START)
def test_a_data_loader_shuffles_packs(chats: Dataset, n_workers, start) -> None:
    source = packs(chats, shift=False)
    shuffled = load(source, n_workers, start, batch_size=2, shuffle=True, collate_fn=collate)
    rows = torch.cat([batch["input_ids"] for batch in shuffled]).numpy()
    wanted = source.batch(range(len(source)))["input_ids"]
    np.testing.assert_array_equal(np.sort(rows, 0), np.sort(wanted, 0))
    for batch in shuffled:
        assert batch["cu_seqlens"].dtype == torch.int32
        assert batch["cu_seqlens"][-1] == batch["input_ids"].numel()


@pytest.mark.parametrize(("n_workers", "start"), [*START, (2, "spawn")])
def test_a_data_loader_gives_documents_one_by_one(chats: Dataset, n_workers, start) -> None:
    samples = load(documents(chats), n_workers, start, batch_size=None)
    expected = naive(chats)
    for sample, ids, mask in zip(samples, expected.documents, expected.masks, strict=True):
        np.testing.assert_array_equal(sample["input_ids"].numpy(), ids)
        np.testing.assert_array_equal(sample["mask"].numpy(), mask)


def test_collated_rows_are_the_batch_of_the_source(chats: Dataset) -> None:
    for source in (
        packs(chats, shift=False),
        windows(chats, 100, document_ids=True, cu_seqlens=True, shift=False),
    ):
        batch, collated = tensors(source.batch([3, 0])), collate(source.__getitems__([3, 0]))
        assert batch.keys() == collated.keys()
        for name, values in batch.items():
            assert values.dtype == collated[name].dtype
            assert torch.equal(values, collated[name])


def test_rows_of_their_own_length_are_collated_end_to_end(chats: Dataset) -> None:
    source = packs(chats, pad=False, shift=False)
    batch = source.batch([1, 0, 2])
    collated = collate([source[1], source[0], source[2]], flatten=True)
    assert collated["input_ids"].shape == (1, batch["cu_seqlens"][-1])
    for name, values in batch.items():
        np.testing.assert_array_equal(collated[name].numpy(), values)
    with pytest.raises(UsageError, match="do not stack: collate them with flatten=True"):
        collate([source[0], source[1]])


def test_rows_are_read_into_memory_that_is_pinned_where_there_is_a_gpu(pretrained) -> None:
    source = windows(pretrained, 64, cu_seqlens=True, shift=False)
    made: list[Any] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> Any:
        made.append(pinned_empty(shape, dtype))
        return made[-1]

    batch = source.batch([2, 1], allocate)
    assert [
        np.shares_memory(batch[name], one) for name, one in zip(source.dtypes, made, strict=True)
    ]
    for name, values in tensors(batch).items():
        np.testing.assert_array_equal(values.numpy(), source.batch([2, 1])[name])
        if name != "cu_seqlens":
            assert values.is_pinned() == torch.cuda.is_available()
