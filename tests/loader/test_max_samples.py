"""Rows with a most number of samples, and `cu_seqlens` of one length for all of them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.fixtures.written_datasets import write_manifest
from tokmill.errors import UsageError, VerifyError
from tokmill.loader import Loader, packs

LENGTHS = [3, 2, 2, 2, 9, 2, 2, 4, 2, 2, 2, 3]
"""Of documents, in tokens."""


@pytest.fixture
def directory(make_dataset: Any) -> Path:
    """Documents that are packed into rows of 8 tokens with at most two of them."""
    documents = [[1, *range(5, 3 + n), 2] for n in LENGTHS]
    directory, _ = make_dataset({"train-0000000-0000": documents})
    tokmill.pack(directory, 8, max_samples_per_row=2)
    return Path(directory)


def row_sizes(source: Any) -> list[int]:
    """Return the samples of each row."""
    return np.diff(source._reader.packs.row_offsets).tolist()  # type: ignore[no-any-return]


def test_no_row_has_more_samples_and_the_manifest_says_it(directory: Path) -> None:
    source = packs(directory, shift=True)
    assert max(row_sizes(source)) == 2
    entry = tokmill.open(directory).manifest["packs"]["train"]
    assert entry["max_samples_per_row"] == 2
    assert entry["pieces"] == len(LENGTHS) + 1  # the document of 9 tokens is two
    assert (directory / "packs-train-8-fragment-2-rows.bin").exists()
    assert tokmill.open(directory).verify().problems == ()
    tokmill.pack(directory, 8)  # any number again: another index, and the old one is removed
    assert "max_samples_per_row" not in tokmill.open(directory).manifest["packs"]["train"]
    assert not (directory / "packs-train-8-fragment-2-rows.bin").exists()
    assert max(row_sizes(packs(directory, shift=True))) > 2
    assert tokmill.open(directory).verify().problems == ()


def forge(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest of a dataset so that its own sum fits."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_bytes())
    change(manifest)
    path.unlink()
    write_manifest(directory, manifest)


def test_an_index_of_another_number_is_found_by_verify(directory: Path) -> None:
    for kind in ("rows", "samples", "pieces"):
        old = directory / f"packs-train-8-fragment-2-{kind}.bin"
        old.rename(directory / f"packs-train-8-fragment-3-{kind}.bin")

    def more(manifest: dict[str, Any]) -> None:
        manifest["packs"]["train"]["max_samples_per_row"] = 3
        for file in manifest["files"]:
            file["name"] = file["name"].replace("fragment-2", "fragment-3")

    forge(directory, more)
    with pytest.raises(VerifyError) as caught:
        tokmill.open(directory).verify()
    assert "packing the samples gives" in str(caught.value.problems)


@pytest.mark.parametrize("pad", [True, False])
def test_padded_cu_seqlens_have_one_length_and_repeat_the_end(directory, pad) -> None:
    source = packs(directory, shift=True, pad=pad, pad_cu_seqlens=True)
    plain = packs(directory, shift=True, pad=pad)
    size = 2 + pad  # samples, and padding
    assert source.max_segments == size
    assert len(source) == len(plain)
    for own, other in zip(iter_rows(source), iter_rows(plain), strict=True):
        check_padded(own["cu_seqlens"], other["cu_seqlens"], size + 1)
    for numbers in ([0, 1, 2], [4], list(range(len(source)))):
        found = source.batch(numbers)["cu_seqlens"]
        check_padded(found, plain.batch(numbers)["cu_seqlens"], len(numbers) * size + 1)
    assert source.fingerprint == plain.fingerprint  # the same rows in the same order
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again[0]["cu_seqlens"], source[0]["cu_seqlens"])


def iter_rows(source: Any) -> list[dict[str, Any]]:
    """Return all rows of a source."""
    return [source[i] for i in range(len(source))]


def check_padded(found: Any, plain: Any, size: int) -> None:
    """Check that `cu_seqlens` are those without padding, and then the end again."""
    assert (found.dtype, len(found)) == (np.int32, size)
    assert found.tolist() == [*plain.tolist(), *[plain[-1]] * (size - len(plain))]


def test_all_batches_of_a_loader_have_cu_seqlens_of_one_length(directory) -> None:
    source = packs(directory, shift=True, pad_cu_seqlens=True)
    for sources in (source, [(source, 2), (packs(directory, shift=True, pad_cu_seqlens=True), 1)]):
        loader = Loader(sources, 2, seed=1, epochs=2, tail="pad")
        sizes = {len(batch["cu_seqlens"]) for batch in loader}
        assert sizes == {2 * 3 + 1}
    with pytest.raises(UsageError, match="max_segments is 0, but 3"):
        Loader([(source, 1), (packs(directory, shift=True), 1)], 2)


def test_collated_rows_have_cu_seqlens_of_one_length(directory) -> None:
    pytest.importorskip("torch")
    source = packs(directory, shift=True, pad_cu_seqlens=True)
    batch = tokmill.loader.collate([source[i] for i in (3, 0, 1)])
    np.testing.assert_array_equal(
        batch["cu_seqlens"].numpy(), source.batch([3, 0, 1])["cu_seqlens"]
    )


def test_a_fixed_length_needs_rows_that_were_packed_for_it(directory, chats) -> None:
    with pytest.raises(UsageError, match="needs cu_seqlens=True"):
        packs(directory, shift=True, cu_seqlens=False, pad_cu_seqlens=True)
    with pytest.raises(UsageError, match=r"tokmill sft --packing=[0-9]+ --max-samples-per-row=32"):
        packs(chats, shift=True, pad_cu_seqlens=True)
    tokmill.pack(directory, 16)
    with pytest.raises(UsageError, match=r"tokmill pack .* --length=16 --max-samples-per-row=32"):
        packs(directory, shift=True, pad_cu_seqlens=True)


def test_an_index_with_more_samples_than_the_manifest_says_is_damage(directory) -> None:
    for kind in ("rows", "samples", "pieces"):
        old = directory / f"packs-train-8-fragment-2-{kind}.bin"
        old.rename(directory / f"packs-train-8-fragment-1-{kind}.bin")

    def fewer(manifest: dict[str, Any]) -> None:
        manifest["packs"]["train"]["max_samples_per_row"] = 1
        for file in manifest["files"]:
            file["name"] = file["name"].replace("fragment-2", "fragment-1")

    forge(directory, fewer)
    source = packs(directory, shift=True, pad_cu_seqlens=True, pad=False)
    with pytest.raises(VerifyError, match="more samples than the manifest says"):
        source.batch([0, 1])
