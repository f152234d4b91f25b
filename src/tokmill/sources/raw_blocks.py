"""Cuts a stream of bytes into blocks of whole records, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokmill.sources.streams import BrokenInputError, broken_off
from tokmill.values import RAW_LIMIT_BYTES, Place, Reject, UnreadInput

if TYPE_CHECKING:
    from collections.abc import Iterator


_FIRST_BATCH_BYTES = 256 << 10
_NEWLINE = ord("\n")


class Cuts(NamedTuple):
    """Where records end in a chunk: just after the first and the last end mark; 0 if none."""

    first: int
    last: int
    n_records: int


class Splitter(Protocol):
    """Finds the ends of records in a stream that comes in chunks."""

    mark_bytes: int
    """Length of an end mark; a record's size is counted without it."""

    advice: str
    """What to do about a record that is too large, to end its message; may be empty."""

    def feed(self, chunk: bytes) -> Cuts:
        """Give the cuts of the next chunk; a mark belongs to the chunk that its last byte is in."""

    def unfinished(self) -> str:
        """Say why the stream must not end here, or '' if it may."""


class LineSplitter:
    """A record ends at a newline; the end of the stream ends one too. `n_newlines`: those met."""

    mark_bytes = 1
    advice = ""

    def __init__(self) -> None:
        self.n_newlines = 0

    def feed(self, chunk: bytes) -> Cuts:
        """Return the cuts of the next chunk."""
        last = chunk.rfind(b"\n") + 1
        if not last:
            return Cuts(0, 0, 0)
        n_newlines = count_newlines(chunk)
        self.n_newlines += n_newlines
        return Cuts(chunk.find(b"\n") + 1, last, n_newlines)

    def unfinished(self) -> str:
        """Say ''."""
        return ""


def count_newlines(chunk: bytes) -> int:
    """Return the number of newlines in a chunk."""
    # bytes.count() looks at one byte at a time: this is four times as fast
    return int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE))


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Whole records as bytes. `origin` shifts places counted in `data` to the slice.

    `after`: what was refused right behind `data`, placed in the slice. `unread`: the break behind
    all that, which is the last block's.
    """

    data: bytes
    origin: Place
    after: tuple[Reject, ...] = ()
    unread: UnreadInput | None = None


def cut_blocks(
    chunks: Iterator[bytes],
    splitter: Splitter,
    batch_bytes: int,
    max_record_bytes: int,
    origin: Place,
) -> Iterator[RawBlock]:
    """Give blocks of about `batch_bytes`; only a record that is longer makes a longer one.

    A record over `max_record_bytes` is read past without being held. Input that breaks off gives
    the whole records before, then a block that says so. Memory: a block, a chunk, and the start of
    the next.
    """
    cutter = _Cutter(splitter, batch_bytes, max_record_bytes, origin)
    try:
        for chunk in chunks:
            for piece in _pieces(chunk, batch_bytes):
                yield from cutter.feed(piece)
        broken = splitter.unfinished()
        error = BrokenInputError("open quote", broken) if broken else None
    except BrokenInputError as caught:
        error = caught
    yield from cutter.finish(error)


def _pieces(chunk: bytes, n_bytes: int) -> Iterator[bytes]:
    if len(chunk) <= n_bytes:
        yield chunk
        return
    for start in range(0, len(chunk), n_bytes):
        yield chunk[start : start + n_bytes]


class _Cutter:
    """Holds `n_bytes` in chunks: `whole` of `n_whole` whole records, then the start of another.

    The first blocks are smaller, so that small files still feed several threads and a wrong file
    is noticed after little work; block sizes change no record.
    """

    def __init__(
        self, splitter: Splitter, batch_bytes: int, max_record_bytes: int, origin: Place
    ) -> None:
        self.splitter = splitter
        self.batch_bytes = min(batch_bytes, _FIRST_BATCH_BYTES)
        self.full_batch_bytes = batch_bytes
        self.max_record_bytes = max_record_bytes
        self.origin = origin
        self.chunks: list[bytes] = []
        self.n_bytes = 0
        self.whole = 0
        self.n_whole = 0
        self.skipped = 0  # bytes read past of a record that is too large

    def feed(self, chunk: bytes) -> Iterator[RawBlock]:
        cuts = self.splitter.feed(chunk)
        if self.skipped:
            room = max(0, RAW_LIMIT_BYTES - self.n_bytes)
            self._hold(chunk[: min(cuts.first or room, room)])
            self.skipped += cuts.first or len(chunk)
            if not cuts.first:
                return
            yield self._too_large(self.skipped - self.splitter.mark_bytes)
            chunk = chunk[cuts.first :]
            cuts = Cuts(1, cuts.last - cuts.first, cuts.n_records - 1)
        if cuts.last:
            self.whole = self.n_bytes + cuts.last
            self.n_whole += cuts.n_records
        self._hold(chunk)
        # An end mark may have begun in the last bytes: they may be no part of the record.
        open_bytes = self.n_bytes - self.whole - (self.splitter.mark_bytes - 1)
        too_large = open_bytes > self.max_record_bytes
        if self.whole and (too_large or self.n_bytes >= self.batch_bytes):
            yield self._block()
        if too_large:
            self.skipped = self.n_bytes
            self._replace([self._head()])

    def finish(self, error: BrokenInputError | None) -> Iterator[RawBlock]:
        if error is not None:
            if self.whole:
                yield self._block()
            yield self._unread(error)
            return
        if self.skipped:
            yield self._too_large(self.skipped)
        self.whole = self.n_bytes
        if self.whole:
            yield self._block()

    def _block(self) -> RawBlock:
        data, tail = _divided(self.chunks, self.whole)
        block = RawBlock(data, self.origin)
        self.origin = Place(self.n_whole, len(data)).shifted(self.origin)
        self._replace(tail)
        self.whole = self.n_whole = 0
        self.batch_bytes = min(2 * self.batch_bytes, self.full_batch_bytes)
        return block

    def _too_large(self, n_bytes: int) -> RawBlock:
        message = too_large_message(n_bytes, self.max_record_bytes, self.splitter.advice)
        raw = self._head()[:n_bytes]
        place = Place(1, 0).shifted(self.origin)
        reject = Reject(place, "record too large", message, raw)
        block = RawBlock(b"", self.origin, (reject,))
        self.origin = Place(1, self.skipped).shifted(self.origin)
        self._replace([])
        self.skipped = 0
        return block

    def _hold(self, chunk: bytes) -> None:
        if chunk:
            self.chunks.append(chunk)
            self.n_bytes += len(chunk)

    def _replace(self, chunks: list[bytes]) -> None:
        self.chunks, self.n_bytes = chunks, sum(map(len, chunks))

    def _head(self) -> bytes:
        """Give the first `RAW_LIMIT_BYTES` bytes held."""
        head = b""
        for chunk in self.chunks:
            if len(head) >= RAW_LIMIT_BYTES:
                break
            head += chunk[:RAW_LIMIT_BYTES]
        return head[:RAW_LIMIT_BYTES]

    def _unread(self, error: BrokenInputError) -> RawBlock:
        place = Place(1, 0).shifted(self.origin)
        n_bytes = self.skipped or self.n_bytes
        unread = UnreadInput(place, error.reason, error.message, n_bytes, error.stored_byte)
        return RawBlock(b"", self.origin, unread=unread)


def _divided(chunks: list[bytes], n_bytes: int) -> tuple[bytes, list[bytes]]:
    """Join the first `n_bytes` of the chunks; the rest stays in chunks."""
    index = 0
    while n_bytes > len(chunks[index]):
        n_bytes -= len(chunks[index])
        index += 1
    last = chunks[index]
    rest = [last[n_bytes:]] if n_bytes < len(last) else []
    return b"".join([*chunks[:index], memoryview(last)[:n_bytes]]), [*rest, *chunks[index + 1 :]]


def too_large_message(n_bytes: int, max_record_bytes: int, advice: str = "") -> str:
    """Return the message for a record of `n_bytes` that is over the limit."""
    return f"{n_bytes} bytes, over max_record_bytes = {max_record_bytes}{advice}"


def after_first_line(chunks: Iterator[bytes]) -> tuple[int, Iterator[bytes] | None]:
    """Return the offset behind the first newline, and the chunks from there; None if there is none.

    Input that breaks off before gives chunks that raise at once.
    """
    offset = 0
    try:
        for chunk in chunks:
            stop = chunk.find(b"\n") + 1
            if stop:
                return offset + stop, chain((chunk[stop:],) if chunk[stop:] else (), chunks)
            offset += len(chunk)
    except BrokenInputError as error:
        return offset, broken_off(error)
    return offset, None


def through_first_line(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Give the chunks up to and with the first newline."""
    for chunk in chunks:
        stop = chunk.find(b"\n") + 1
        if stop:
            yield chunk[:stop]
            return
        yield chunk
