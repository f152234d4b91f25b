"""Balanced batches: a step has the same rows, dealt so that they cost all ranks the same."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.fixtures.written_datasets import write_manifest
from tests.loader.numbered import Numbered, in_step, ranks, samples
from tokmill.dataset.sidecars import HEADER
from tokmill.errors import UsageError, VerifyError
from tokmill.loader import AttentionCost, BatchSampler, Loader, documents, packs, windows
from tokmill.loader.balance import deal, least_step_cost, step_cost

SHAPES = [(2, 1, 4), (3, 1, 4), (4, 2, 1), (8, 1, 16), (2, 3, 5), (1, 4, 3), (64, 2, 3), (5, 1, 1)]
"""World, micro batches, and rows of a rank in each."""

Costs = npt.NDArray[np.int64]


class Skewed(Numbered):
    """Rows of which every seventh is a hundred times as dear as the others."""

    def segment_sums(self, numbers: Any) -> tuple[Costs, Costs]:
        found = np.asarray(numbers, np.int64)
        return np.full(len(found), 2), np.where(found % 7 == 0, 100, 1 + found % 5)


COST = AttentionCost(1, 10)


def random_costs(n: int, seed: int) -> Costs:
    """Return costs of each kind: even, few dear ones, equal ones, close to the largest integers."""
    rng = np.random.default_rng(seed)
    kinds = (
        rng.integers(1, 1000, n),
        np.exp(rng.normal(0, 2, n) * 2 + 20).astype(np.int64),
        rng.choice([7, 7, 7, 1000], n),
        rng.integers((1 << 61) // n, (1 << 62) // n, n),
    )
    return kinds[seed % len(kinds)].astype(np.int64)


@pytest.mark.parametrize(("world", "micro_batches", "n"), SHAPES)
@pytest.mark.parametrize("seed", range(8))
def test_each_row_is_dealt_once_and_no_step_is_dearer_than_in_order(
    world, micro_batches, n, seed
) -> None:
    costs = random_costs(world * micro_batches * n, seed)
    dealt = deal(costs, world, micro_batches)
    assert dealt.shape == (micro_batches, world, n)
    assert sorted(dealt.ravel().tolist()) == list(range(len(costs)))
    assert (np.diff(dealt, axis=2) > 0).all()  # in the order of the batch
    in_order = np.arange(len(costs)).reshape(dealt.shape)
    assert least_step_cost(costs, world, micro_batches) <= step_cost(costs, dealt) * (1 + 1e-12)
    assert step_cost(costs, dealt) <= step_cost(costs, in_order)
    np.testing.assert_array_equal(deal(costs, world, micro_batches), dealt)


def best(costs: Costs, world: int) -> int:
    """Return the cost of the best step with equally many rows for each rank, by trying all."""
    n, values = len(costs) // world, costs.tolist()
    least = sum(values)
    loads, counts = [0] * world, [0] * world

    def place(row: int) -> None:
        nonlocal least
        if row == len(values):
            least = min(least, max(loads))
        for rank in range(world):
            if counts[rank] == n or loads[rank] + values[row] >= least:
                continue
            loads[rank] += values[row]
            counts[rank] += 1
            place(row + 1)
            loads[rank] -= values[row]
            counts[rank] -= 1

    place(0)
    return least


@pytest.mark.parametrize(("world", "n"), [(2, 3), (2, 5), (3, 3), (4, 2), (5, 1)])
def test_small_batches_are_dealt_almost_as_well_as_can_be(world, n) -> None:
    over = []
    for seed in range(40):
        costs = random_costs(world * n, seed % 3 + 4 * seed)
        over.append(step_cost(costs, deal(costs, world, 1)) / best(costs, world))
    assert 1 <= np.mean(over) < 1.01
    assert max(over) < 1.08


def test_equal_costs_and_one_dear_row_have_the_best_deal() -> None:
    even = np.full(12, 5)
    np.testing.assert_array_equal(deal(even, 3, 2).ravel(), np.arange(12))
    dear = np.array([9, 1, 2, 3, 4, 5, 6, 1000])
    dealt = deal(dear, 2, 1)
    assert step_cost(dear, dealt) == 1000 + 1 + 2 + 3


def rows_of_steps(loaders: list[Loader], micro_batches: int) -> list[list[tuple[int, int]]]:
    """Return the samples of each step of all ranks."""
    batches = [
        [row for batch in of_ranks for row in samples(batch)] for of_ranks in in_step(loaders)
    ]
    assert len(batches) % micro_batches == 0
    return [
        list(chain(*batches[start : start + micro_batches]))
        for start in range(0, len(batches), micro_batches)
    ]


@pytest.mark.parametrize("tail", ["drop", "pad"])
@pytest.mark.parametrize("is_blend", [False, True])
@pytest.mark.parametrize(("batch", "world", "micro_batches"), [(3, 4, 1), (2, 2, 3), (5, 1, 2)])
def test_a_step_has_the_rows_that_it_has_in_order(
    batch, world, micro_batches, tail, is_blend
) -> None:
    source: Any = [(Skewed(61, 1), 2), (Skewed(40, 2), 1)] if is_blend else Skewed(101)
    options = {"tail": tail, "epochs": 3, "seed": 4}
    make = partial(Loader, source, batch, micro_batches=micro_batches, **options)
    found = rows_of_steps(ranks(partial(make, balance=COST), world), micro_batches)
    plain = rows_of_steps(ranks(make, world), micro_batches)
    whole = Loader(source, batch * world * micro_batches, **options)
    assert [sorted(step) for step in found] == [sorted(step) for step in plain]
    assert [sorted(step) for step in found] == [sorted(samples(batch)) for batch in whole]
    assert found != plain or world == 1
    if tail == "pad":
        assert sum(map(len, found)) == 303


def step_costs(loaders: list[Loader], micro_batches: int) -> list[int]:
    """Return what each step costs, computed from the rows that ranks get."""
    costs = []
    for of_ranks in in_step(loaders):
        squares = [Skewed(101).segment_sums(batch["input_ids"][:, 0])[1] for batch in of_ranks]
        costs.append(max(2 * len(one) + 10 * int(one.sum()) for one in squares))
    return [
        sum(costs[start : start + micro_batches]) for start in range(0, len(costs), micro_batches)
    ]


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_loader_balance_says_what_the_ranks_get(micro_batches: int) -> None:
    make = partial(Loader, Skewed(101), 4, micro_batches=micro_batches, epochs=1)
    balance = make(world=4).balance(COST)
    n_steps = balance.n_batches
    assert n_steps == 101 // (16 * micro_batches)
    found = step_costs(ranks(partial(make, balance=COST), 4), micro_batches)
    plain = step_costs(ranks(make, 4), micro_batches)
    whole = Loader(Skewed(101), 16 * micro_batches, epochs=1)
    means = []
    for batch in whole:
        squares = Skewed(101).segment_sums(batch["input_ids"][:, 0])[1]
        means.append((2 * len(squares) + 10 * squares.sum()) / 4)
    assert balance.before == pytest.approx(np.mean(np.divide(plain, means)))
    assert balance.after == pytest.approx(np.mean(np.divide(found, means)))
    assert 1 <= balance.bound <= balance.after < balance.before
    assert make(world=4, balance=COST).balance() == balance
    assert make(world=4, balance=COST).balance(n_batches=1).n_batches == 1


def test_a_state_goes_on_on_other_ranks_with_and_without_balance() -> None:
    options = {"seed": 3, "epochs": 2}
    whole = [row for batch in Loader(Skewed(96), 1, **options) for row in samples(batch)]
    first = ranks(partial(Loader, Skewed(96), 2, micro_batches=3, balance=COST, **options), 4)
    taken = list(islice(in_step(first), 4))  # a step, and one of three micro batches of the next
    states = [loader.state_dict() for loader in first]
    assert states == [states[0]] * 4
    assert states[0]["samples_seen"] == 24
    found = [row for step in taken[:3] for batch in step for row in samples(batch)]
    assert sorted(found) == sorted(whole[:24])
    for batch, world, balance in ((3, 2, COST), (2, 3, None), (24, 1, COST)):
        make = partial(Loader, Skewed(96), batch, balance=balance, **options)
        rest = rows_of_steps(ranks(make, world, states[0]), 1)
        size = batch * world
        assert len(rest) == 168 // size
        for number, step in enumerate(rest):
            start = 24 + number * size
            assert sorted(step) == sorted(whole[start : start + size])


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_batch_sampler_deals_like_a_loader(micro_batches: int) -> None:
    options = {"seed": 5, "world": 3, "rank": 1, "micro_batches": micro_batches, "balance": COST}
    sampler = BatchSampler(Skewed(100), 4, **options)
    loader = Loader(Skewed(100), 4, epochs=2, **options)
    numbers = [*sampler, *sampler]
    assert numbers == [batch["input_ids"][:, 0].tolist() for batch in loader]
    assert len(numbers) == 2 * len(sampler) == len(loader)
    sampler = BatchSampler(Skewed(100), 4, **options)
    seen = iter(sampler)
    for number, _ in enumerate(islice(seen, len(sampler)), start=1):
        expected = number // micro_batches * micro_batches * 12
        assert sampler.state_dict(number) == sampler.state_dict()
        state = sampler.state_dict(number)
        assert (state["epoch"], state["samples_seen"]) in ((0, expected), (1, 0))


def check_sums(source: Any) -> None:
    """Check what a source says of its rows by what it reads."""
    numbers = np.random.default_rng(0).permutation(len(source))[:200]
    tokens, squares = source.segment_sums(numbers)
    again = source.segment_sums(numbers[::-1])
    np.testing.assert_array_equal([tokens, squares], [one[::-1] for one in again])
    for row, n_tokens, square in zip(source.__getitems__(numbers), tokens, squares, strict=True):
        lengths = np.diff(row["cu_seqlens"]).astype(np.int64)
        assert (n_tokens, square) == (lengths.sum(), (lengths**2).sum())


@pytest.mark.parametrize("length", [1, 7, 64, 500])
@pytest.mark.parametrize("shift", [True, False])
def test_costs_of_windows_are_those_of_their_cu_seqlens(any_dataset, length, shift) -> None:
    source = windows(any_dataset, length, shift=shift, cu_seqlens=True)
    check_sums(source)
    name = source._manifest.sources[0].name if source._manifest.sources else ""
    if name:
        check_sums(windows(any_dataset, length, shift=shift, cu_seqlens=True, source=name))


@pytest.mark.parametrize("pad", [True, False])
def test_costs_of_packs_are_those_of_their_cu_seqlens(chats, make_dataset, pad) -> None:
    check_sums(packs(chats, shift=True, pad=pad))
    loader = Loader(packs(chats, shift=True, pad=pad), 1, balance=COST)
    assert next(iter(loader))["cu_seqlens"][0] == 0


def test_rows_without_documents_cannot_be_balanced(pretrained) -> None:
    plain = windows(pretrained, 64, shift=True)
    with pytest.raises(UsageError, match=r"keep documents apart, with cu_seqlens=True"):
        Loader(plain, 2, balance=AttentionCost())
    with pytest.raises(UsageError, match="keep documents apart"):
        Loader(plain, 2).balance()
    with pytest.raises(UsageError, match="keep documents apart"):
        BatchSampler([(plain, 1), (plain, 2)], 2, balance=AttentionCost())
    with pytest.raises(UsageError, match="no documents to balance"):
        Loader(Numbered(10), 2, balance=AttentionCost())
    with pytest.raises(UsageError, match="no common length"):
        Loader(documents(pretrained), 2, balance=AttentionCost())


@pytest.mark.parametrize("balance", [True, "attention", (1, 2), 1.5])
def test_another_balance_is_refused(balance: Any) -> None:
    with pytest.raises(UsageError, match=r"balance: expected tokmill.loader.AttentionCost\(\)"):
        Loader(Skewed(10), 2, balance=balance)


@pytest.mark.parametrize("wrong", [{"token": -1}, {"pair": 0.5}, {"token": True}])
def test_a_cost_is_two_whole_numbers(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 0"):
        AttentionCost(**wrong)
    with pytest.raises(UsageError, match="expected one above 0"):
        AttentionCost(0, 0)
    with pytest.raises(UsageError, match="micro_batches: expected a whole number from 1"):
        Loader(Skewed(10), 2, micro_batches=0)


def test_costs_that_no_integer_of_64_bits_holds_keep_their_ratios() -> None:
    tokens, squares = np.full(64, 1 << 28), np.arange(1, 65) << 50
    costs = AttentionCost(10**15, 10**12).of_rows(tokens, squares)
    exact = [10**15 * (1 << 28) + 10**12 * (i << 50) for i in range(1, 65)]
    assert 0 < costs.sum() < 1 << 62
    ratios = [int(cost) / one for cost, one in zip(costs, exact, strict=True)]
    assert max(ratios) == pytest.approx(min(ratios))


def test_the_cost_of_a_model_is_that_of_its_sizes() -> None:
    cost = AttentionCost.of_model("llama-3-8b")
    layers, hidden = 32, 4096
    assert cost.pair == 12 * layers * hidden // 2
    assert 6 * 6.9e9 < cost.token < 6 * 7.6e9  # without the embedding
    windowed = AttentionCost.of_model("mistral-7b-v0.1")
    assert windowed.pair == 0  # all of its layers have windows
    assert windowed.token > 6 * 7e9


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_step_has_the_gradient_of_rows_in_order(pretrained, micro_batches) -> None:
    torch: Any = pytest.importorskip("torch")
    source = windows(pretrained, 64, shift=True, cu_seqlens=True)
    n_ids = 50  # ids are taken modulo it: a small model is fast
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(n_ids, 4), torch.nn.Linear(4, n_ids))
    model.double()

    def gradients(balance: AttentionCost | None) -> list[Any]:
        """Return those of the first step, whose loss is divided by the targets of all ranks."""
        make = partial(Loader, source, 3, micro_batches=micro_batches, balance=balance)
        model.zero_grad()
        n_targets, of_ranks = 0, []
        for loader in ranks(make, 4):
            of_ranks += list(islice(loader, micro_batches))
        for batch in of_ranks:
            n_targets += int((batch["labels"] != -100).sum())
        for batch in of_ranks:
            logits = model(torch.from_numpy(batch["input_ids"] % n_ids))
            targets = torch.from_numpy(batch["labels"] % n_ids).flatten()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="sum")
            (loss / n_targets).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    plain, balanced = gradients(None), gradients(AttentionCost(token=8))
    for ours, theirs in zip(balanced, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("offset", [-1, 5])
def test_a_damaged_index_is_an_error_before_rows_are_dealt(make_dataset, rewrite, offset) -> None:
    directory, manifest = make_dataset({"train-0000000-0000": [[1, 5, 2]] * 40})
    name = "train-0000000-0000.idx"

    def moved(data: bytes) -> bytes:
        """Let a document begin before the one that it follows."""
        at = HEADER.size + 4 * 40 + 8 * (20 + offset)
        return data[:at] + bytes(8) + data[at + 8 :]

    write_manifest(directory, rewrite(directory, manifest, name, moved))
    source = windows(directory, 8, shift=False, cu_seqlens=True)
    with pytest.raises(VerifyError, match="documents that overlap or begin outside"):
        next(iter(Loader(source, 2, world=2, balance=COST)))
