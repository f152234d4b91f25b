"""A source of spans whose rows hold the numbers of their tokens, and may be cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.loader.numbered import Numbered


class Spans(Numbered):
    """Rows of `length` tokens: each token is its number; labels are the name of the source."""

    def __init__(self, n: int, name: int = 0, length: int = 4) -> None:
        super().__init__(n, name)
        self.length, self.directory = length, Path(f"s{name}")
        self.fingerprint += f" of {length} tokens"

    def cut(self, length: int) -> Spans:
        if length == self.length:
            return self
        assert self.length % length == 0
        return Spans(self.n * (self.length // length), self.name, length)

    def block_starts(self) -> Any:
        """Return the first row of each shard, of two rows."""
        return np.arange(0, self.n, 2)

    def fill(self, numbers: Any, into: dict[str, Any], rows: Any = slice(None)) -> None:
        own = np.asarray(numbers)
        assert all(0 <= one < self.n for one in own.tolist())
        into["input_ids"][rows] = own[:, None] * self.length + np.arange(self.length)
        into["labels"][rows] = self.name


def rows_of(batch: dict[str, Any]) -> list[tuple[int, tuple[int, ...]]]:
    """Return (name of the source, tokens) of the rows of a batch."""
    return [
        (name, tuple(tokens))
        for name, tokens in zip(
            batch["labels"][:, 0].tolist(), batch["input_ids"].tolist(), strict=True
        )
    ]
