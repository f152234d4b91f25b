"""How even balanced batches are, on a real dataset.

    python -m bench.loader_balance docs --length 8192 --model llama-3-8b
    python -m bench.loader_balance chats        (its packs)

Two tables. For 8 to 512 ranks: the time of a step as a multiple of that with equal batches, with
rows in order, dealt, and the bound of the dearest row; what the deal costs each rank, and what
reading its own rows does. For small batches: the same beside the best deal that there is, which a
search finds.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.tables import table
from tokmill.loader import AttentionCost, Loader, packs, windows
from tokmill.loader.balance import deal, least_step_cost, step_cost

if TYPE_CHECKING:
    import numpy.typing as npt

SMALL = ((2, 4), (2, 6), (3, 4), (4, 3), (4, 4))
"""Ranks, and rows of each, of batches for which every deal can be tried."""


def best_step_cost(costs: npt.NDArray[np.int64], world: int) -> int:
    """Return the cost of the best step with equally many rows for each rank: a complete search.

    Rows are placed from the dearest on. Ranks with equal loads and rows are the same place.
    """
    n, values = len(costs) // world, sorted(costs.tolist(), reverse=True)
    least = step_cost(costs, deal(costs, world, 1))
    bound = max(-(-sum(values) // world), values[0] + sum(values[len(values) - n + 1 :]))
    loads, counts = [0] * world, [0] * world

    def place(row: int) -> None:
        nonlocal least
        if row == len(values):
            least = min(least, max(loads))
            return
        tried = set()
        for rank in range(world):
            state = loads[rank], counts[rank]
            if counts[rank] == n or state in tried or loads[rank] + values[row] >= least:
                continue
            tried.add(state)
            loads[rank] += values[row]
            counts[rank] += 1
            place(row + 1)
            loads[rank] -= values[row]
            counts[rank] -= 1
            if least <= bound:
                return

    place(0)
    return least


def worlds(source: Any, cost: AttentionCost, batch: int, n_batches: int) -> list[list[str]]:
    """Return a row for each number of ranks: before, after, bound, and processor time of a step."""
    rows = []
    for world in (8, 16, 32, 64, 128, 256, 512):
        if world * batch > len(source):
            break
        loader = Loader(source, batch, world=world, balance=cost)
        found = loader.balance(n_batches=n_batches)
        steps = []
        for balance in (None, cost):
            sequence = Loader(source, batch, world=world, balance=balance)._sequence
            located = sequence.steps(0, None)
            start, n_steps = time.process_time(), 4 * n_batches
            for _ in range(n_steps):
                next(located)
            steps.append((time.process_time() - start) / n_steps)
        batches = iter(Loader(source, batch, world=world))
        next(batches)
        start = time.process_time()
        for _ in range(n_batches):
            next(batches)
        read_s = (time.process_time() - start) / n_batches
        shares = (f"{value:.4f}" for value in (found.before, found.after, found.bound))
        deal_ms, read_ms = 1e3 * (steps[1] - steps[0]), 1e3 * read_s
        times = (f"{deal_ms:.2f} ms", f"{read_ms:.2f} ms", f"{read_ms * world:.0f} ms")
        rows.append([f"{world} ranks of {batch}", *shares, *times])
    return rows


def small(source: Any, cost: AttentionCost, n_batches: int) -> list[list[str]]:
    """Return a row for each size of small batches: before, after, the best, and the bound."""
    rows = []
    for world, batch in SMALL:
        found = []
        size = world * batch
        order = np.random.default_rng(0).permutation(len(source))
        for number in range(min(n_batches, len(source) // size)):
            costs = cost.of_rows(*source.segment_sums(order[number * size : (number + 1) * size]))
            in_order = np.arange(size).reshape(1, world, batch)
            values = [
                step_cost(costs, in_order),
                step_cost(costs, deal(costs, world, 1)),
                best_step_cost(costs, world),
                least_step_cost(costs, world, 1),
            ]
            found.append(np.array(values) * world / costs.sum())
        shares = [f"{value:.4f}" for value in np.mean(found, axis=0)]
        over = max(one[1] / one[2] for one in found)
        rows.append([f"{world} ranks of {batch}", *shares, f"{over:.4f}"])
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="a finished dataset")
    parser.add_argument("--length", type=int, default=0, help="tokens of windows; 0: its packs")
    parser.add_argument("--model", default="", help="whose cost it is; the default of the loader")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batches", type=int, default=25)
    options = parser.parse_args()
    if options.length:
        source: Any = windows(options.directory, options.length, shift=True, cu_seqlens=True)
    else:
        source = packs(options.directory, shift=True)
    cost = AttentionCost.of_model(options.model) if options.model else AttentionCost()
    of_worlds = ("step", "in order", "dealt", "bound", "deal", "own rows read", "all rows read")
    print(table(of_worlds, worlds(source, cost, options.batch, options.batches)))
    print()
    of_small = ("step", "in order", "dealt", "best", "bound", "worst / best")
    print(table(of_small, small(source, cost, options.batches)))


if __name__ == "__main__":
    main()
