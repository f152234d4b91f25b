"""A sampler gives the order of the Loader to a DataLoader, and its states go on anywhere."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.loader.numbered import Numbered
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError, UsageError
from tokmill.loader import BatchSampler, Loader, collate, windows

START = [(0, None), (2, "fork")]


def numbers(batches: Any) -> list[list[int]]:
    """Return the numbers of the samples of a Loader's batches."""
    return [batch["input_ids"][:, 0].tolist() for batch in batches]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("batch", "world"), [(1, 1), (5, 1), (4, 3)])
def test_the_order_is_that_of_the_loader(shuffle: bool, batch: int, world: int) -> None:
    for rank in range(world):
        make: Any = {"rank": rank, "world": world, "seed": 7, "shuffle": shuffle}
        loader = Loader(Numbered(50), batch, **make)
        sampler = BatchSampler(Numbered(50), batch, **make)
        for epoch in range(3):
            assert sampler.epoch == epoch
            assert list(sampler) == numbers(loader.one_epoch())
        assert len(sampler) == loader.batches_per_epoch == 50 // (batch * world)


@pytest.mark.parametrize("n_batches", [1, 3, 5])
@pytest.mark.parametrize(("batch", "world"), [(2, 1), (1, 2), (3, 1), (4, 4)])
def test_a_state_goes_on_with_another_batch_and_world(n_batches, batch, world) -> None:
    sampler = BatchSampler(Numbered(50), 4, world=2, seed=3)
    list(sampler)
    list(islice(sampler, 6))  # a worker asked for the sixth, and nobody received it
    state = sampler.state_dict(n_batches)
    assert (state["epoch"], state["samples_seen"]) == (1, n_batches * 8)
    for make in (BatchSampler, Loader):
        other: Any = make(Numbered(50), batch, rank=world - 1, world=world, seed=3)
        other.load_state_dict(state)
        found = list(other) if make is BatchSampler else numbers(other.one_epoch())
        size, begin = batch * world, n_batches * 8
        order = numbers(Loader(Numbered(50), 50, seed=3, epochs=2))[1]
        wanted = [order[k : k + size][-batch:] for k in range(begin, 50 - size + 1, size)]
        assert found == wanted


def test_the_state_after_an_epoch_is_the_next_epoch() -> None:
    loader, sampler = Loader(Numbered(10), 4), BatchSampler(Numbered(10), 4)
    list(loader.one_epoch())
    list(sampler)
    assert sampler.state_dict(2) == loader.state_dict()
    assert (sampler.epoch, loader.epoch) == (1, 1)
    sampler = BatchSampler(Numbered(10), 4)
    sampler.load_state_dict(loader.state_dict())
    assert list(sampler) == numbers(loader.one_epoch())


def test_counts_that_cannot_be_and_late_states_are_refused() -> None:
    sampler = BatchSampler(Numbered(10), 4)
    for wrong in (0, 1):
        with pytest.raises(UsageError, match=f"1 to 0; found {wrong}"):
            sampler.state_dict(wrong)
    next(iter(sampler))
    state = sampler.state_dict(1)
    for wrong in (0, 3):
        with pytest.raises(UsageError, match=f"1 to 2; found {wrong}: count them from the start"):
            sampler.state_dict(wrong)
    with pytest.raises(UsageError, match=r"expected a whole number from 0, found 1\.5"):
        sampler.state_dict(1.5)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="make a new sampler"):
        sampler.load_state_dict(state)
    with pytest.raises(StateError, match="state of another sequence: seed 0 in the state, 1 here"):
        BatchSampler(Numbered(10), 4, seed=1).load_state_dict(state)
    with pytest.raises(UsageError, match="rank 2 of 2 ranks"):
        BatchSampler(Numbered(10), 4, rank=2, world=2)


@pytest.mark.parametrize(("n_workers", "start"), START)
def test_a_data_loader_gives_the_batches_of_the_loader(pretrained, n_workers, start) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs torch's DataLoader")
    source = windows(pretrained, 256, shift=True)
    make = partial(
        torch.utils.data.DataLoader, source, collate_fn=collate, num_workers=n_workers,
        multiprocessing_context=start, persistent_workers=n_workers > 0,
    )  # fmt: skip
    alone = Loader(source, 12, seed=4)
    sampler = BatchSampler(source, 6, world=2, seed=4)
    other = BatchSampler(source, 6, rank=1, world=2, seed=4)
    loader = make(batch_sampler=sampler)
    beside = torch.utils.data.DataLoader(source, batch_sampler=other, collate_fn=collate)
    for _ in range(2):
        found = zip(alone.one_epoch(), loader, beside, strict=True)
        for number, (batch, *ranks) in enumerate(found, start=1):
            for name, values in batch.items():
                np.testing.assert_array_equal(torch.cat([one[name] for one in ranks]), values)
            assert sampler.state_dict(number)["samples_seen"] in (alone.samples_seen, 0)


def test_a_blend_is_read_through_torchs_own_concatenation(
    pretrained: Dataset, chats: Dataset
) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs torch's DataLoader")
    sources = [windows(one, 128, shift=True) for one in (pretrained, chats)]
    blend = [(source, 1) for source in sources]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.ConcatDataset(sources), batch_sampler=BatchSampler(blend, 8, seed=1),
        collate_fn=collate, num_workers=2,
    )  # fmt: skip
    for batch, own in zip(Loader(blend, 8, seed=1).one_epoch(), loader, strict=True):
        np.testing.assert_array_equal(own["input_ids"], batch["input_ids"])
