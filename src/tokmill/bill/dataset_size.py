"""The sizes of a dataset that the bill needs, read from its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ITEM_BYTES = {"uint16": 2, "uint32": 4}
"""Bytes of a token by the manifest's dtype."""


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """The size of a dataset.

    `item_bytes` of a token, 2 or 4; `mask` and `weights`: whether 1 and 4 bytes a token stand
    beside it. `length_histogram[i]` counts documents of 2^i to 2^(i+1)-1 tokens. `capacity` is the
    length of packed rows in tokens, 0 where nothing is packed; `packed_rows`: the rows are shards
    too. `vocabulary`: largest id + 1. `small_ids`: share of ids below 257, whose Python integers
    exist once; a manifest does not say.
    """

    kind: str
    tokens: int
    documents: int
    item_bytes: int
    mask: bool = False
    weights: bool = False
    shards: int = 1
    largest_shard_tokens: int = 0
    vocabulary: int = 0
    length_histogram: tuple[int, ...] = ()
    capacity: int = 0
    packed_rows: bool = False
    small_ids: float = 0.0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token and what stands beside it."""
        return self.item_bytes + self.mask + 4 * self.weights


def dataset_size(manifest: Mapping[str, Any]) -> DatasetSize:
    """Return the size of a finished dataset from its manifest."""
    shards = [shard["tokens"] for shard in manifest["shards"]]
    sft = manifest["config"].get("sft") or {}
    return DatasetSize(
        kind=manifest.get("kind", "pretrain"),
        tokens=manifest["totals"]["tokens"],
        documents=manifest["totals"]["documents"],
        item_bytes=ITEM_BYTES[manifest["dtype"]],
        mask="mask" in manifest,
        weights=sft.get("weights") == "file",
        shards=len(shards),
        largest_shard_tokens=max(shards, default=0),
        vocabulary=manifest["tokenizer"]["vocab_size"],
        length_histogram=tuple(manifest["length_histogram"]),
        capacity=sft.get("packing", 0),
        packed_rows=sft.get("packed_rows", False),
    )
