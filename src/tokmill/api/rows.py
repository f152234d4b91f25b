"""What a dataset is a sequence of, as values: its shards, and the tokens of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as the manifest lists it.

    Attributes:
        name: its files are `NAME.bin`, `NAME.idx` and, where the dataset has them, `NAME.mask`,
            `NAME.weight`, `NAME.origin` and `NAME.meta`.
        split: `train` or `val`.
        documents: number of documents or samples.
        tokens: number of tokens, eos included.
    """

    name: str
    split: str
    documents: int
    tokens: int


class Token(NamedTuple):
    r"""A token of a document.

    Attributes:
        id: its id.
        text: its text, decoded alone: a part of a character is written as bytes, `\x..`.
        weight: in the loss: 0 for a token that is no target.
    """

    id: int
    text: str
    weight: float

    @property
    def is_trained(self) -> bool:
        """Return whether the token counts in the loss as a target."""
        return self.weight > 0
