from __future__ import annotations

import gzip
import os

import pytest

from tokmill.errors import StorageError
from tokmill.sources.streams import (
    CHUNK_BYTES,
    BrokenInputError,
    ByteStream,
    frame_starts,
    open_binary,
    zstd,
)

DATA = os.urandom(1000) * 5000


@pytest.mark.parametrize(
    ("compression", "compress"), [("", bytes), ("gz", gzip.compress), ("zst", zstd.compress)]
)
def test_chunks_are_bounded_and_whole(compression, compress, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(compress(DATA))
    stream = ByteStream(str(path), compression)
    chunks = list(stream.inside())
    assert b"".join(chunks) == DATA
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    assert stream.consumed == path.stat().st_size
    stream.close()


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_data_that_compresses_very_well_comes_in_bounded_chunks(codec, tmp_path):
    compress = gzip.compress if codec == "gz" else zstd.compress
    (tmp_path / "a").write_bytes(compress(bytes(20 << 20)))
    stream = ByteStream(str(tmp_path / "a"), codec)
    sizes = [len(chunk) for chunk in stream.inside()]
    stream.close()
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= CHUNK_BYTES


def test_a_range_is_read_and_then_what_is_beyond(tmp_path):
    frames = [zstd.compress(piece) for piece in (b"ab", b"", b"cd", b"ef")]
    (tmp_path / "a").write_bytes(b"".join(frames))
    starts = frame_starts(str(tmp_path / "a"))
    assert starts == [0, *(len(b"".join(frames[:i])) for i in (1, 2, 3))]
    stream = ByteStream(str(tmp_path / "a"), "zst", starts[1], starts[3])
    assert b"".join(stream.inside()) == b"cd"
    assert b"".join(stream.beyond()) == b"ef"
    stream.close()


def broken_at(path, codec, start=0):
    stream = ByteStream(str(path), codec, start)
    given = []
    with pytest.raises(BrokenInputError) as caught:
        given.extend(stream.inside())
    stream.close()
    return caught.value.reason, caught.value.stored_byte


def with_checksum(data: bytes) -> bytes:
    return bytes(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}))


@pytest.mark.parametrize(("codec", "compress"), [("gz", gzip.compress), ("zst", with_checksum)])
def test_a_break_is_told_by_the_stored_byte_where_unpacking_stopped(codec, compress, tmp_path):
    path = tmp_path / "a"
    whole = compress(os.urandom(200_000))
    path.write_bytes(whole[:-7])
    assert broken_at(path, codec) == ("cut off", len(whole) - 7)
    path.write_bytes(whole + b"no codec's data at all")
    assert broken_at(path, codec) == ("corrupt data", len(whole))
    # Of a wrong checksum the piece of 64 KiB that it ends is given up.
    path.write_bytes(whole[:-8] + bytes(8))
    assert broken_at(path, codec) == ("corrupt data", len(whole) >> 16 << 16)


def test_a_break_stands_at_the_same_byte_wherever_reading_begins(tmp_path):
    frames = [with_checksum(os.urandom(n)) for n in (70_001, 200_000)]
    damaged = bytearray(frames[1])
    damaged[100_000] ^= 1
    (tmp_path / "a").write_bytes(frames[0] + damaged + frames[0])
    from_frame = broken_at(tmp_path / "a", "zst", len(frames[0]))
    assert broken_at(tmp_path / "a", "zst") == from_frame


def test_skippable_frames_are_skipped(tmp_path):
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    (tmp_path / "a").write_bytes(skippable + zstd.compress(b"ab") + skippable + zstd.compress(b"c"))
    stream = ByteStream(str(tmp_path / "a"), "zst")
    assert b"".join(stream.inside()) == b"abc"
    stream.close()
    assert len(frame_starts(str(tmp_path / "a"))) == 4


def test_a_missing_file_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="none: cannot be read: no such file or directory"):
        open_binary(str(tmp_path / "none"))
