from __future__ import annotations

from tokmill.bill.dataset_size import DatasetSize, dataset_size

MANIFEST = {
    "kind": "sft",
    "config": {"sft": {"weights": "file", "packing": 512, "packed_rows": True}},
    "tokenizer": {"vocab_size": 300},
    "mask": {"preset": "tokmill"},
    "dtype": "uint16",
    "totals": {"tokens": 90, "documents": 7},
    "length_histogram": [1, 2, 4],
    "shards": [{"tokens": 50}, {"tokens": 40}],
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
    )


def test_a_token_of_sft_with_weights_takes_seven_bytes():
    assert dataset_size(MANIFEST).bytes_per_token == 2 + 1 + 4


def test_a_manifest_from_before_there_was_sft_is_one_of_pretraining():
    older = {key: MANIFEST[key] for key in MANIFEST if key not in ("kind", "mask")}
    size = dataset_size({**older, "config": {}, "dtype": "uint32", "shards": []})
    assert (size.kind, size.bytes_per_token, size.capacity) == ("pretrain", 4, 0)
    assert (size.shards, size.largest_shard_tokens) == (0, 0)
