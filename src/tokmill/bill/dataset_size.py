"""The sizes of a dataset that the bill needs, read from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokmill.settings.training import TrainingSettings

ITEM_BYTES = {"uint16": 2, "uint32": 4}
"""Bytes of a token by the manifest's dtype."""
SHARD_BYTES = 1 << 30
"""Most tokens of a shard unless `shard_tokens` is set, in bytes."""


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """The size of a dataset.

    `item_bytes` of a token, 2 or 4; `mask` and `weights`: whether 1 and 4 bytes a token stand
    beside it. `length_histogram[i]` counts documents of 2^i to 2^(i+1)-1 tokens. `capacity` is the
    length of packed rows in tokens, 0 where nothing is packed; `packed_rows`: the rows are shards
    too. `vocabulary`: largest id + 1. `small_ids`: share of ids below 257, whose Python integers
    exist once; a manifest does not say. `val_tokens` and `val_documents`: those of `tokens` and
    `documents` that are for validation.
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
    val_tokens: int = 0
    val_documents: int = 0

    @property
    def train_tokens(self) -> int:
        """Tokens of an epoch of training."""
        return self.tokens - self.val_tokens

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token and what stands beside it."""
        return self.item_bytes + self.mask + 4 * self.weights


def dataset_size(manifest: Mapping[str, Any]) -> DatasetSize:
    """Return the size of a finished dataset from its manifest."""
    shards = [shard["tokens"] for shard in manifest["shards"]]
    sft = manifest["config"].get("sft") or {}
    val = [shard for shard in manifest["shards"] if shard["split"] == "val"]
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
        val_tokens=sum(shard["tokens"] for shard in val),
        val_documents=sum(shard["documents"] for shard in val),
    )


def assumed_size(training: TrainingSettings, vocabulary: int) -> DatasetSize | None:
    """Return the size of a dataset for pretraining that settings describe; None if they do not.

    It is `dataset_bytes` of tokens, else so many that all epochs are `tokens`. A token has 2 bytes
    unless the vocabulary needs 4; a shard has 1 GiB at most. The number of documents is not known.
    """
    item_bytes = 2 if vocabulary <= 1 << 16 else 4
    tokens = round(training.tokens / training.epochs) if training.epochs else 0
    if training.dataset_bytes:
        tokens = training.dataset_bytes // item_bytes
    if not tokens:
        return None
    shards = -(-tokens * item_bytes // SHARD_BYTES)
    return DatasetSize(
        "pretrain", tokens, 0, item_bytes,
        shards=shards, largest_shard_tokens=-(-tokens // shards), vocabulary=vocabulary,
    )  # fmt: skip
