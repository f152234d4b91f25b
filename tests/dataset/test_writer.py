from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tokmill.dataset.checksum import Digest, FileEntry
from tokmill.dataset.layout import shard_stem
from tokmill.dataset.sidecars import read_index
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import RecordError

U2, U4 = np.dtype("<u2"), np.dtype("<u4")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def run_child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    child = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child


def entry_of(path: Path, algorithm: str) -> FileEntry:
    digest = Digest(algorithm)
    digest.update(path.read_bytes())
    return digest.entry(path.name)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (U2, "0100 ffff 0200 0300 0200"),
        (U4, "01000000 ffff0000 02000000 03000000 02000000"),
    ],
)
def test_a_shard_is_its_tokens_end_to_end(tmp_path: Path, dtype, expected):
    writer = ShardWriter(tmp_path, "train", shard_stem("train", 7, 1), dtype)
    writer.append(np.array([1, 65_535, 2], dtype), np.array([3], np.int64))
    writer.append(np.array([3, 2], dtype), np.array([2], np.int64))
    entry = writer.commit()
    assert names(tmp_path) == ["train-0000007-0001.bin", "train-0000007-0001.idx"]
    assert (tmp_path / "train-0000007-0001.bin").read_bytes() == bytes.fromhex(expected)
    lengths, offsets, item_bytes = read_index(tmp_path / "train-0000007-0001.idx")
    assert lengths[:].tolist() == [3, 2]
    assert offsets[:].tolist() == [0, 3 * dtype.itemsize]
    assert item_bytes == dtype.itemsize
    assert (entry.split, entry.documents, entry.tokens) == ("train", 2, 5)


def test_tokens_of_another_dtype_are_refused_and_never_wrapped(tmp_path: Path):
    writer = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U2)
    with pytest.raises(TypeError):
        writer.append(np.array([70_000], np.uint32), np.array([1], np.int64))  # would be 4464
    with pytest.raises(TypeError):
        writer.append(np.array([7], np.int64), np.array([1], np.int64))
    writer.discard()
    assert names(tmp_path) == []


@pytest.mark.parametrize("length", [1 << 31, (1 << 32) + 5, 1 << 62])
def test_a_length_that_an_index_cannot_say_is_not_narrowed(tmp_path: Path, length):
    writer = ShardWriter(tmp_path, "train", "train-0000000-0000", U2)
    with pytest.raises(RecordError) as caught:
        writer.append(np.zeros(0, U2), np.array([3, length, (1 << 31) - 1], np.int64))
    writer.discard()
    assert str(caught.value) == (
        f"{tmp_path}/train-0000000-0000.idx: expected documents of at most 2,147,483,647 tokens, "
        f"found one of {length:,}: set --max-tokens to leave it out"
    )


@pytest.mark.parametrize("sidecars", [("mask",), ("mask", "weight")])
def test_sidecars_are_written_token_by_token_and_listed(tmp_path: Path, sidecars):
    writer = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U2, sidecars)
    for values in ([0, 1, 1], [0, 1]):
        mask = np.array(values, np.uint8)
        beside = {"mask": mask, "weight": mask * np.float32(0.5)}
        n = len(values)
        writer.append(np.arange(n, dtype=U2), np.array([n]), {end: beside[end] for end in sidecars})
    entry = writer.commit()
    endings = ["bin", "idx", *sidecars]
    paths = [tmp_path / f"train-0000000-0000.{ending}" for ending in endings]
    assert names(tmp_path) == sorted(path.name for path in paths)
    assert entry.files == tuple(entry_of(path, "blake3") for path in paths)
    assert paths[2].read_bytes() == b"\x00\x01\x01\x00\x01"
    if len(paths) > 3:
        assert np.fromfile(paths[3], "<f4").tolist() == [0, 0.5, 0.5, 0, 0.5]


def test_sidecars_that_do_not_fit_are_refused(tmp_path: Path):
    writer = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U2, ("mask",))
    tokens, lengths, mask = np.array([1, 2], U2), np.array([2]), np.array([0, 1], np.uint8)
    for beside in (None, {}, {"weight": mask}, {"mask": mask[:1]}, {"mask": mask, "weight": mask}):
        with pytest.raises(ValueError, match=r"^2 tokens with .*, expected \('mask',\)$"):
            writer.append(tokens, lengths, beside)
    with pytest.raises(TypeError):
        writer.append(tokens, lengths, {"mask": mask.astype(np.int64)})
    with pytest.raises(TypeError):
        writer.append(tokens, lengths, {"mask": mask.astype(bool)})
    writer.discard()
    assert names(tmp_path) == []


STOPPED = """
import os, sys
from pathlib import Path
import numpy as np
from tokmill.dataset.writer import ShardWriter
writer = ShardWriter(Path(sys.argv[1]), "train", "train-0000000-0000", np.dtype("<u2"), ("mask",))
writer.append(np.ones(2, "<u2"), np.array([2]), {"mask": np.ones(2, "u1")})
replace, left = os.replace, [int(sys.argv[2])]
def stopping(*names, **folders):
    if not left[0]:
        os._exit(0)
    left[0] -= 1
    return replace(*names, **folders)
os.replace = stopping
writer.commit()
"""


@pytest.mark.parametrize(("n_renamed", "endings"), [(0, []), (1, ["idx"]), (2, ["idx", "mask"])])
def test_tokens_never_stand_without_index_and_sidecars(tmp_path: Path, n_renamed, endings):
    run_child(STOPPED, tmp_path, n_renamed)
    found = [name for name in names(tmp_path) if not name.startswith(".")]
    assert found == [f"train-0000000-0000.{ending}" for ending in endings]
