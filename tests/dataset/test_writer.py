from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tokmill.dataset.checksum import Digest, FileEntry
from tokmill.dataset.idx_file import read_index
from tokmill.dataset.layout import shard_stem
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import RecordError, StorageError

U2, U4 = np.dtype("<u2"), np.dtype("<u4")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def run_child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    child = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
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
    assert lengths.tolist() == [3, 2]
    assert offsets.tolist() == [0, 3 * dtype.itemsize]
    assert item_bytes == dtype.itemsize
    assert (entry.split, entry.n_documents, entry.n_tokens) == ("train", 2, 5)


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_the_entry_names_size_and_sum_of_both_files(tmp_path: Path, algorithm):
    writer = ShardWriter(tmp_path, "val", shard_stem("val", 0, 0), U2, algorithm=algorithm)
    writer.append(np.array([5, 6, 2], U2), np.array([1, 2], np.int64))
    entry = writer.commit()
    assert entry.files == (
        entry_of(tmp_path / "val-0000000-0000.bin", algorithm),
        entry_of(tmp_path / "val-0000000-0000.idx", algorithm),
    )


def test_the_bytes_do_not_depend_on_how_documents_are_handed_in(tmp_path: Path):
    whole = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U2)
    whole.append(np.arange(12, dtype=U2), np.array([4, 3, 5], np.int64))
    single = ShardWriter(tmp_path, "train", shard_stem("train", 1, 0), U2)
    for start, stop in ((0, 4), (4, 7), (7, 12)):
        single.append(np.arange(start, stop, dtype=U2), np.array([stop - start], np.int64))
    sums = [[file.checksum for file in writer.commit().files] for writer in (whole, single)]
    assert sums[0] == sums[1]


def test_a_strided_view_and_an_empty_append_are_written_as_they_read(tmp_path: Path):
    writer = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U2)
    writer.append(np.zeros(0, U2), np.zeros(0, np.int64))
    writer.append(np.arange(6, dtype=U2)[::2], np.array([3], np.int64))
    writer.commit()
    assert (tmp_path / "train-0000000-0000.bin").read_bytes() == bytes.fromhex("0000 0200 0400")


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


def test_a_discarded_shard_leaves_nothing(tmp_path: Path):
    writer = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U2)
    writer.append(np.array([1, 2], U2), np.array([2], np.int64))
    assert len(names(tmp_path)) == 2
    writer.discard()
    assert names(tmp_path) == []


def test_a_shard_in_a_missing_directory_is_a_storage_error(tmp_path: Path):
    with pytest.raises(StorageError, match="no such file or directory"):
        ShardWriter(tmp_path / "no", "train", "train-0000000-0000", U2)
    assert names(tmp_path) == []


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from tokmill.errors import RecordError, StorageError
from tokmill.dataset.writer import ShardWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
writer = ShardWriter(Path(sys.argv[1]), "train", "train-0000000-0000", np.dtype("<u2"))
n_documents = int(sys.argv[2])
try:
    writer.append(np.ones(int(sys.argv[3]), "<u2"), np.ones(n_documents, np.int64))
    writer.commit()
except StorageError as error:
    print(error)
    writer.discard()
"""


@pytest.mark.parametrize(
    ("n_documents", "n_tokens", "name"),
    [(1, 51, "train-0000000-0000.bin"), (4, 4, "train-0000000-0000.idx")],
)
def test_a_disk_that_fills_up_leaves_no_file(tmp_path: Path, n_documents, n_tokens, name):
    child = run_child(FULL, tmp_path, n_documents, n_tokens)
    assert child.stdout.startswith(
        f"{tmp_path / name}: file too large for this process (ulimit -f)"
    )
    assert names(tmp_path) == []


NO_SECOND_FILE = """
import os, resource, sys
from pathlib import Path
import numpy as np
from tokmill.errors import RecordError, StorageError
from tokmill.dataset.writer import ShardWriter
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, free + 1))
try:
    ShardWriter(Path(sys.argv[1]), "train", "train-0000000-0000", np.dtype("<u2"))
except StorageError as error:
    print(error)
"""


def test_nothing_is_left_where_the_index_cannot_be_opened(tmp_path: Path):
    child = run_child(NO_SECOND_FILE, tmp_path)
    assert child.stdout == f"{tmp_path / 'train-0000000-0000.idx'}: too many open files\n"
    assert names(tmp_path) == []


def test_many_small_appends_are_as_one(tmp_path: Path):
    tokens = np.arange(100_000, dtype=np.uint32)
    one = ShardWriter(tmp_path, "train", shard_stem("train", 0, 0), U4)
    one.append(tokens, np.full(1000, 100))
    many = ShardWriter(tmp_path, "train", shard_stem("train", 1, 0), U4)
    for start in range(0, 100_000, 100):
        many.append(tokens[start : start + 100], np.array([100]))
    entries = one.commit(), many.commit()
    assert entries[0].n_tokens == entries[1].n_tokens == 100_000
    digests = [[file.checksum for file in entry.files] for entry in entries]
    assert digests[0] == digests[1]


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
replace, left = Path.replace, [int(sys.argv[2])]
def stopping(self, target):
    if not left[0]:
        os._exit(0)
    left[0] -= 1
    return replace(self, target)
Path.replace = stopping
writer.commit()
"""


@pytest.mark.parametrize(("n_renamed", "endings"), [(0, []), (1, ["idx"]), (2, ["idx", "mask"])])
def test_tokens_never_stand_without_index_and_sidecars(tmp_path: Path, n_renamed, endings):
    run_child(STOPPED, tmp_path, n_renamed)
    found = [name for name in names(tmp_path) if not name.startswith(".")]
    assert found == [f"train-0000000-0000.{ending}" for ending in endings]
