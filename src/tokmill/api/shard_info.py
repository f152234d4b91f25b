"""The shards of a dataset, as its manifest lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as the manifest lists it.

    Attributes:
        name: its files are `NAME.bin`, `NAME.idx` and, where the dataset has them, `NAME.mask`,
            `NAME.weight` and `NAME.origin`.
        split: `train` or `val`.
        documents: number of documents or samples.
        tokens: number of tokens, eos included.
    """

    name: str
    split: str
    documents: int
    tokens: int
