"""A source whose rows hold their own numbers, of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tokmill.loader import Loader
from tokmill.loader.source import RowSource


class Numbered(RowSource):
    """Rows of 2 tokens: the number of the row, and the name of the source."""

    length, shift, has_cu_seqlens, pad_id, probe_ids = 2, False, False, 3, ()

    def __init__(self, n: int, name: int = 0) -> None:
        self.n, self.name, self.n_read = n, name, 0
        self.identity, self.fingerprint = "blake3:0", f"{n} rows of {name}"
        self.dtypes = {"input_ids": np.int64, "labels": np.int64}

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"<{self.fingerprint}>"

    def check(self) -> None:
        """There is no dataset that could be replaced."""

    def fill(self, numbers: Any, into: dict[str, Any], rows: Any = slice(None)) -> None:
        assert all(0 <= one < self.n for one in np.asarray(numbers).tolist())
        self.n_read += len(numbers)
        for values in into.values():
            values[rows, 0] = numbers
            values[rows, 1] = self.name


def samples(batch: dict[str, Any]) -> list[tuple[int, int]]:
    """Return (name of the source, number) of the rows of a batch that are no padding."""
    padding = batch.get("is_padding", np.zeros(len(batch["labels"]), bool))
    return [(name, number) for number, name in batch["input_ids"][~padding].tolist()]


def ranks(
    make: Callable[..., Loader], world: int, state: dict[str, Any] | None = None
) -> list[Loader]:
    """Return the loaders of all ranks, at a state."""
    loaders = [make(rank=rank, world=world) for rank in range(world)]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


def in_step(loaders: Iterable[Loader]) -> Iterable[list[dict[str, Any]]]:
    """Yield the batches of all ranks, step by step; every rank has as many."""
    return map(list, zip(*loaders, strict=True))
