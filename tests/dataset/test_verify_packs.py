from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

from tests.dataset.verifying import changed, problems

ROWS, SAMPLES = "packs-train-rows.bin", "packs-train-samples.bin"


def numbers(*values: int) -> Callable[[bytes], bytes]:
    return lambda data: np.array(values, "<i8").tobytes()


def put(position: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([value]) + data[position + 1 :]


@pytest.mark.parametrize("weight", [0, 1.5])
def test_sound_packs_have_no_problem(make_sft, weight):
    assert problems(*make_sft(packed=5, weight=weight)) == []


def test_a_pack_index_needs_no_rows_that_are_written(make_sft):
    directory, manifest = make_sft(packed=5)
    forged = copy.deepcopy(manifest)
    for packs in forged["packs"].values():
        del packs["shards"]
    names = [path.name for path in directory.glob("packed-*")]
    for name in names:
        (directory / name).unlink()
    kept = [entry for entry in forged["files"] if entry["name"] not in names]
    assert problems(directory, changed(forged, "files", to=kept)) == []


@pytest.mark.parametrize(
    "name", [ROWS, SAMPLES, "packed-train-0000.bin", "packed-val-0000.mask", "packed-val-0000.idx"]
)
def test_a_changed_byte_is_found_by_its_sum(make_sft, rewrite, name):
    directory, manifest = make_sft(packed=5)
    rewrite(directory, manifest, name, put(1, 78))
    assert problems(directory, manifest)[0] == f"{name}: its bytes have changed (blake3)"


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (SAMPLES, numbers(0, 1, 2), f"{SAMPLES}: 3 numbers, packing the samples gives 4"),
        (SAMPLES, numbers(0, 1, 2, 4), f"{SAMPLES}: entry 3 is 4, packing the samples gives 3"),
        (SAMPLES, numbers(0, 1, 2, -1), f"{SAMPLES}: entry 3 is -1, packing the samples gives 3"),
        (SAMPLES, numbers(0, 2, 1, 3), f"{SAMPLES}: entry 1 is 2, packing the samples gives 1"),
        (ROWS, numbers(0, 1, 3, 3), f"{ROWS}: entry 3 is 3, packing the samples gives 4"),
        (ROWS, numbers(0, 2, 4), f"{ROWS}: 3 numbers, packing the samples gives 4"),
    ],
)
def test_a_wrong_index_is_found_even_if_the_sums_fit(make_sft, rewrite, name, change, expected):
    directory, manifest = make_sft(packed=5)
    assert problems(directory, rewrite(directory, manifest, name, change)) == [expected]


def test_more_rows_than_packing_gives_are_found(make_sft, rewrite):
    directory, manifest = make_sft(packed=5)
    forged = rewrite(directory, manifest, ROWS, numbers(0, 1, 2, 3, 4))
    assert problems(directory, forged) == [f"{ROWS}: 5 numbers, packing the samples gives 4"]


@pytest.mark.parametrize(
    ("ending", "change"), [("bin", put(2, 6)), ("mask", put(1, 0)), ("weight", put(8, 1))]
)
def test_rows_that_differ_from_the_index_are_found_even_if_the_sums_fit(
    make_sft, rewrite, ending, change
):
    directory, manifest = make_sft(packed=5, weight=1)
    forged = rewrite(directory, manifest, f"packed-train-0001.{ending}", change)
    assert problems(directory, forged) == [
        f"packed-train-0001.{ending}: row 0 is not what the pack index says"
    ]


def test_a_padding_that_is_trained_is_found_even_if_the_sums_fit(make_sft, rewrite):
    directory, manifest = make_sft(packed=5)
    forged = rewrite(directory, manifest, "packed-val-0000.mask", put(4, 1))
    assert problems(directory, forged) == [
        "packed-val-0000.mask: row 0 is not what the pack index says"
    ]


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (34, 4, "packed-train-0000.idx: not every row has 5 tokens"),
        (50, 8, "packed-train-0000.idx: its byte offsets are not those of its lengths"),
    ],
)
def test_an_index_of_rows_that_does_not_fit_is_found(make_sft, rewrite, position, value, expected):
    directory, manifest = make_sft(packed=5)
    forged = rewrite(directory, manifest, "packed-train-0000.idx", put(position, value))
    assert problems(directory, forged) == [expected]


def test_a_missing_shard_of_rows_is_found(make_sft):
    directory, manifest = make_sft(packed=5)
    (directory / "packed-train-0001.bin").unlink()
    assert problems(directory, manifest) == ["packed-train-0001.bin: missing"]


def test_rows_that_the_manifest_does_not_list_are_found(make_sft):
    directory, manifest = make_sft(packed=5)
    path = ("packs", "train", "shards")
    shards = manifest["packs"]["train"]["shards"]
    for listed, n_rows in ((shards[:1], 2), ([shards[0], shards[0]], 4), ([], 0)):
        assert problems(directory, changed(manifest, *path, to=listed)) == [
            f"manifest.json: {n_rows} packed rows of train, the index has 3"
        ]
    other = [{**shards[0], "tokens": 9}, shards[1]]
    assert problems(directory, changed(manifest, *path, to=other)) == [
        "packed-train-0000.bin: 10 tokens, the manifest says 9"
    ]


def test_a_wrong_summary_of_packs_is_found(make_sft):
    directory, manifest = make_sft(packed=5)
    for key, said, found in (("fill", 0.99, 0.933333), ("tokens", 15, 14), ("samples", 5, 4)):
        assert problems(directory, changed(manifest, "packs", "train", key, to=said)) == [
            f"manifest.json: says {said} {key} of packs of train, found {found}"
        ]
    train = {"train": manifest["packs"]["train"]}
    assert problems(directory, changed(manifest, "packs", to=train)) == [
        "manifest.json: packs of ['train'], shards of ['train', 'val']"
    ]


def test_packs_of_shards_that_are_broken_are_not_looked_at(make_sft, rewrite):
    directory, manifest = make_sft(packed=5)
    forged = rewrite(directory, manifest, "train-0000000-0000.idx", put(50, 6))
    assert problems(directory, forged) == [
        "train-0000000-0000.idx: its byte offsets are not those of its lengths"
    ]
