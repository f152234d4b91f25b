from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.dataset.verifying import changed, check, problems
from tokmill.dataset.documents import Documents
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.verify import Verification

FIRST = "train-0000000-0000"
LAST = "train-0000000-0001"


def put(position: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda before: before[:position] + data + before[position + len(data) :]


def f4(value: float) -> bytes:
    return np.float32(value).tobytes()


@pytest.mark.parametrize("weight", [0, 0.5])
def test_a_sound_dataset_has_no_problem_and_is_counted(make_sft, weight):
    directory, manifest = make_sft(weight=weight)
    found = check(directory, manifest)
    assert found == Verification(
        n_files=13 if weight else 10,
        n_bytes=sum(path.stat().st_size for path in directory.iterdir())
        - (directory / "manifest.json").stat().st_size,
        n_shards=3,
        n_documents=5,
        n_tokens=17,
    )


def test_a_changed_mask_is_found_by_its_checksum_and_by_its_values(make_sft, rewrite):
    directory, manifest = make_sft()
    rewrite(directory, manifest, f"{FIRST}.mask", put(3, b"\x02"))
    assert problems(directory, manifest) == [
        f"{FIRST}.mask: its bytes have changed (blake3)",
        f"{FIRST}.mask: token 3 has 2, neither 0 nor 1 (1 such)",
    ]


@pytest.mark.parametrize(
    ("position", "data", "expected"),
    [
        (2, b"\x02\xff", f"{FIRST}.mask: token 2 has 2, neither 0 nor 1 (2 such)"),
        (4, b"\x01", f"{FIRST}.mask: sample 1 trains its first token (1 such)"),
        (5, b"\x00\x00", f"{FIRST}.mask: sample 1 has no trained token (1 such)"),
    ],
)
def test_a_wrong_mask_is_found_even_if_the_sums_fit(make_sft, rewrite, position, data, expected):
    directory, manifest = make_sft()
    forged = rewrite(directory, manifest, f"{FIRST}.mask", put(position, data))
    n_trained = sum(
        int(np.count_nonzero(shard.mask))
        for shard in Documents(directory, Manifest.of(forged, directory)).shards()
    )
    for counts in (["totals"], ["sources", 0]):
        forged = changed(forged, *counts, "trained_tokens", to=n_trained)
    assert problems(directory, forged) == [expected]


def test_a_token_that_is_no_longer_trained_is_found_by_the_count(make_sft, rewrite):
    directory, manifest = make_sft()
    forged = rewrite(directory, manifest, f"{LAST}.mask", put(3, b"\x00"))
    assert problems(directory, forged) == [
        "manifest.json: says 10 trained_tokens, the shards hold 9",
        "manifest.json: its sources sum to 10 trained_tokens, not 9",
    ]


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (2, -1.0, "token 2 has weight -1.0"),
        (2, float("nan"), "token 2 has weight nan"),
        (3, float("inf"), "token 3 has weight inf"),
        (3, 0.0, "token 3 has weight 0.0 and mask 1"),
        (1, 0.5, "token 1 has weight 0.5 and mask 0"),
    ],
)
def test_a_wrong_weight_is_found_even_if_the_sums_fit(make_sft, rewrite, position, value, expected):
    directory, manifest = make_sft(weight=2)
    forged = rewrite(directory, manifest, f"{FIRST}.weight", put(4 * position, f4(value)))
    assert problems(directory, forged) == [f"{FIRST}.weight: {expected}"]


def test_another_end_is_found_even_if_the_sums_fit(make_sft, rewrite):
    directory, manifest = make_sft()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(12, b"\x09"))
    forged = rewrite(directory, forged, f"{LAST}.bin", put(12, b"\x09"))
    assert problems(directory, forged) == [
        f"{FIRST}: sample 1 ends in id 9, which the end rule (eot) does not allow "
        "(2 such, 0 were cut)"
    ]
    assert len(problems(directory, changed(forged, "mask", "cut", to=1))) == 1
    assert problems(directory, changed(forged, "mask", "cut", to=2)) == []


def test_samples_end_in_any_id_where_the_rule_names_none(make_sft, rewrite):
    directory, manifest = make_sft()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(12, b"\x09"))
    forged = changed(forged, "mask", "ends", to={"rule": "template", "last_ids": []})
    assert problems(directory, forged) == []


def test_a_mask_without_its_kind_is_found(make_sft):
    directory, manifest = make_sft()
    assert problems(directory, changed(manifest, "kind", to="pretrain")) == [
        "manifest.json: cannot be checked further: its kind, its mask and config.sft do not agree"
    ]


def test_samples_beyond_the_first_of_their_record_are_extra(make_sft):
    directory, manifest = make_sft()
    counts = {**manifest["totals"], "records": 6}
    assert problems(directory, changed(manifest, "totals", to=counts)) == [
        "manifest.json: documents + drops + rejects = 8, but 6 records"
    ]
    assert problems(directory, changed(manifest, "totals", to={**counts, "extra": 2})) == []
    assert problems(directory, changed(manifest, "totals", to={**counts, "extra": 1})) == [
        "manifest.json: documents + drops + rejects = 8, but 6 records and 1 extra"
    ]


def test_masks_of_another_alignment_are_found(make_sft):
    directory, manifest = make_sft()
    assert problems(directory, changed(manifest, "mask", "alignment", to="predictor")) == [
        "manifest.json: mask alignment is predictor, not target"
    ]


def test_a_sound_shard_that_is_read_in_pieces_has_no_problem(make_sft, monkeypatch):
    monkeypatch.setattr("tokmill.dataset.verify._CHUNK_TOKENS", 2)
    assert problems(*make_sft(weight=0.5, packed=5)) == []


@pytest.mark.parametrize(
    ("ending", "position", "data", "expected"),
    [
        ("bin", 10, b"\x64\x00\x64", ": id 100 is outside the vocabulary of 100"),
        ("idx", 74, b"\x03", ".idx: its document indices are not 0 to 2"),
        ("mask", 3, b"\x02\x01\x02", ".mask: token 3 has 2, neither 0 nor 1 (2 such)"),
        ("weight", 0, f4(0.5) + f4(0.5), ".weight: token 0 has weight 0.5 and mask 0"),
        ("weight", 16, f4(-1) + f4(-1), ".weight: token 4 has weight -1.0"),
        ("weight", 20, f4(-1), ".weight: token 5 has weight -1.0"),
        ("weight", 16, f4(0.5), ".weight: token 4 has weight 0.5 and mask 0"),
    ],
)
def test_a_wrong_value_is_found_in_any_piece_of_a_shard(
    make_sft, rewrite, monkeypatch, ending, position, data, expected
):
    monkeypatch.setattr("tokmill.dataset.verify._CHUNK_TOKENS", 2)
    directory, manifest = make_sft(weight=0.5)
    forged = rewrite(directory, manifest, f"{FIRST}.{ending}", put(position, data))
    assert problems(directory, forged).count(f"{FIRST}{expected}") == 1
