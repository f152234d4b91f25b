"""The bytes of a slice, decompressed, in bounded chunks."""

from __future__ import annotations

import sys
import weakref
import zlib
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

# Pieces handed to a decoder end at multiples of this. A decoder that finds corrupt data keeps back
# what it made of its last piece: what is lost depends neither on the settings nor on the start.
_ENCODED_BYTES = 64 << 10

_BOM = b"\xef\xbb\xbf"

_peeked: weakref.WeakKeyDictionary[BinaryIO, bytes] = weakref.WeakKeyDictionary()


class BrokenInputError(Exception):
    """The rest of a source cannot be read; becomes `UnreadInput`. Never leaves this room.

    `stored_byte`: where unpacking stopped, -1 if it is the text that is broken.
    """

    def __init__(self, reason: str, message: str, stored_byte: int = -1) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.stored_byte = stored_byte


class _CodecError(Exception):
    """Compressed data is broken; `n_left`: bytes of the last input that may not be unpacked."""

    def __init__(self, reason: str, message: str, n_left: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.n_left = n_left


class ByteStream:
    """Reads the bytes `start` to `stop` (-1: the end) of a file, and then on beyond them.

    Offsets are those of the file as stored; what is given is decompressed. `consumed` counts the
    stored bytes read, `unpacked` the decompressed bytes of the range. `opened` is read in place of
    the file, if given.
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
        self.unpacked = 0
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
            self.unpacked = skip
            skip = 0
        return _skipped(self._counted(self._decoded(self._stop)), skip)

    def beyond(self) -> Iterator[bytes]:
        """Give the chunks from the end of the range to the end of the file; raises the same."""
        return self._decoded(-1) if self._stop >= 0 else iter(())

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._path != "-":
            self._file.close()

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.unpacked += len(chunk)
            yield chunk

    def _decoded(self, stop: int) -> Iterator[bytes]:
        try:
            yield from self._decode(self._stored(stop))
            if not self._position and self._decode is not _copy:
                raise _cut_short(self._path.rpartition(".")[2])  # nothing, packed, is some bytes
        except _CodecError as error:
            stored_byte = self._position - error.n_left
            raise BrokenInputError(error.reason, str(error), stored_byte) from None

    def _stored(self, stop: int) -> Iterator[bytes]:
        while stop < 0 or self._position < stop:
            left = self._chunk_bytes - self._position % self._chunk_bytes
            chunk = self._read(left if stop < 0 else min(left, stop - self._position))
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


def broken_off(error: BrokenInputError) -> Iterator[bytes]:
    """Return chunks of which there are none: the first one asked for raises."""
    return _again(b"", error, iter(()))


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
    n_members = n_left = 0
    for data in stored:
        while data or decoder is not None:
            if decoder is None:
                data = data.lstrip(b"\0") if n_members else data  # padding, as gzip itself skips it
                if not data:
                    break
                decoder = zlib.decompressobj(wbits=31)
            n_left = len(data) or n_left
            try:
                out = decoder.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise _corrupt("gzip", error, n_left) from None
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
    n_left = 0
    for data in stored:
        while data or decoder is not None:
            decoder = decoder or zstd.ZstdDecompressor()
            n_left = len(data) or n_left
            try:
                out = decoder.decompress(data, CHUNK_BYTES)
            except zstd.ZstdError as error:
                raise _corrupt("zstandard", error, n_left) from None
            if out:
                yield out
            data = b""
            if decoder.eof:
                data, decoder = decoder.unused_data, None
            elif decoder.needs_input:
                break
    if decoder is not None:
        raise _cut_short("zstandard")


def _corrupt(codec: str, error: Exception, n_left: int) -> _CodecError:
    return _CodecError("corrupt data", f"{codec} data is corrupt: {error}".rstrip("."), n_left)


def _cut_short(codec: str) -> _CodecError:
    return _CodecError("cut off", f"{codec} data ends before its end mark: the file was cut off")


_DECODERS = {"": _copy, "gz": _gunzip, "zst": _unzstd}
