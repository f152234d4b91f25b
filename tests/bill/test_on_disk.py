"""A dataset as the bill reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokmill.bill.on_disk import on_disk, read_dataset
from tokmill.errors import UsageError, VerifyError

STEM = "train-0000000-0000"
MANIFEST = {
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
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    return tmp_path


def test_a_finished_dataset_is_its_files_its_size_and_what_is_free_beside_it(directory: Path):
    found = on_disk(*read_dataset(directory))
    assert found.directory == str(directory)
    assert found.bill.n_bytes == 68 + (directory / "manifest.json").stat().st_size
    assert (found.size.tokens, found.size.vocabulary) == (3, 9)
    assert found.free_bytes is not None
    assert found.free_bytes > 0
    assert found.found is not None


def test_a_directory_without_the_files_is_damaged(tmp_path: Path):
    with pytest.raises(VerifyError, match="found nothing"):
        on_disk(tmp_path, MANIFEST)


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
