from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokmill.dataset.documents import Documents
from tokmill.dataset.reader import read_intact_manifest, read_manifest
from tokmill.errors import StateError, StorageError, UsageError, VerifyError


def test_a_manifest_is_read_as_it_was_written(make_dataset):
    directory, manifest = make_dataset()
    assert read_manifest(directory) == manifest


def test_a_manifest_that_was_changed_is_not_intact(make_dataset):
    directory, manifest = make_dataset()
    assert read_intact_manifest(directory) == manifest
    (directory / "manifest.json").write_text(json.dumps({**manifest, "dtype": "uint32"}))
    with pytest.raises(VerifyError, match=r"manifest\.json: its own sha256 does not match"):
        read_intact_manifest(directory)


def test_shards_come_in_the_order_of_the_dataset(make_dataset):
    directory, manifest = make_dataset()
    shards = list(Documents(directory, manifest).shards())
    assert [(shard.name, shard.split) for shard in shards] == [
        ("train-0000000-0000", "train"),
        ("val-0000000-0000", "val"),
        ("train-0000000-0001", "train"),
    ]
    assert [shard.tokens.tolist() for shard in shards] == [
        [1, 7, 8, 2, 1, 9, 2],
        [1, 10, 2],
        [1, 2, 1, 11, 12, 13, 2],
    ]


def test_a_directory_without_a_dataset_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"not a tokmill dataset: no manifest\.json there: name"):
        read_manifest(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "nowhere"):
        with pytest.raises(UsageError, match=f"{name}: not a tokmill dataset: no such directory:"):
            read_manifest(tmp_path / name)


def test_an_unfinished_run_says_how_to_continue(tmp_path: Path):
    (tmp_path / "plan.json").write_bytes(b"{}")
    with pytest.raises(StateError) as caught:
        read_manifest(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: its run is not finished (no manifest.json): "
        "run the same command again to continue it"
    )


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b'"text"', b"{}", b"\xff\xfe"])
def test_a_damaged_manifest_is_refused(tmp_path: Path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(VerifyError, match=r"manifest\.json: damaged manifest: "):
        read_manifest(tmp_path)


def test_a_manifest_that_is_a_directory_is_a_storage_error(tmp_path: Path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(StorageError, match=r"manifest\.json: not a regular file$"):
        read_manifest(tmp_path)


def test_a_newer_format_is_refused_naming_both_versions(make_dataset):
    directory, manifest = make_dataset()
    (directory / "manifest.json").write_text(json.dumps({**manifest, "format_version": 2}))
    with pytest.raises(StateError, match=r"format version 2 is newer than version 1, which"):
        read_manifest(directory)


def test_a_missing_shard_is_a_broken_promise(make_dataset):
    directory, manifest = make_dataset()
    (directory / "val-0000000-0000.bin").unlink()
    with pytest.raises(VerifyError, match=r"val-0000000-0000\.bin"):
        list(Documents(directory, manifest).shards())


def test_an_empty_shard_is_a_broken_promise(make_dataset):
    directory, manifest = make_dataset()
    path = directory / "val-0000000-0000.bin"
    path.unlink()
    path.write_bytes(b"")
    with pytest.raises(VerifyError, match=r"val-0000000-0000\.bin"):
        Documents(directory, manifest).find(2)


def test_an_index_of_another_dtype_is_an_error(make_dataset):
    directory, manifest = make_dataset({"train-0000000-0000": [[7, 2]]}, dtype="uint16")
    with pytest.raises(VerifyError, match=r"2 bytes a token, the manifest says 1 of 4;"):
        list(Documents(directory, {**manifest, "dtype": "uint32"}).shards())


@pytest.mark.parametrize("weight", [0, 2])
def test_masks_and_weights_are_read_beside_their_tokens(make_sft, weight):
    directory, manifest = make_sft(weight=weight)
    shards = list(Documents(directory, manifest).shards())
    assert [
        shard.sample_mask(i).tolist() for shard in shards for i in range(len(shard.lengths))
    ] == [
        [0, 0, 1, 1],
        [0, 1, 1],
        [0, 1, 1],
        [0, 1],
        [0, 1, 0, 1, 1],
    ]
    assert shards[0].mask is not None
    with pytest.raises(ValueError, match="read-only"):
        shards[0].mask[0] = 1
    if weight:
        assert [shard.weights[shard.span(0)].tolist() for shard in shards] == [
            [0, 0, 2, 2],
            [0, 2, 2],
            [0, 2],
        ]
    else:
        assert [shard.weights for shard in shards] == [None] * 3
    assert [set(shard.sidecars) for shard in shards] == [
        {"mask", "weight"} if weight else {"mask"}
    ] * 3


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01"])
def test_a_mask_that_is_missing_or_of_another_length_is_an_error(make_sft, content):
    directory, manifest = make_sft()
    path = directory / "train-0000000-0000.mask"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(VerifyError, match=r"train-0000000-0000\.mask: "):
        next(Documents(directory, manifest).shards())
