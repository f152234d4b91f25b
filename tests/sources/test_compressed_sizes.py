from __future__ import annotations

import gzip

import pytest

from tokmill.sources import streams
from tokmill.sources.formats import cut
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import decompressed_bytes, zstd


def source(path, data, compression):
    path.write_bytes(data)
    return SourceFile(path.as_posix(), "jsonl", compression, len(data), 0, "")


def size_of_slice(piece):
    file = piece.file
    return decompressed_bytes(file.path, file.compression, piece.start, piece.stop)


def size_of(path, data, compression):
    return size_of_slice(Slice(source(path, data, compression), 0, -1, len(data)))


def test_the_size_of_gzip_is_read_at_its_end(tmp_path):
    assert size_of(tmp_path / "a", gzip.compress(b"x" * 70_000), "gz") == 70_000


def test_gzip_with_two_members_states_the_size_of_the_last(tmp_path):
    data = gzip.compress(b"x" * 300) + gzip.compress(b"y" * 50)
    assert size_of(tmp_path / "a", data, "gz") == 50


def test_sizes_of_zstandard_frames_are_added(tmp_path):
    data = zstd.compress(b"x" * 70_000) + zstd.compress(b"y" * 50)
    assert size_of(tmp_path / "a", data, "zst") == 70_050


def test_a_slice_counts_only_its_own_frames(tmp_path):
    frames = [zstd.compress(letter * n) for letter, n in ((b"x", 300), (b"y", 50), (b"z", 7))]
    file = source(tmp_path / "a", b"".join(frames), "zst")
    assert [size_of_slice(piece) for piece in cut(file, 1)] == [300, 50, 7]


def test_a_frame_written_as_a_stream_states_no_size(tmp_path):
    packer = zstd.ZstdCompressor()
    data = packer.compress(b"x" * 300) + packer.flush()
    assert size_of(tmp_path / "a", data, "zst") == 0


@pytest.mark.parametrize(
    ("data", "compression"),
    [(b"", "gz"), (b"short", "gz"), (b"no zstandard frame", "zst"), (b"plain text", "")],
)
def test_the_size_is_not_known_if_the_file_is_broken_or_not_compressed(data, compression, tmp_path):
    assert size_of(tmp_path / "a", data, compression) == 0


def test_slices_of_a_file_read_each_of_its_frames_once(tmp_path, monkeypatch):
    frames = [zstd.compress(b"x" * i) for i in range(200)]
    file = source(tmp_path / "a", b"".join(frames), "zst")
    pieces = cut(file, file.n_bytes // 50)
    n_bytes = []
    frame_size = streams.zstd.get_frame_size

    def counted(data):
        n_bytes.append(frame_size(data))
        return n_bytes[-1]

    monkeypatch.setattr(streams.zstd, "get_frame_size", counted)
    assert len(pieces) > 30
    assert sum(map(size_of_slice, pieces)) == sum(range(200))
    assert len(n_bytes) == 200
    assert sum(n_bytes) == file.n_bytes
