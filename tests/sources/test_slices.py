from __future__ import annotations

import pytest

from tokmill.errors import StorageError
from tokmill.sources.formats import cut
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import zstd


def source(path, data, data_format="jsonl", compression=""):
    path.write_bytes(data)
    return SourceFile(path.as_posix(), data_format, compression, len(data), 0, "")


def test_a_file_of_at_most_a_part_is_one_slice(tmp_path):
    file = source(tmp_path / "a", b"x" * 10)
    assert cut(file, 10) == [Slice(file, 0, -1, 10)]
    assert cut(file, 10)[0].is_whole


def test_lines_are_cut_into_equal_ranges(tmp_path):
    file = source(tmp_path / "a", b"x" * 10)
    assert [(piece.start, piece.stop, piece.n_bytes) for piece in cut(file, 3)] == [
        (0, 2, 2),
        (2, 5, 3),
        (5, 7, 2),
        (7, 10, 3),
    ]
    assert not cut(file, 3)[0].is_whole


@pytest.mark.parametrize(
    ("data_format", "compression"), [("jsonl", "gz"), ("array", ""), ("csv", ""), ("text", "")]
)
def test_what_cannot_be_cut_is_one_slice(data_format, compression, tmp_path):
    file = source(tmp_path / "a", b"x" * 10, data_format, compression)
    assert cut(file, 3) == [Slice(file, 0, -1, 10)]


def test_frames_are_grouped_to_parts(tmp_path):
    frames = [zstd.compress(bytes([i]) * 50) for i in range(5)]
    size = len(frames[0])
    file = source(tmp_path / "a", b"".join(frames), compression="zst")
    assert [(piece.start, piece.stop) for piece in cut(file, 2 * size)] == [
        (0, 2 * size),
        (2 * size, 4 * size),
        (4 * size, 5 * size),
    ]
    single = source(tmp_path / "b", frames[0], compression="zst")
    assert cut(single, 1) == [Slice(single, 0, -1, size)]


def test_frames_that_cannot_be_told_are_left_to_the_last_slice(tmp_path):
    frames = [zstd.compress(bytes([i]) * 50) for i in range(3)]
    data = b"".join(frames)[:-4]
    file = source(tmp_path / "a", data, compression="zst")
    assert [(piece.start, piece.stop) for piece in cut(file, 1)] == [
        (0, len(frames[0])),
        (len(frames[0]), len(frames[0] + frames[1])),
        (len(frames[0] + frames[1]), len(data)),
    ]
    broken = source(tmp_path / "b", b"no frames here", compression="zst")
    assert cut(broken, 1) == [Slice(broken, 0, -1, 14)]


def test_a_broken_parquet_file_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="expected a complete Parquet file"):
        cut(source(tmp_path / "a", b"x" * 10, "parquet"), 3)
