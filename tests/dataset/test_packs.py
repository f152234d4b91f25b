from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokmill.dataset import packs
from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import (
    open_packs,
    open_rows,
    sample_lengths,
    write_pack_index,
    write_packed_rows,
)
from tokmill.dataset.reader import open_shard
from tokmill.errors import VerifyError

EOS = 2


def test_the_index_is_two_files_of_eight_byte_numbers(tmp_path: Path):
    made = Packs(np.array([0, 2, 3]), np.array([0, 2, 1]))
    entries = write_pack_index(tmp_path, "train", {}, [made], "blake3")
    assert [(entry.name, entry.n_bytes) for entry in entries] == [
        ("packs-train-rows.bin", 24),
        ("packs-train-samples.bin", 24),
    ]
    assert (tmp_path / "packs-train-rows.bin").read_bytes() == bytes.fromhex(
        "0000000000000000 0200000000000000 0300000000000000"
    )
    index = open_packs(tmp_path, "train", {})
    assert index.n_rows == 2
    assert [index.row(i).tolist() for i in range(2)] == [[0, 2], [1]]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o444}


def test_an_index_is_written_over_what_a_stopped_attempt_left(tmp_path: Path):
    for _ in range(2):
        packs_of_two = Packs(np.array([0, 2]), np.array([0, 1]))
        write_pack_index(tmp_path, "val", {}, [packs_of_two], "blake3")
    assert open_packs(tmp_path, "val", {}).samples.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["packs-train-rows.bin", "packs-train-samples.bin"])
def test_a_broken_index_is_a_broken_promise(tmp_path: Path, name):
    write_pack_index(tmp_path, "train", {}, [Packs(np.array([0, 1]), np.array([0]))], "blake3")
    for data in (None, b"", bytes(7)):
        (tmp_path / name).unlink()
        if data is not None:
            (tmp_path / name).write_bytes(data)
            with pytest.raises(VerifyError, match=name):
                open_packs(tmp_path, "train", {})
        else:
            with pytest.raises(VerifyError, match="No such file"):
                open_packs(tmp_path, "train", {})
            (tmp_path / name).touch()


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
    with pytest.raises(VerifyError, match=r"0000\.idx: 2 documents of 2 .* says 3 of 2;"):
        sample_lengths(directory, [{**entry, "documents": 3}], "train")
    with pytest.raises(VerifyError, match=r"No such file"):
        sample_lengths(directory, [{**entry, "name": "train-0000009-0000"}], "train")


# Parts: rows as shards of their own


def test_rows_are_their_samples_end_to_end_and_eos_that_is_not_trained(make_sft):
    directory, manifest = make_sft(packed=5)
    shards = [
        open_shard(directory, manifest, entry)
        for of_split in manifest["packs"].values()
        for entry in of_split["shards"]
    ]
    assert [shard.name for shard in shards] == [
        "packed-train-0000",
        "packed-train-0001",
        "packed-val-0000",
    ]
    ids = [shard.document(i).tolist() for shard in shards for i in range(len(shard.lengths))]
    assert ids == [
        [1, 7, 8, 3, EOS],
        [1, 9, 3, 1, 3],
        [1, 11, 12, 13, 3],
        [1, 10, 3, EOS, EOS],
    ]
    masks = [shard.sample_mask(i).tolist() for shard in shards for i in range(len(shard.lengths))]
    assert masks == [[0, 0, 1, 1, 0], [0, 1, 1, 0, 1], [0, 1, 0, 1, 1], [0, 1, 1, 0, 0]]


def test_a_shard_ends_before_the_row_that_would_not_fit(make_sft):
    _directory, manifest = make_sft(packed=5)  # of 20 bytes, which are two rows
    assert {split: entry["shards"] for split, entry in manifest["packs"].items()} == {
        "train": [
            {"name": "packed-train-0000", "split": "train", "documents": 2, "tokens": 10},
            {"name": "packed-train-0001", "split": "train", "documents": 1, "tokens": 5},
        ],
        "val": [{"name": "packed-val-0000", "split": "val", "documents": 1, "tokens": 5}],
    }


def remove_rows(directory: Path) -> None:
    """Remove the packed rows: other ones under their names would be refused."""
    for path in directory.glob("packed-*"):
        path.unlink()


def test_a_row_longer_than_a_shard_gets_its_own_shard(make_sft):
    directory, manifest = make_sft(packed=5)
    remove_rows(directory)
    _files, listed = write_packed_rows(directory, manifest, "blake3", shard_bytes=1)
    assert [entry["documents"] for entry in listed["train"]] == [1, 1, 1]


def test_weights_are_gathered_and_padding_has_none(make_sft):
    directory, manifest = make_sft(weight=0.5, packed=5)
    shard = open_shard(directory, manifest, manifest["packs"]["train"]["shards"][0])
    assert shard.weights is not None
    assert shard.weights.tolist() == [0, 0, 0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0.5]


def test_rows_are_gathered_from_any_range(make_sft):
    directory, manifest = make_sft(packed=6)
    source = open_rows(directory, manifest, "train")
    assert source.rows(2, 3)["bin"].tolist() == [1, 11, 12, 13, 3, EOS]
    assert source.rows(0, 2)["bin"].tolist() == [1, 7, 8, 3, EOS, EOS, 1, 9, 3, 1, 3, EOS]


def test_the_bytes_do_not_depend_on_how_many_rows_are_gathered_at_a_time(make_sft, monkeypatch):
    directory, manifest = make_sft(packed=5)
    remove_rows(directory)
    together, _ = write_packed_rows(directory, manifest, "blake3")
    monkeypatch.setattr(packs, "BLOCK_TOKENS", 1)
    assert write_packed_rows(directory, manifest, "blake3")[0] == together


def test_rows_that_cannot_be_gathered_leave_nothing(make_sft):
    directory, manifest = make_sft(packed=5)
    before = sorted(path.name for path in directory.iterdir())
    narrow = {split: {**entry, "capacity": 4} for split, entry in manifest["packs"].items()}
    with pytest.raises(VerifyError, match="index of train has a row of 5 tokens, more than 4;"):
        write_packed_rows(directory, {**manifest, "packs": narrow}, "blake3")
    assert sorted(path.name for path in directory.iterdir()) == before


def test_a_shard_that_is_truncated_while_its_rows_are_read_is_an_error(make_sft):
    directory, manifest = make_sft(packed=5)
    source = open_rows(directory, manifest, "train")
    path = directory / "train-0000000-0001.mask"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])
    with pytest.raises(VerifyError, match=r"0001\.mask: 6 bytes, 7 by the manifest"):
        source.rows(2, 3)
