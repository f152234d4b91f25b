"""The bytes of a slice, decompressed, in bounded chunks."""

from __future__ import annotations

import mmap
import sys
import weakref
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tokmill.errors import StorageError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""No chunk is larger; readers hold a few."""

# How much is handed to a decoder at once. A constant, since a decoder that finds corrupt data keeps
# back what it made of its last input: what is lost must not depend on the settings.
_ENCODED_BYTES = 64 << 10

_BOM = b"\xef\xbb\xbf"

_peeked: weakref.WeakKeyDictionary[BinaryIO, bytes] = weakref.WeakKeyDictionary()


class BrokenInputError(Exception):
    """The rest of a source cannot be read; becomes one reject. Never leaves this room."""

    def __init__(self, reason: str, message: str, raw: bytes = b"") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.raw = raw


class ByteStream:
    """Reads the bytes `start` to `stop` (-1: the end) of a file, and then on beyond them.

    Offsets are those of the file as stored; what is given is decompressed. `consumed` counts the
    stored bytes read. `opened` is read in place of the file, if given.
    """

    def __init__(
        self,
        path: str,
        compression: str,
        start: int = 0,
        stop: int = -1,
        *,
        opened: BinaryIO | None = None,
    ) -> None:
        self.consumed = 0
        self._path = path
        self._decode = _DECODERS[compression]
        self._position = start
        self._stop = stop
        self._chunk_bytes = _ENCODED_BYTES if compression else CHUNK_BYTES
        self._file = opened or open_binary(path)
        self._head = _peeked.pop(self._file, b"") if path == "-" else b""
        if start:
            self._file.seek(start)

    def inside(self, skip: int = 0) -> Iterator[bytes]:
        """Give the chunks of the range, without their first `skip` decompressed bytes.

        Raises:
            BrokenInputError: the data is truncated or corrupt.
            StorageError: the file cannot be read.
        """
        if skip and self._decode is _copy and self._path != "-":
            self._file.seek(skip, 1)
            self._position += skip
            skip = 0
        return _skipped(self._decode(self._stored(self._stop)), skip)

    def beyond(self) -> Iterator[bytes]:
        """Give the chunks from the end of the range to the end of the file; raises the same."""
        return self._decode(self._stored(-1)) if self._stop >= 0 else iter(())

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._path != "-":
            self._file.close()

    def _stored(self, stop: int) -> Iterator[bytes]:
        while stop < 0 or self._position < stop:
            left = self._chunk_bytes if stop < 0 else stop - self._position
            chunk = self._read(min(left, self._chunk_bytes))
            if not chunk:
                return
            self._position += len(chunk)
            self.consumed += len(chunk)
            yield chunk

    def _read(self, n_bytes: int) -> bytes:
        if self._head:
            chunk, self._head = self._head[:n_bytes], self._head[n_bytes:]
            return chunk
        try:
            # From a pipe, what is there: a read of all of it would not hear Ctrl-C.
            read = getattr(self._file, "read1", self._file.read)
            chunk = read(n_bytes) if self._path == "-" else self._file.read(n_bytes)
            return bytes(chunk)
        except OSError as error:
            raise unreadable(self._path, error) from None


def open_binary(path: str) -> BinaryIO:
    """Open a file, or standard input for '-', for reading bytes.

    Raises:
        StorageError: it cannot be opened.
    """
    if path == "-":
        if sys.stdin is None:
            raise StorageError("-: standard input is closed")
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: str, error: OSError) -> StorageError:
    """Give the error for a file that the system does not let us read."""
    return StorageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}")


def peek_stdin(n_bytes: int) -> bytes:
    """Give about the first `n_bytes` of standard input; the next reader gets them again."""
    file = open_binary("-")
    head = _peeked.get(file, b"")
    if len(head) < n_bytes:
        head += file.read(n_bytes - len(head))
        _peeked[file] = head
    return head


def without_bom(chunks: Iterator[bytes]) -> tuple[int, Iterator[bytes]]:
    """Give the number of bytes of a UTF-8 byte order mark (3 or 0), and the chunks after it."""
    head = b""
    broken = None
    while len(head) < len(_BOM) and broken is None:
        try:
            chunk = next(chunks, None)
        except BrokenInputError as error:
            broken = error
        else:
            if chunk is None:
                break
            head += chunk
    n_bytes = len(_BOM) if head.startswith(_BOM) else 0
    return n_bytes, _again(head[n_bytes:], broken, chunks)


def _again(head: bytes, broken: BrokenInputError | None, rest: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    if broken is not None:
        raise broken
    yield from rest


def _skipped(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    for chunk in chunks:
        if n_bytes < len(chunk):
            yield chunk[n_bytes:]
            n_bytes = 0
        else:
            n_bytes -= len(chunk)


def _copy(stored: Iterator[bytes]) -> Iterator[bytes]:
    return stored


def _gunzip(stored: Iterator[bytes]) -> Iterator[bytes]:
    decoder = None
    n_members = 0
    for data in stored:
        while data or decoder is not None:
            if decoder is None:
                data = data.lstrip(b"\0") if n_members else data  # padding, as gzip itself skips it
                if not data:
                    break
                decoder = zlib.decompressobj(wbits=31)
            try:
                out = decoder.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise _corrupt("gzip", error) from None
            if out:
                yield out
            if decoder.eof:
                data, decoder, n_members = decoder.unused_data, None, n_members + 1
                continue
            data = decoder.unconsumed_tail
            if not data and len(out) < CHUNK_BYTES:
                break
    if decoder is not None:
        raise _cut_short("gzip")


def _unzstd(stored: Iterator[bytes]) -> Iterator[bytes]:
    decoder = None
    for data in stored:
        while data or decoder is not None:
            decoder = decoder or zstd.ZstdDecompressor()
            try:
                out = decoder.decompress(data, CHUNK_BYTES)
            except zstd.ZstdError as error:
                raise _corrupt("zstandard", error) from None
            if out:
                yield out
            data = b""
            if decoder.eof:
                data, decoder = decoder.unused_data, None
            elif decoder.needs_input:
                break
    if decoder is not None:
        raise _cut_short("zstandard")


def _corrupt(codec: str, error: Exception) -> BrokenInputError:
    return BrokenInputError("truncated input", f"{codec} data is corrupt: {error}".rstrip("."))


def _cut_short(codec: str) -> BrokenInputError:
    return BrokenInputError("truncated input", f"{codec} data ends before its end mark")


_DECODERS = {"": _copy, "gz": _gunzip, "zst": _unzstd}


def frame_starts(path: str) -> list[int]:
    """Give the byte offset of every zstandard frame of a file, as far as frames can be told.

    Raises:
        StorageError: the file cannot be read.
    """
    file_bytes = Path(path).stat().st_size
    starts = [0]
    with (
        open_binary(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
        suppress(zstd.ZstdError),  # a frame that is cut short has no size: it ends the list
    ):
        while starts[-1] < file_bytes:
            with data[starts[-1] :] as rest:
                starts.append(starts[-1] + zstd.get_frame_size(rest))
    return starts[:-1] if starts[-1] >= file_bytes else starts
