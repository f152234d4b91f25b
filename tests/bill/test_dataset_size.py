from __future__ import annotations

import pytest

from tokmill.bill.dataset_size import DatasetSize, assumed_size, dataset_size
from tokmill.settings.training import TrainingSettings

MANIFEST = {
    "kind": "sft",
    "config": {"sft": {"weights": "file", "packing": 512, "packed_rows": True}},
    "tokenizer": {"vocab_size": 300},
    "mask": {"preset": "tokmill"},
    "dtype": "uint16",
    "totals": {"tokens": 90, "documents": 7},
    "length_histogram": [1, 2, 4],
    "packs": {"train": {"rows": 3, "capacity": 512}, "val": {"rows": 2, "capacity": 512}},
    "shards": [
        {"split": "train", "tokens": 50, "documents": 4},
        {"split": "val", "tokens": 40, "documents": 3},
    ],
}


def test_the_size_of_a_dataset_is_read_from_its_manifest():
    assert dataset_size(MANIFEST) == DatasetSize(
        kind="sft",
        tokens=90,
        documents=7,
        item_bytes=2,
        mask=True,
        weights=True,
        shards=2,
        largest_shard_tokens=50,
        vocabulary=300,
        length_histogram=(1, 2, 4),
        capacity=512,
        packed_rows=True,
        val_tokens=40,
        val_documents=3,
        train_rows=3,
    )
    assert dataset_size(MANIFEST).train_tokens == 50


@pytest.mark.parametrize(
    ("settings", "vocabulary", "tokens", "item_bytes", "shards"),
    [
        ({"dataset_bytes": 100 * 10**9}, 50_257, 50 * 10**9, 2, 94),
        ({"dataset_bytes": 100 * 10**9}, 128_256, 25 * 10**9, 4, 94),
        ({"tokens": 300 * 10**9}, 65_536, 300 * 10**9, 2, 559),
        ({"tokens": 3000, "epochs": 3.0}, 0, 1000, 2, 1),
        ({"tokens": 3000, "dataset_bytes": 500}, 0, 250, 2, 1),
    ],
)
def test_a_dataset_is_as_large_as_the_settings_say(
    settings, vocabulary, tokens, item_bytes, shards
):
    found = assumed_size(TrainingSettings(**settings), vocabulary)
    assert found is not None
    assert (found.tokens, found.item_bytes, found.shards) == (tokens, item_bytes, shards)
    assert found.largest_shard_tokens * shards >= tokens


def test_a_described_dataset_may_have_masks_beside_its_tokens():
    plain, masked = (
        assumed_size(TrainingSettings(dataset_bytes=2000, with_masks=has), 300)
        for has in (False, True)
    )
    assert plain is not None
    assert masked is not None
    assert (masked.tokens, masked.bytes_per_token) == (plain.tokens, plain.bytes_per_token + 1)
