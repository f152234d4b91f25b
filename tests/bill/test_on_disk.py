"""A dataset on disk: its size, its files by kind, what could be added, and damage."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.on_disk import (
    DatasetSize,
    Share,
    additions,
    assumed_size,
    dataset_disk,
    dataset_size,
    on_disk,
    predicted_disk,
    read_dataset,
)
from tokmill.errors import UsageError, VerifyError
from tokmill.settings.training import TrainingSettings

MANIFEST: dict[str, Any] = {
    "kind": "sft",
    "config": {"sft": {"weights": "file", "packing": 100, "packed_rows": True}},
    "tokenizer": {"vocab_size": 300},
    "mask": {},
    "dtype": "uint16",
    "totals": {"tokens": 240, "documents": 5, "text_bytes": 900, "input_bytes": 500},
    "length_histogram": [0, 0, 0, 0, 0, 4, 1],
    "sources": [
        {"path": "a.jsonl", "tokens": 160, "documents": 3},
        {"path": "b.jsonl", "tokens": 80, "documents": 2},
    ],
    "shards": [
        {"name": "train-0000000-0000", "split": "train", "tokens": 200, "documents": 4},
        {"name": "val-0000000-0000", "split": "val", "tokens": 40, "documents": 1},
    ],
    "packs": {
        "train": {"rows": 2, "capacity": 100, "shards": [{"name": "packed-train-0000"}]},
        "val": {"rows": 1, "capacity": 100, "shards": [{"name": "packed-val-0000"}]},
    },
    "files": [
        {"name": "plan.json", "bytes": 700},
        {"name": "train-0000000-0000.bin", "bytes": 400},
        {"name": "train-0000000-0000.idx", "bytes": 42 + 80},
        {"name": "train-0000000-0000.mask", "bytes": 200},
        {"name": "train-0000000-0000.weight", "bytes": 800},
        {"name": "val-0000000-0000.bin", "bytes": 80},
        {"name": "val-0000000-0000.idx", "bytes": 42 + 20},
        {"name": "val-0000000-0000.mask", "bytes": 40},
        {"name": "val-0000000-0000.weight", "bytes": 160},
        {"name": "packs-train-rows.bin", "bytes": 24},
        {"name": "packs-train-samples.bin", "bytes": 32},
        {"name": "packs-val-rows.bin", "bytes": 16},
        {"name": "packs-val-samples.bin", "bytes": 8},
        {"name": "packed-train-0000.bin", "bytes": 400},
        {"name": "packed-train-0000.idx", "bytes": 42 + 40},
        {"name": "packed-train-0000.mask", "bytes": 200},
        {"name": "packed-train-0000.weight", "bytes": 800},
        {"name": "packed-val-0000.bin", "bytes": 200},
        {"name": "packed-val-0000.idx", "bytes": 42 + 20},
        {"name": "packed-val-0000.mask", "bytes": 100},
        {"name": "packed-val-0000.weight", "bytes": 400},
        {"name": "rejects/0000000-0000.jsonl", "bytes": 33},
        {"name": "parts/0000000.json", "bytes": 900},
    ],
}
SIZES = {
    **{entry["name"]: entry["bytes"] for entry in MANIFEST["files"]},
    "manifest.json": 5000,
    ".lock": 0,
    ".train-0000000-0001.bin.12-ab.tmp": 77,
}


def test_every_kind_of_file_is_a_line_and_the_total_is_the_sum_of_the_files():
    disk = dataset_disk(MANIFEST, SIZES)
    assert {line.name: line.n_bytes for line in disk.bill.lines} == {
        "tokens (.bin)": 480,
        "document index (.idx)": 184,
        "loss masks (.mask)": 240,
        "loss weights (.weight)": 960,
        "pack index": 80,
        "packed rows": 600 + 300 + 1200 + 144,
        "rejects": 33,
        "records of parts": 900,
        "manifest and plan": 5700,
        "not in the manifest": 77,
    }
    assert disk.bill.n_bytes == disk.bill.low_bytes == disk.bill.high_bytes == sum(SIZES.values())


def test_the_shares_of_splits_add_up_and_what_is_of_neither_is_said():
    disk = dataset_disk(MANIFEST, SIZES)
    assert disk.splits == (
        Share("train", 4, 200, 400 + 122 + 200 + 800 + 56 + 1482),
        Share("val", 1, 40, 80 + 62 + 40 + 160 + 24 + 762),
        Share("other files", 0, 0, 5000 + 700 + 33 + 900 + 77),
    )
    assert sum(share.n_bytes for share in disk.splits) == sum(SIZES.values())


def test_a_source_takes_its_tokens_and_by_tokens_a_share_of_the_rest():
    disk = dataset_disk(MANIFEST, SIZES)
    rest = sum(SIZES.values()) - 7 * 240 - 20 * 5
    first = 7 * 160 + 20 * 3 + rest * 160 // 240
    assert disk.sources == (
        Share("a.jsonl", 3, 160, first),
        Share("b.jsonl", 2, 80, sum(SIZES.values()) - first),
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"val-0000000-0000.bin": 78},
            "val-0000000-0000.bin: expected 80 B as in the manifest, found 78 B: "
            "the dataset is damaged, see tokmill verify",
        ),
        (
            {"plan.json": None},
            "plan.json: expected 700 B as in the manifest, found nothing: "
            "the dataset is damaged, see tokmill verify",
        ),
    ],
)
def test_a_file_that_is_not_as_the_manifest_says_is_an_error(change, expected):
    sizes = {name: n for name, n in {**SIZES, **change}.items() if n is not None}
    with pytest.raises(VerifyError) as caught:
        dataset_disk(MANIFEST, sizes)
    assert str(caught.value) == expected


def test_counts_that_do_not_give_the_sizes_are_an_error():
    manifest = copy.deepcopy(MANIFEST)
    manifest["totals"]["documents"] = 6
    with pytest.raises(VerifyError, match=r"\.idx\): the counts of the manifest give 204 B"):
        dataset_disk(manifest, SIZES)


def test_a_dataset_without_tokens_is_its_records_alone():
    manifest = {
        "config": {}, "tokenizer": {"vocab_size": 9}, "dtype": "uint32", "length_histogram": [],
        "totals": {"tokens": 0, "documents": 0}, "shards": [], "files": [],
        "sources": [{"path": "a", "tokens": 0, "documents": 0}],
    }  # fmt: skip
    disk = dataset_disk(manifest, {"manifest.json": 10})
    assert disk.bill.n_bytes == 10
    assert disk.sources == (Share("a", 0, 0, 0),)


def test_a_planned_dataset_is_the_same_formulas():
    size = dataset_size(MANIFEST)
    lines = {line.name: line.n_bytes for line in predicted_disk(size, slices=2).lines}
    assert lines == {
        "tokens (.bin)": 480,
        "document index (.idx)": 184,
        "origins (.origin)": 20,
        "loss masks (.mask)": 240,
        "loss weights (.weight)": 960,
        "pack index": 8 * (5 + 3 + 1),
        "packed rows": 7 * 300 + 84 + 60,
        "manifest, plan and records of parts": 8600 + 4000 + 700,
    }


def test_a_tokenizer_that_is_compressed_already_has_no_band():
    bill = predicted_disk(dataset_size(MANIFEST), slices=2, tokenizer_bytes=1_000_000)
    (kept,) = [line for line in bill.lines if line.name == "tokenizer"]
    assert (kept.low_bytes, kept.n_bytes, kept.high_bytes) == (1_000_000,) * 3


PRETRAIN = DatasetSize("pretrain", tokens=10_000, documents=10, item_bytes=2, shards=3)


def amounts(size: DatasetSize, epochs: float = 1.0) -> dict[str, int]:
    return {
        line.name.split(":")[0]: line.n_bytes
        for line in additions(size, sequence=100, epochs=epochs)
    }


def test_a_dataset_for_pretraining_could_have_masks_uint32_and_other_layouts():
    assert amounts(PRETRAIN) == {
        "loss masks": 10_000,
        "uint32 instead of uint16": 20_000,
        "nanoGPT, Megatron, OLMo-core, nanotron": 0,
        "datatrove, nanotron": 80,
        "llm.c, modded-nanogpt, litdata": 20_000 + 3 * 1024,
        "Megatron's indices, cached at load": 40 + 12 * 100,
    }


STEM = "train-0000000-0000"
SMALL = {
    "config": {},
    "tokenizer": {"vocab_size": 9},
    "dtype": "uint16",
    "totals": {"tokens": 3, "documents": 1},
    "length_histogram": [0, 1],
    "sources": [],
    "shards": [{"name": STEM, "split": "train", "tokens": 3, "documents": 1}],
    "files": [{"name": f"{STEM}.bin", "bytes": 6}, {"name": f"{STEM}.idx", "bytes": 62}],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, n_bytes in ((f"{STEM}.bin", 6), (f"{STEM}.idx", 62)):
        (tmp_path / name).write_bytes(bytes(n_bytes))
    (tmp_path / "manifest.json").write_text(json.dumps(SMALL))
    return tmp_path


def test_a_finished_dataset_is_its_files_its_size_and_what_is_free_beside_it(directory: Path):
    found = on_disk(*read_dataset(directory))
    assert found.directory == str(directory)
    assert found.bill.n_bytes == 68 + (directory / "manifest.json").stat().st_size
    assert (found.size.tokens, found.size.vocabulary) == (3, 9)
    assert found.free_bytes is not None
    assert found.free_bytes > 0
    assert found.found is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "damaged manifest: Expecting"),
        ("{}", "damaged manifest: Key"),
        ("[]", "damaged manifest: expected an object"),
        ('{"config": 3}', "damaged manifest: expected an object"),
        ("[" * 100_000, "damaged manifest: maximum recursion depth"),
    ],
)
def test_a_damaged_manifest_is_refused(directory: Path, text: str, expected: str):
    (directory / "manifest.json").write_text(text)
    with pytest.raises(VerifyError, match=expected):
        on_disk(*read_dataset(str(directory)))


def test_a_place_without_a_manifest_is_no_dataset(tmp_path: Path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="not a tokmill dataset: no manifest"):
            read_dataset(place)


def test_what_is_neither_a_directory_nor_a_dataset_is_refused():
    with pytest.raises(UsageError, match=r"expected a directory or an open Dataset, found int$"):
        read_dataset(3)  # type: ignore[arg-type]


COUNTS = {
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
    assert dataset_size(COUNTS) == DatasetSize(
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
    assert dataset_size(COUNTS).train_tokens == 50


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
