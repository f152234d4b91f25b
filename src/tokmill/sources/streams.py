"""Read the bytes of a slice, decompressed, in chunks of bounded size; frames and sizes of files."""

from __future__ import annotations

import io
import mmap
import os
import sys
import weakref
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tokmill.errors import StorageError
from tokmill.storage import storage_errors
from tokmill.urls import is_store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""Largest size of a chunk; readers keep a few in memory."""

# Input of a decoder ends at multiples of this. A decoder that finds corrupt data loses the output
# of its last input: so the loss depends neither on settings nor on where reading started.
_ENCODED_BYTES = 64 << 10

UNCHECKED_BYTES = 1 << 30
"""Data up to this size may have any ratio: the same line a million times compresses 1000:1."""

_HEADER_BYTES = 18
"""Length of the longest header of a zstandard frame (RFC 8878, 3.1.1.1)."""

_SMALLEST_GZIP = 18

_BOM = b"\xef\xbb\xbf"

_peeked: weakref.WeakKeyDictionary[BinaryIO, bytes] = weakref.WeakKeyDictionary()


class BrokenInputError(Exception):
    """The rest of a source cannot be read; becomes `UnreadInput`, and never leaves this package.

    `stored_byte`: where decompression stopped, -1 if the text itself is broken.
    """

    def __init__(self, reason: str, message: str, stored_byte: int = -1) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.stored_byte = stored_byte


class ByteStream:
    """Reads the bytes `start` to `stop` (-1: the end) of a file, and then the bytes after them.

    Offsets count stored bytes; chunks are decompressed. `consumed` counts the stored bytes read,
    `decompressed` the decompressed bytes of the range. At the start of the file, a UTF-8 byte order
    mark and `skip` bytes after it are left out; `n_left_out` counts both, once the first chunk was
    read. `opened` is read instead of the file, if given. `convert` changes all decompressed bytes:
    then the changed ones are counted. `max_ratio`: see `check_ratio`.
    """

    def __init__(
        self,
        path: str,
        compression: str,
        start: int = 0,
        stop: int = -1,
        *,
        skip: int = 0,
        opened: BinaryIO | None = None,
        convert: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None,
        max_ratio: int = 0,
    ) -> None:
        self.consumed = 0
        self.decompressed = 0
        self.n_left_out = 0
        self._path = path
        self._compression = compression
        self._skip = skip
        self._convert = convert
        self._max_ratio = max_ratio
        self._unpacked = 0
        self._position = start
        self._stop = stop
        self._chunk_bytes = _ENCODED_BYTES if compression else CHUNK_BYTES
        self._file = opened or open_binary(path)
        self._read = getattr(self._file, "read1" if path == "-" else "read", self._file.read)
        self._head = _peeked.pop(self._file, b"") if path == "-" else b""
        if start:
            self._file.seek(start)

    def inside(self) -> Iterator[bytes]:
        """Yield the chunks of the range.

        Raises:
            BrokenInputError: the data is truncated or corrupt.
            StorageError: the file cannot be read, or holds too much for its size.
        """
        chunks = self._chunks(self._stop)
        if self._convert is not None:
            chunks = self._convert(chunks)
        if not self._position:
            chunks = self._without_head(chunks)
        for chunk in chunks:
            self.decompressed += len(chunk)
            yield chunk

    def beyond(self) -> Iterator[bytes]:
        """Return the chunks after the range to the end of the file; raises as `inside`."""
        return self._chunks(-1) if self._stop >= 0 else iter(())

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._path != "-":
            self._file.close()

    def _without_head(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks without their first bytes: a byte order mark and what is skipped."""
        head, broken = b"", None
        try:
            for chunk in chunks:
                head += chunk
                if len(head) >= len(_BOM) + self._skip:
                    break
        except BrokenInputError as error:  # raised after the bytes before it
            broken = error
        n_mark = len(_BOM) if head.startswith(_BOM) else 0
        self.n_left_out = self.decompressed = min(n_mark + self._skip, len(head))
        if len(head) > self.n_left_out:
            yield head[self.n_left_out :]
        if broken is not None:
            raise broken
        yield from chunks

    def _chunks(self, stop: int) -> Iterator[bytes]:
        """Return the bytes up to `stop` (-1: the end), decompressed."""
        stored = self._stored(stop)
        return self._decompressed(stored) if self._compression else stored

    def _decompressed(self, stored: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the data of all members of gzip, or frames of zstandard.

        Raises:
            BrokenInputError: the data is truncated or corrupt.
        """
        codec, new_decoder = _CODECS[self._compression]
        decoder = None
        n_members = n_left = 0  # n_left: bytes of the last input that may not be decompressed
        for data in stored:
            while data or decoder is not None:
                if decoder is None:
                    if n_members and self._compression == "gz":
                        data = data.lstrip(b"\0")  # padding, as gzip itself skips it
                        if not data:
                            break
                    decoder = new_decoder()
                n_left = len(data) or n_left
                try:
                    out = decoder.decompress(data, CHUNK_BYTES)
                except (zlib.error, zstd.ZstdError) as error:
                    message = f"{codec} data is corrupt: {error}".rstrip(".")
                    stored_byte = self._position - n_left
                    raise BrokenInputError("corrupt data", message, stored_byte) from None
                if out:
                    self._unpacked += len(out)
                    check_ratio(self._path, self.consumed, self._unpacked, self._max_ratio)
                    yield out
                if decoder.eof:
                    data, decoder, n_members = decoder.unused_data, None, n_members + 1
                    continue
                data = getattr(decoder, "unconsumed_tail", b"")  # zstandard keeps it itself
                if not data and len(out) < CHUNK_BYTES:
                    break
        if decoder is not None or not self._position:  # even empty data has a header
            name = codec if self._position else self._compression
            message = f"{name} data ends before its end mark: the file was cut off"
            raise BrokenInputError("cut off", message, self._position)

    def _stored(self, stop: int) -> Iterator[bytes]:
        """Yield the stored bytes up to `stop` (-1: the end)."""
        while stop < 0 or self._position < stop:
            left = self._chunk_bytes - self._position % self._chunk_bytes
            n_bytes = left if stop < 0 else min(left, stop - self._position)
            chunk, self._head = self._head[:n_bytes], self._head[n_bytes:]
            try:
                # From a pipe, only what is there: a read that waits for more would delay Ctrl-C.
                chunk = chunk or bytes(self._read(n_bytes))
            except OSError as error:
                raise unreadable(self._path, error) from None
            if not chunk:
                return
            self._position += len(chunk)
            self.consumed += len(chunk)
            yield chunk


def check_ratio(where: str, stored_bytes: int, plain_bytes: int, max_ratio: int) -> None:
    """Refuse data that is over `UNCHECKED_BYTES` and over `max_ratio` times its stored size.

    `max_ratio` 0: no limit.

    Raises:
        StorageError: it is over both limits.
    """
    if max_ratio and plain_bytes > UNCHECKED_BYTES and plain_bytes > max_ratio * stored_bytes:
        raise StorageError(
            f"{where}: expected at most {max_ratio:,} bytes of data for each stored byte, found "
            f"over {plain_bytes:,} bytes in the first {stored_bytes:,}: if you trust this file, "
            "raise input.max_decompression_ratio (0: no limit)"
        )


def open_binary(path: str) -> BinaryIO:
    """Open a file, an object by its URL, or standard input for '-', for reading bytes.

    Raises:
        StorageError: it cannot be opened.
    """
    if path == "-":
        if sys.stdin is None:
            raise StorageError("-: standard input is closed")
        return sys.stdin.buffer
    if is_store(path):
        from tokmill.stores.objects import ObjectFile

        return cast("BinaryIO", ObjectFile(path))
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: str, error: OSError) -> StorageError:
    """Return the error for a file that the system does not let us read."""
    return StorageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}")


def broken_file(path: str, kind: str, error: Exception) -> StorageError:
    """Return the error for a file that is not a complete file of its kind, in one line."""
    first_line = (str(error).splitlines() or ["unreadable"])[0].rstrip(".")
    return StorageError(f"{path}: expected a complete {kind} file: {first_line}")


def peeked_stdin() -> BinaryIO:
    """Return the first chunk of standard input as a file; the next reader gets it again."""
    file = open_binary("-")
    head = _peeked.get(file, b"")
    if len(head) < CHUNK_BYTES:
        head += file.read(CHUNK_BYTES - len(head))
        _peeked[file] = head
    return io.BytesIO(head)


def first_bytes(path: str, compression: str, n_bytes: int = CHUNK_BYTES) -> tuple[bytes, bool]:
    """Return the first bytes of a file, decompressed, and whether they are all of it.

    As far as they can be read: what breaks off is reported by the reader of the records. Standard
    input is only peeked at.

    Raises:
        StorageError: the file cannot be read.
    """
    head, is_all = bytearray(), False
    opened = peeked_stdin() if path == "-" else None
    with (
        closing(ByteStream(path, compression, opened=opened)) as stream,
        suppress(BrokenInputError),
    ):
        for chunk in stream.inside():
            head += chunk
            if len(head) >= n_bytes:
                break
        else:
            is_all = True
    return bytes(head[:n_bytes]), is_all


_CODECS: dict[str, tuple[str, Callable[[], Any]]] = {
    "gz": ("gzip", partial(zlib.decompressobj, wbits=31)),
    "zst": ("zstandard", zstd.ZstdDecompressor),
}
"""The name of each compression, and what makes its decoder."""


def frame_starts(path: str, start: int = 0, stop: int = -1) -> list[int]:
    """Return where zstandard frames begin in the bytes `start` to `stop` (-1: the end) of a file.

    `start` must be where a frame begins. The list ends at the first frame that is cut short. It is
    empty for an object in a store: all of it would have to be read.

    Raises:
        StorageError: the file cannot be read.
    """
    starts: list[int] = []
    if is_store(path):
        return starts
    stop = Path(path).stat().st_size if stop < 0 else stop
    if start >= stop:
        return starts
    with (
        open_binary(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
        suppress(zstd.ZstdError),
    ):
        while start < stop:
            starts.append(start)
            with data[start:] as rest:
                start += zstd.get_frame_size(rest)
    return starts


def decompressed_bytes(path: str, compression: str, start: int = 0, stop: int = -1) -> int:
    """Return the decompressed size of bytes `start` to `stop` (-1: the end), 0 where not stated.

    zstandard: the sum over its frames, if each states its size; 0 in a store. gzip: the size modulo
    2^32 of its last member (RFC 1952, 2.3.1); that is the size of the file only if it has one
    member of less than 4 GiB.

    Raises:
        StorageError: the file cannot be read.
    """
    if path == "-" or not compression:
        return 0
    with storage_errors(path), open_binary(path) as file:
        if compression == "gz":
            if file.seek(0, os.SEEK_END) < _SMALLEST_GZIP:
                return 0
            file.seek(-4, os.SEEK_END)
            return int.from_bytes(file.read(4), "little")
        total = 0
        for frame in frame_starts(path, start, stop):
            file.seek(frame)
            try:
                n_bytes = zstd.get_frame_info(file.read(_HEADER_BYTES)).decompressed_size
            except zstd.ZstdError:
                return 0
            if n_bytes is None:
                return 0
            total += n_bytes
        return total
