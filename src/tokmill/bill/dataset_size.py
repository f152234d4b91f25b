"""The size of a dataset, from its manifest or settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokmill.settings.training import TrainingSettings

ITEM_BYTES = {"uint16": 2, "uint32": 4}
"""Bytes per token, by dtype in the manifest."""
SHARD_BYTES = 1 << 30
"""Maximum size of a shard if `shard_tokens` is not set."""


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """The size of a dataset.

    Attributes:
        kind: "pretrain" or "sft".
        tokens: all tokens, those for validation too.
        documents: all documents, those for validation too.
        item_bytes: bytes per token id, 2 or 4.
        mask: whether there is a loss mask, 1 byte per token.
        weights: whether there are loss weights, 4 bytes per token.
        shards: number of shards.
        largest_shard_tokens: tokens of the largest shard.
        vocabulary: largest id + 1.
        length_histogram: element i counts documents of 2^i to 2^(i+1) - 1 tokens.
        capacity: tokens of a packed row; 0: not packed.
        packed_rows: whether the packed rows are written as shards too.
        small_ids: share of ids below 257, whose Python integers exist only once; not in a manifest.
        val_tokens: tokens for validation.
        val_documents: documents for validation.
        train_rows: rows of packing for training; 0: not packed, or not known yet.
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
    train_rows: int = 0

    @property
    def train_tokens(self) -> int:
        """Tokens of an epoch of training."""
        return self.tokens - self.val_tokens

    @property
    def bytes_per_token(self) -> int:
        """Bytes per token with its loss mask and weight."""
        return self.item_bytes + self.mask + 4 * self.weights


def dataset_size(manifest: Mapping[str, Any]) -> DatasetSize:
    """Return the size of a finished dataset from its manifest."""
    shards = [shard["tokens"] for shard in manifest["shards"]]
    sft = manifest["config"].get("sft") or {}
    packs = manifest.get("packs", {})
    own: Mapping[str, Any] = packs.get("train") or next(iter(packs.values()), {})
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
        length_histogram=tuple(map(int, manifest["length_histogram"])),
        capacity=sft.get("packing", 0) or own.get("capacity", 0),
        packed_rows=sft.get("packed_rows", False),
        val_tokens=sum(shard["tokens"] for shard in val),
        val_documents=sum(shard["documents"] for shard in val),
        train_rows=packs.get("train", {}).get("rows", 0),
    )


def assumed_size(training: TrainingSettings, vocabulary: int) -> DatasetSize | None:
    """Return the size of a pretraining dataset that settings describe; None if they do not.

    The setting `dataset_bytes` is its size, else `tokens` divided by `epochs`. A token has 2 bytes,
    or 4 if the vocabulary needs them, and one more with `with_masks`; a shard has at most 1 GiB.
    The number of documents is 0.
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
        mask=training.with_masks, shards=shards, largest_shard_tokens=-(-tokens // shards),
        vocabulary=vocabulary,
    )  # fmt: skip
