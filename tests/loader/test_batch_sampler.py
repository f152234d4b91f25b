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
        epochs = numbers(Loader(Numbered(50), 50, seed=3, epochs=3))
        if 50 - begin < size:  # no batch of this size is left in the epoch
            epochs, begin = epochs[1:], 0
        order = epochs[1]
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


@pytest.mark.parametrize("n_taken", [0, 1, 2])
def test_a_look_at_a_batch_is_no_progress(n_taken: int) -> None:
    sampler = BatchSampler(Numbered(12), 4)
    first, second = (numbers(Loader(Numbered(12), 4, epochs=2))[k : k + 3] for k in (0, 3))
    assert list(islice(sampler, n_taken)) == first[:n_taken]
    assert sampler.epoch == 0
    assert (list(sampler), sampler.epoch) == (first, 1)
    assert (list(islice(sampler, n_taken)), sampler.epoch) == (second[:n_taken], 1)
    assert list(sampler) == second


def test_an_epoch_is_chosen_but_a_loaded_state_in_it_stays() -> None:
    every = numbers(Loader(Numbered(12), 4, epochs=3))
    sampler = BatchSampler(Numbered(12), 4)
    for epoch in (1, 1, 0, 2):  # as frameworks call it, also when a training goes on
        sampler.set_epoch(epoch)
        assert list(sampler) == every[3 * epoch : 3 * epoch + 3]
    next(iter(sampler))
    state = sampler.state_dict(1)
    for epoch, wanted in ((3, 3 * 3 + 1), (1, 3)):
        resumed = BatchSampler(Numbered(12), 4)
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert next(iter(resumed)) == numbers(Loader(Numbered(12), 4, epochs=4))[wanted]
    with pytest.raises(UsageError, match="epoch: expected a whole number from 0, found -1"):
        sampler.set_epoch(-1)


@pytest.mark.parametrize("n_samples", [10, 12])
def test_the_last_batch_of_an_epoch_has_one_state_with_and_without_a_tail(n_samples: int) -> None:
    loader, sampler = Loader(Numbered(n_samples), 4), BatchSampler(Numbered(n_samples), 4)
    for number, _ in enumerate(zip(loader.one_epoch(), sampler, strict=True), start=1):
        assert sampler.state_dict(number) == sampler.state_dict() == loader.state_dict()
    state = loader.state_dict()
    assert (state["epoch"], state["samples_seen"]) == (1, 0)
    for saved in (state, {**state, "epoch": 0, "samples_seen": n_samples - 1}):
        resumed = Loader(Numbered(n_samples), 4)
        resumed.load_state_dict(saved)
        assert (
            numbers(resumed.one_epoch())
            == numbers(Loader(Numbered(n_samples), 4, epochs=2))[-(n_samples // 4) :]
        )


def test_a_blend_whose_epoch_has_no_batch_left_gives_the_next_one() -> None:
    blend = [(Numbered(5), 1), (Numbered(5), 1)]
    loader = Loader(blend, 4)
    loader.load_state_dict({**loader.state_dict(), "samples_seen": 8})
    assert [len(batch) for batch in numbers(loader.one_epoch())] == [4, 4, 4]
    assert loader.epoch == 2


def test_an_endless_iteration_goes_on_with_the_next_epoch() -> None:
    sampler = BatchSampler(Numbered(10), 4, endless=True)
    every = numbers(Loader(Numbered(10), 4, epochs=3))
    assert list(islice(sampler, 6)) == every
    assert sampler.state_dict(5) == {**sampler.state_dict(), "epoch": 2, "samples_seen": 4}
    resumed = BatchSampler(Numbered(10), 4, endless=True)
    resumed.load_state_dict(sampler.state_dict(3))
    assert list(islice(resumed, 3)) == every[3:]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize(("n_workers", "start"), START)
@pytest.mark.parametrize("n_taken", [1, 4, 5, 6])
def test_the_stateful_data_loader_goes_on_where_it_was_saved(
    pretrained, n_workers, start, n_taken
) -> None:
    module: Any = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")
    source = windows(pretrained, 512, shift=True)

    def make() -> Any:
        return module.StatefulDataLoader(
            source, batch_sampler=BatchSampler(source, 26, seed=4), collate_fn=collate,
            num_workers=n_workers, multiprocessing_context=start,
        )  # fmt: skip

    wanted = [batch["input_ids"].tolist() for batch in Loader(source, 26, seed=4, epochs=2)]
    assert len(wanted) == 2 * 5  # a state before, at and after the end of an epoch
    loader, found = make(), []
    while len(found) < n_taken:
        for batch in loader:
            found.append(batch["input_ids"].tolist())
            if len(found) == n_taken:
                state = loader.state_dict()
                break
    again = make()
    again.load_state_dict(state)
    while len(found) < len(wanted):
        found += [batch["input_ids"].tolist() for batch in again]
    assert found == wanted


def test_accelerate_prepares_and_skips(pretrained) -> None:
    accelerate: Any = pytest.importorskip("accelerate", reason="needs accelerate")
    torch: Any = pytest.importorskip("torch", reason="needs torch's DataLoader")
    source = windows(pretrained, 512, shift=True)
    wanted = [batch["input_ids"].tolist() for batch in Loader(source, 26, seed=4, epochs=2)]
    loader = torch.utils.data.DataLoader(
        source, batch_sampler=BatchSampler(source, 26, seed=4), collate_fn=collate
    )
    prepared = accelerate.Accelerator(cpu=True).prepare(loader)
    skipped = accelerate.skip_first_batches(prepared, 3)
    found = [batch["input_ids"].tolist() for batch in skipped]
    prepared.set_epoch(1)
    found += [batch["input_ids"].tolist() for batch in prepared]
    assert found == wanted[3:]


def test_counts_that_cannot_be_and_states_of_others_are_refused() -> None:
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
