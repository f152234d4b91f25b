from __future__ import annotations

import numpy as np
import pytest

from tokmill.dataset.layout import (
    DATASET_FILE,
    pack_names,
    packed_stem,
    part_name,
    rejects_name,
    shard_stem,
    token_dtype,
)
from tokmill.errors import TokenizerError


def test_names_are_those_of_the_format_page():
    assert shard_stem("train", 3, 12) == "train-0000003-0012"
    assert part_name(3) == "0000003.json"
    assert rejects_name(3) == "0000003.jsonl"
    assert packed_stem("val", 12) == "packed-val-0012"
    assert pack_names("train", 64, "") == ("packs-train-rows.bin", "packs-train-samples.bin")
    assert pack_names("val", 64, "drop") == (
        "packs-val-64-drop-rows.bin",
        "packs-val-64-drop-samples.bin",
        "packs-val-64-drop-pieces.bin",
    )


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("train-0000000-0000.bin", True),
        ("val-1234567-0000.idx", True),
        ("train-0000000-12345.mask", True),
        ("packs-train-rows.bin", True),
        ("packs-train-4096-fragment-pieces.bin", True),
        ("packs-train-pieces.bin", False),
        ("packed-train-0000.bin", True),
        ("train-0000000-0000.bin.gz", False),
        ("test-0000000-0000.bin", False),
        ("parts/0000000.json", True),
        ("parts/0000000-0012.json", False),
        ("rejects/0000000.jsonl", True),
        ("parts/../0000000.json", False),
        ("train-0000000-0000.bin\n", False),
        ("train-\u0661000000-0000.bin", False),
        ("manifest.json", False),
    ],
)
def test_a_file_of_a_dataset_is_known_by_its_name(name, is_known):
    assert (DATASET_FILE.fullmatch(name) is not None) is is_known


@pytest.mark.parametrize(
    ("name", "max_id", "expected"),
    [
        ("auto", 0, "<u2"),
        ("auto", 65_535, "<u2"),
        ("auto", 65_536, "<u4"),
        ("uint16", 65_535, "<u2"),
        ("uint32", 10, "<u4"),
        ("uint32", 151_642, "<u4"),
    ],
)
def test_the_dtype_is_the_smallest_that_fits_unless_it_is_named(name, max_id, expected):
    assert token_dtype(name, max_id) == np.dtype(expected)


def test_uint16_for_a_larger_id_is_an_error_that_names_the_id():
    with pytest.raises(TokenizerError) as caught:
        token_dtype("uint16", 65_536)
    assert str(caught.value) == (
        "dtype uint16 holds ids up to 65535, this tokenizer can emit id 65536: "
        "use dtype auto or uint32, or another tokenizer"
    )
