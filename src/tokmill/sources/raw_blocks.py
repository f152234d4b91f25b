"""Split a stream of bytes into blocks that end where a record ends, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokmill.sources.streams import BrokenInputError, broken_off
from tokmill.values import RAW_LIMIT_BYTES, Place, Reject, UnreadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_LEAST_BYTES = 256 << 10
_NEWLINE = ord("\n")


class Cuts(NamedTuple):
    """Where records end in a chunk: just after the first and the last end mark; 0 if none."""

    first: int
    last: int
    n_records: int


class Splitter(Protocol):
    """Finds the ends of records in a stream that comes in chunks."""

    mark_bytes: int
    """Length of an end mark; it does not count in the size of a record."""

    advice: str
    """Advice at the end of the message about a record that is too large; may be empty."""

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk; a mark is in the chunk of its last byte."""

    def unfinished(self) -> str:
        """Return why the stream must not end here, or '' if it may."""


class LineSplitter:
    """A record ends at a newline or at the end of the stream; `n_newlines` counts newlines."""

    mark_bytes = 1
    advice = ""

    def __init__(self) -> None:
        self.n_newlines = 0

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk."""
        last = chunk.rfind(b"\n") + 1
        if not last:
            return Cuts(0, 0, 0)
        n_newlines = count_newlines(chunk)
        self.n_newlines += n_newlines
        return Cuts(chunk.find(b"\n") + 1, last, n_newlines)

    def unfinished(self) -> str:
        """Return '': the last line may have no newline."""
        return ""


def count_newlines(chunk: bytes) -> int:
    """Return the number of newlines in a chunk."""
    # four times as fast as bytes.count(), which looks at one byte at a time
    return int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE))


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Records as bytes. `origin` shifts places counted in `data` to the slice.

    `after`: rejects right after `data`, with places in the slice. `unread`: input breaks off after
    them; only the last block has it.
    """

    data: bytes
    origin: Place
    after: tuple[Reject, ...] = ()
    unread: UnreadInput | None = None


def next_block_bytes(last_bytes: int, batch_bytes: int, left_bytes: int | None = None) -> int:
    """Return the size of the block after one of `last_bytes`, 0 for the first block of a slice.

    The first blocks are smaller, so that all threads have work soon and a wrong file is noticed
    early. The last ones are smaller, so that threads end at nearly the same time: a block is at
    most half of what is left, if that is known. The size of blocks changes no record.
    """
    most = batch_bytes if left_bytes is None else min(batch_bytes, left_bytes // 2)
    return min(batch_bytes, max(_LEAST_BYTES, min(2 * last_bytes, most)))


def split_blocks(
    chunks: Iterator[bytes],
    splitter: Splitter,
    batch_bytes: int,
    max_record_bytes: int,
    origin: Place,
    left_bytes: Callable[[], int | None] = lambda: None,
) -> Iterator[RawBlock]:
    """Yield blocks of about `batch_bytes`; a longer record makes a longer block.

    A record over `max_record_bytes` is skipped without being kept. If input breaks off, the last
    block has no records, but `unread`. `left_bytes`: returns how much is left to read, see
    `next_block_bytes`. Memory: a block, a chunk, and the start of the next block.
    """
    cutter = _Cutter(splitter, batch_bytes, max_record_bytes, origin, left_bytes)
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
    """Collects chunks and yields them as blocks.

    It holds `n_bytes`: `whole` bytes are `n_whole` complete records, the rest starts another one.
    """

    def __init__(
        self,
        splitter: Splitter,
        batch_bytes: int,
        max_record_bytes: int,
        origin: Place,
        left_bytes: Callable[[], int | None],
    ) -> None:
        self.splitter = splitter
        self.batch_bytes = next_block_bytes(0, batch_bytes)
        self.full_batch_bytes = batch_bytes
        self.left_bytes = left_bytes
        self.max_record_bytes = max_record_bytes
        self.origin = origin
        self.chunks: list[bytes] = []
        self.n_bytes = 0
        self.whole = 0
        self.n_whole = 0
        self.skipped = 0  # bytes of a record that is too large

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
        # The last bytes may be the start of an end mark, and no part of the record.
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
        self.batch_bytes = next_block_bytes(
            self.batch_bytes, self.full_batch_bytes, self.left_bytes()
        )
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
        """Return the first `RAW_LIMIT_BYTES` bytes held."""
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
    """Return the first `n_bytes` of the chunks as one, and the other chunks."""
    index = 0
    while n_bytes > len(chunks[index]):
        n_bytes -= len(chunks[index])
        index += 1
    last = chunks[index]
    rest = [last[n_bytes:]] if n_bytes < len(last) else []
    # All are `bytes`, not views: so joining a large block releases the GIL.
    return b"".join([*chunks[:index], last[:n_bytes]]), [*rest, *chunks[index + 1 :]]


def too_large_message(n_bytes: int, max_record_bytes: int, advice: str = "") -> str:
    """Return the message for a record that is over the limit."""
    return f"{n_bytes} bytes, over max_record_bytes = {max_record_bytes}{advice}"


def after_first_line(chunks: Iterator[bytes]) -> tuple[int, Iterator[bytes] | None]:
    """Return the offset after the first newline, and the chunks from there; None without newline.

    If input breaks off before, the chunks raise at once.
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
    """Yield the chunks up to and including the first newline."""
    for chunk in chunks:
        stop = chunk.find(b"\n") + 1
        if stop:
            yield chunk[:stop]
            return
        yield chunk
