from __future__ import annotations

import gzip

import pytest

from tokmill.sources import streams
from tokmill.sources.slices import Slice, SourceFile, cut
from tokmill.sources.streams import zstd
from tokmill.sources.uncompressed import unpacked_bytes


def source(path, data, compression):
    path.write_bytes(data)
    return SourceFile(path.as_posix(), "jsonl", compression, len(data), 0, "")


def whole(path, data, compression):
    return Slice(source(path, data, compression), 0, -1, len(data))


def test_gzip_says_its_size_at_its_end(tmp_path):
    assert unpacked_bytes(whole(tmp_path / "a", gzip.compress(b"x" * 70_000), "gz")) == 70_000


def test_gzip_of_two_members_says_that_of_the_last(tmp_path):
    data = gzip.compress(b"x" * 300) + gzip.compress(b"y" * 50)
    assert unpacked_bytes(whole(tmp_path / "a", data, "gz")) == 50


def test_zstandard_frames_say_theirs(tmp_path):
    data = zstd.compress(b"x" * 70_000) + zstd.compress(b"y" * 50)
    assert unpacked_bytes(whole(tmp_path / "a", data, "zst")) == 70_050


def test_a_slice_of_frames_counts_its_own(tmp_path):
    frames = [zstd.compress(letter * n) for letter, n in ((b"x", 300), (b"y", 50), (b"z", 7))]
    file = source(tmp_path / "a", b"".join(frames), "zst")
    assert [unpacked_bytes(piece) for piece in cut(file, 1)] == [300, 50, 7]


def test_a_frame_that_was_streamed_says_nothing(tmp_path):
    packer = zstd.ZstdCompressor()
    data = packer.compress(b"x" * 300) + packer.flush()
    assert unpacked_bytes(whole(tmp_path / "a", data, "zst")) == 0


@pytest.mark.parametrize(
    ("data", "compression"),
    [(b"", "gz"), (b"short", "gz"), (b"no zstandard frame", "zst"), (b"plain text", "")],
)
def test_what_is_not_compressed_or_broken_is_not_known(data, compression, tmp_path):
    assert unpacked_bytes(whole(tmp_path / "a", data, compression)) == 0


def test_slices_of_a_file_look_at_each_of_its_frames_once(tmp_path, monkeypatch):
    frames = [zstd.compress(b"x" * i) for i in range(200)]
    file = source(tmp_path / "a", b"".join(frames), "zst")
    pieces = cut(file, file.n_bytes // 50)
    n_bytes = []
    size_of = streams.zstd.get_frame_size

    def counted(data):
        n_bytes.append(size_of(data))
        return n_bytes[-1]

    monkeypatch.setattr(streams.zstd, "get_frame_size", counted)
    assert len(pieces) > 30
    assert sum(map(unpacked_bytes, pieces)) == sum(range(200))
    assert len(n_bytes) == 200
    assert sum(n_bytes) == file.n_bytes
