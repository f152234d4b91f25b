from __future__ import annotations

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


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (SAMPLES, numbers(0, 1, 2), f"{SAMPLES}: 3 numbers, packing the samples gives 4"),
        (SAMPLES, numbers(0, 1, 2, 4), f"{SAMPLES}: entry 3 is 4, packing the samples gives 3"),
        (SAMPLES, numbers(0, 1, 2, -1), f"{SAMPLES}: entry 3 is -1, packing the samples gives 3"),
        (SAMPLES, numbers(0, 2, 1, 3), f"{SAMPLES}: entry 1 is 2, packing the samples gives 1"),
        (ROWS, numbers(0, 1, 3, 3), f"{ROWS}: entry 3 is 3, packing the samples gives 4"),
        (ROWS, numbers(1, 1, 3, 4), f"{ROWS}: entry 0 is 1, packing the samples gives 0"),
        (ROWS, numbers(0, 2, 4), f"{ROWS}: 3 numbers, packing the samples gives 4"),
    ],
)
def test_a_wrong_index_is_found_even_if_the_sums_fit(make_sft, rewrite, name, change, expected):
    directory, manifest = make_sft(packed=5)
    assert problems(directory, rewrite(directory, manifest, name, change)) == [expected]


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


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (34, 4, "packed-train-0000.idx: not every row has 5 tokens"),
        (50, 8, "packed-train-0000.idx: its byte offsets are not those of its lengths"),
        (58, 1, "packed-train-0000.idx: its document indices are not 0 to 2"),
    ],
)
def test_an_index_of_rows_that_does_not_fit_is_found(make_sft, rewrite, position, value, expected):
    directory, manifest = make_sft(packed=5)
    forged = rewrite(directory, manifest, "packed-train-0000.idx", put(position, value))
    assert problems(directory, forged) == [expected]


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("n_tokens", [5, 10])
def test_a_row_that_differs_is_named_in_any_block(make_sft, rewrite, monkeypatch, row, n_tokens):
    monkeypatch.setattr("tokmill.dataset.packs.BLOCK_TOKENS", n_tokens)
    directory, manifest = make_sft(packed=5)
    assert problems(directory, manifest) == []
    forged = rewrite(directory, manifest, "packed-train-0000.bin", put(10 * row + 2, 6))
    assert problems(directory, forged) == [
        f"packed-train-0000.bin: row {row} is not what the pack index says"
    ]


@pytest.mark.parametrize("name", [ROWS, SAMPLES, "packed-train-0001.weight"])
def test_bytes_behind_the_last_number_of_packs_are_found(make_sft, rewrite, name):
    directory, manifest = make_sft(packed=5, weight=1)
    forged = rewrite(directory, manifest, name, lambda data: data + b"\n")
    (problem,) = problems(directory, forged)
    assert problem.startswith(f"{name}: ")


@pytest.mark.parametrize("name", [ROWS, SAMPLES, "packed-train-0001.bin"])
def test_a_missing_file_of_packs_is_found_once(make_sft, name):
    directory, manifest = make_sft(packed=5)
    (directory / name).unlink()
    assert problems(directory, manifest) == [f"{name}: missing"]


def test_packs_are_not_compared_with_samples_that_are_wrong(make_sft, rewrite):
    directory, manifest = make_sft(packed=5)
    forged = rewrite(directory, manifest, "train-0000000-0000.mask", put(4, 1))
    assert not [one for one in problems(directory, forged) if "pack" in one]


def test_a_wrong_summary_of_packs_is_found(make_sft):
    directory, manifest = make_sft(packed=5)
    for key, said, found in (("fill", 0.99, 0.933333), ("tokens", 15, 14), ("samples", 5, 4)):
        assert problems(directory, changed(manifest, "packs", "train", key, to=said)) == [
            f"manifest.json: says {said} {key} of packs of train, found {found}"
        ]
    listed = manifest["packs"]["train"]["shards"][:1]
    assert problems(directory, changed(manifest, "packs", "train", "shards", to=listed)) == [
        "manifest.json: 2 packed rows of train, the index has 3"
    ]
    train = {"train": manifest["packs"]["train"]}
    assert problems(directory, changed(manifest, "packs", to=train)) == [
        "manifest.json: packs of train, shards of train and val"
    ]
