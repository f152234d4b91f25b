from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.errors import VerifyError
from tokmill.page.dataset import on_disk

MANIFEST = {
    "config": {},
    "tokenizer": {"vocab_size": 9},
    "dtype": "uint16",
    "totals": {"tokens": 3, "documents": 1},
    "length_histogram": [0, 1],
    "sources": [],
    "shards": [{"name": "train-0000000-0000", "split": "train", "tokens": 3, "documents": 1}],
    "files": [
        {"name": "train-0000000-0000.bin", "bytes": 6},
        {"name": "train-0000000-0000.idx", "bytes": 62},
    ],
}


def test_a_finished_dataset_is_its_files_its_size_and_what_is_free_beside_it(tmp_path: Path):
    for entry in MANIFEST["files"]:
        (tmp_path / entry["name"]).write_bytes(bytes(entry["bytes"]))
    found = on_disk(tmp_path, MANIFEST)
    assert found.directory == str(tmp_path)
    assert found.bill.n_bytes == 68
    assert (found.size.tokens, found.size.vocabulary) == (3, 9)
    assert found.free_bytes > 0
    assert found.found is not None


def test_a_directory_without_the_files_is_damaged(tmp_path: Path):
    with pytest.raises(VerifyError, match="found is nothing"):
        on_disk(tmp_path, MANIFEST)
