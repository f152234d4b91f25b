from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokmill.dataset.packs import (
    open_packs,
    sample_lengths,
    summary,
    write_pack_index,
)
from tokmill.errors import StorageError, VerifyError


def test_the_index_is_two_files_of_eight_byte_numbers(tmp_path: Path):
    entries = write_pack_index(
        tmp_path, "train", np.array([0, 2, 3]), np.array([0, 2, 1]), "blake3"
    )
    assert [(entry.name, entry.n_bytes) for entry in entries] == [
        ("packs-train-rows.bin", 24),
        ("packs-train-samples.bin", 24),
    ]
    assert (tmp_path / "packs-train-rows.bin").read_bytes() == bytes.fromhex(
        "0000000000000000 0200000000000000 0300000000000000"
    )
    packs = open_packs(tmp_path, "train")
    assert packs.n_rows == 2
    assert [packs.row(i).tolist() for i in range(2)] == [[0, 2], [1]]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o444}


def test_an_index_is_written_over_what_a_stopped_attempt_left(tmp_path: Path):
    for _ in range(2):
        write_pack_index(tmp_path, "val", np.array([0, 2]), np.array([0, 1]), "blake3")
    assert open_packs(tmp_path, "val").samples.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["packs-train-rows.bin", "packs-train-samples.bin"])
def test_a_broken_index_is_a_broken_promise(tmp_path: Path, name):
    write_pack_index(tmp_path, "train", np.array([0, 1]), np.array([0]), "blake3")
    for data in (None, b"", bytes(7)):
        (tmp_path / name).unlink()
        if data is not None:
            (tmp_path / name).write_bytes(data)
            with pytest.raises(VerifyError, match=name):
                open_packs(tmp_path, "train")
        else:
            with pytest.raises(VerifyError, match="No such file"):
                open_packs(tmp_path, "train")
            (tmp_path / name).touch()


def test_an_index_that_cannot_be_written_is_a_storage_error(tmp_path: Path):
    with pytest.raises(StorageError, match="no such file or directory"):
        write_pack_index(tmp_path / "no", "train", np.array([0, 1]), np.array([0]), "blake3")


def test_lengths_are_those_of_a_split_in_the_order_of_the_dataset(make_sft):
    directory, manifest = make_sft()
    lengths = sample_lengths(directory, manifest["shards"], "train")
    assert lengths.dtype == np.int32
    assert lengths.tolist() == [4, 3, 2, 5]
    assert sample_lengths(directory, manifest["shards"], "val").tolist() == [3]
    assert sample_lengths(directory, [], "val").tolist() == []


def test_an_index_of_other_documents_is_a_broken_promise(make_sft):
    directory, manifest = make_sft()
    (entry, *_) = manifest["shards"]
    with pytest.raises(VerifyError, match=r"0000\.idx: 2 documents, the manifest says 3$"):
        sample_lengths(directory, [{**entry, "documents": 3}], "train")
    with pytest.raises(VerifyError, match=r"No such file"):
        sample_lengths(directory, [{**entry, "name": "train-0000009-0000"}], "train")


def test_a_summary_has_the_fill_of_rows():
    assert summary(3, 4, 14, 5) == {
        "capacity": 5,
        "rows": 3,
        "samples": 4,
        "tokens": 14,
        "fill": 0.933333,
    }
