"""`shuffle="blocks"`: every row once an epoch, shards in a seeded order, some of them at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tokmill.errors import StateError, UsageError
from tokmill.loader import BatchSampler, Loader, packs, shuffled, windows
from tokmill.loader.block_order import BlockOrder
from tokmill.loader.order import mix


def rows_of(sizes: list[int], together: int, seed: int = 0, epoch: int = 0) -> list[int]:
    starts, n = np.cumsum(sizes) - sizes, sum(sizes)
    order = BlockOrder(starts, n, together)
    return order.rows(np.arange(n), np.full(n, epoch), seed, 0).tolist()


def model(sizes: list[int], together: int, seed: int, epoch: int) -> list[int]:
    """The same order in plain Python, block by block."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    blocks = [list(range(start, start + n)) for start, n in zip(starts, sizes, strict=True)]
    order = shuffled(range(len(sizes)), len(sizes), seed=seed, epoch=epoch, stream=1)
    found = []
    for number, first in enumerate(range(0, len(sizes), together)):
        rows = [row for block in order[first : first + together] for row in blocks[block]]
        of_group = int(mix(mix(np.array([seed], np.uint64)) ^ np.uint64(number))[0])
        places = shuffled(range(len(rows)), len(rows), seed=of_group, epoch=epoch)
        found += [rows[place] for place in places]
    return found


def test_the_order_is_that_of_a_plain_model_in_every_small_world() -> None:
    for n_blocks in (1, 2, 3, 4):
        for sizes in itertools.product((1, 2, 5), repeat=n_blocks):
            for together in (1, 2, 3, 9):
                found = rows_of(list(sizes), together, seed=7, epoch=2)
                assert found == model(list(sizes), together, 7, 2)
                assert sorted(found) == list(range(sum(sizes)))


def test_the_order_never_changes() -> None:
    assert rows_of([3, 4, 2, 5], 2) == [5, 10, 9, 6, 4, 13, 12, 11, 3, 7, 1, 2, 0, 8]


def test_rows_stay_among_the_blocks_of_their_group() -> None:
    sizes = [50] * 12
    blocks = np.array(rows_of(sizes, 3)) // 50
    groups = [set(blocks[first : first + 150].tolist()) for first in range(0, 600, 150)]
    assert [len(group) for group in groups] == [3] * 4
    assert set().union(*groups) == set(range(12))


def test_epochs_and_seeds_have_other_orders_and_other_groups() -> None:
    orders = [rows_of([20] * 6, 2, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    firsts = {frozenset(np.array(rows_of([20] * 6, 2, 0, e))[:40] // 20) for e in range(20)}
    assert len(firsts) > 5


@pytest.mark.parametrize("make", ["windows", "packs"])
def test_every_row_comes_once_an_epoch_on_any_ranks_and_after_any_resume(make, pieces) -> None:
    def source() -> Any:
        if make == "packs":
            return packs(pieces.directory, shift=True)
        return windows(pieces.directory, 64, shift=True)

    options: dict[str, Any] = {"seed": 4, "shuffle": "blocks", "blocks": 2}

    def read(batch: int, world: int, n_batches: int, state: Any) -> tuple[list[bytes], Any]:
        loaders = [
            Loader(source(), batch, rank=rank, world=world, **options) for rank in range(world)
        ]
        found = []
        for loader in loaders:
            if state:
                loader.load_state_dict(state)
        iterations = [iter(loader) for loader in loaders]
        for _ in range(n_batches):
            for iteration in iterations:
                found += [row.tobytes() for row in next(iteration)["input_ids"]]
        return found, loaders[0].state_dict()

    n = len(source())
    whole, _ = read(1, 1, n, None)
    first, state = read(4, 2, 5, None)
    then, state = read(2, 3, 4, state)
    rest, _ = read(1, 1, n - 64, state)
    assert first + then + rest == whole
    assert sorted(whole) == sorted(row["input_ids"].tobytes() for row in source())


def test_a_sampler_and_a_loader_have_one_order(pieces) -> None:
    source = windows(pieces.directory, 64, shift=True)
    options: dict[str, Any] = {"batch": 8, "shuffle": "blocks", "blocks": 2, "seed": 1}
    numbers = list(BatchSampler(source, **options))
    for own, batch in zip(numbers, Loader(source, epochs=1, **options), strict=True):
        np.testing.assert_array_equal(source.batch(own)["input_ids"], batch["input_ids"])


def test_a_state_is_of_one_order(pieces) -> None:
    source = windows(pieces.directory, 64, shift=True)
    given: list[dict[str, Any]] = [{"shuffle": "blocks"}, {"shuffle": "blocks", "blocks": 3}, {}]
    states = [Loader(source, 8, **options).state_dict() for options in given]
    assert len({state["fingerprint"] for state in states}) == 3
    for options, state in itertools.product(given, states):
        loader = Loader(source, 8, **options)
        if state["fingerprint"] == loader.fingerprint:
            loader.load_state_dict(state)
        else:
            with pytest.raises(StateError, match="sources, weights or shuffle changed"):
                loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "rows"}, "shuffle: expected True, False or 'blocks', found 'rows'"),
        ({"shuffle": 1}, "shuffle: expected True, False or 'blocks', found 1"),
        ({"shuffle": "blocks", "blocks": 0}, "blocks: expected a whole number from 1, found 0"),
    ],
)
def test_a_wrong_shuffle_is_refused(options, message, pieces) -> None:
    source = windows(pieces.directory, 64, shift=True)
    for make in (Loader, BatchSampler):
        with pytest.raises(UsageError, match=message):
            make(source, 8, **options)


def test_rows_of_one_source_are_in_blocks_too(pieces) -> None:
    (name,) = windows(pieces.directory, 64, shift=True, sources=True).source_names
    source = windows(pieces.directory, 64, shift=True, source=name)
    starts = source.block_starts()
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert len(starts) == 3
