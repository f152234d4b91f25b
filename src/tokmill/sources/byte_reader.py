"""Read slices of formats that are streams of bytes, as blocks that end where a record ends."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokmill.sources.blocks import next_block_bytes, too_large_message
from tokmill.sources.streams import (
    BrokenInputError,
    ByteStream,
    broken_off,
    skip_bytes,
    without_bom,
)
from tokmill.values import RAW_LIMIT_BYTES, RecordPlace, Reject, UnreadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.sources.blocks import Block
    from tokmill.sources.formats import Reading
    from tokmill.sources.slices import Slice, SourceFile

    ChangeChunks = Callable[[Iterator[bytes]], Iterator[bytes]]

_NEWLINE = ord("\n")
_MOST_FILES = 64
"""Number of files whose lines before slices are kept; parts come in the order of the files."""


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
        n_newlines = _count_newlines(chunk)
        self.n_newlines += n_newlines
        return Cuts(chunk.find(b"\n") + 1, last, n_newlines)

    def unfinished(self) -> str:
        """Return '': the last line may have no newline."""
        return ""


def _count_newlines(chunk: bytes) -> int:
    # four times as fast as bytes.count(), which looks at one byte at a time
    return int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE))


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Records as bytes. `origin` shifts places counted in `data` to the slice.

    `after`: rejects right after `data`, with places in the slice. `unread`: input breaks off after
    them; only the last block has it.
    """

    data: bytes
    origin: RecordPlace
    after: tuple[Reject, ...] = ()
    unread: UnreadInput | None = None


class ByteReader:
    """Reads the records of a slice as blocks of about `batch_bytes`.

    A slice owns the lines that start after its first byte, up to and including its end; the first
    slice also owns the line at the start of the file. So each line belongs to one slice, and no
    slice needs the byte before it, which is expensive to read in compressed data.

    `splitter` finds the ends of records. `make_block(raw, input_bytes)` makes a block from bytes
    and the number of stored bytes read for it. `skip`: bytes at the start of the slice that are no
    record. `rewrite` may change chunks, but not the offset of any byte. `convert` may change all
    bytes of a file; offsets count the changed ones.
    """

    def __init__(
        self,
        slice_: Slice,
        reading: Reading,
        splitter: Splitter,
        make_block: Callable[[RawBlock, int], Block],
        *,
        skip: int = 0,
        rewrite: ChangeChunks | None = None,
        convert: ChangeChunks | None = None,
    ) -> None:
        self._slice = slice_
        self._reading = reading
        self._splitter = splitter
        self._make_block = make_block
        self._skip = skip
        self._rewrite = rewrite
        self._length = (0, 0)
        self._is_complete = True  # until input breaks off
        self._broke_beyond = False
        self._stream = ByteStream(
            slice_.file.path,
            slice_.file.compression,
            slice_.start,
            slice_.stop,
            opened=reading.opened,
            convert=convert,
            max_ratio=reading.settings.max_decompression_ratio,
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order; to be called once."""
        chunks, origin = self._owned()
        if self._rewrite is not None:
            chunks = self._rewrite(chunks)
        batch_bytes, limit = self._reading.batch_bytes, self._reading.settings.max_record_bytes
        cutter = BlockCutter(self._splitter, batch_bytes, limit, origin, self._left_bytes)
        counted = 0
        for raw in cutter.blocks(chunks):
            consumed = self._stream.consumed
            if self._slice.n_bytes:  # bytes read beyond the slice are counted by the next slice
                consumed = min(consumed, self._slice.n_bytes)
            whole = raw if raw.unread is None else self._with_unread_bytes(raw, raw.unread)
            yield self._make_block(whole, consumed - counted)
            counted = consumed
        if isinstance(self._splitter, LineSplitter):
            self._length = origin.line + self._splitter.n_newlines, self._stream.decompressed
            if self._is_complete and self._slice.stop >= 0:
                LINES_BEFORE.learn(self._slice, RecordPlace(*self._length))

    def _left_bytes(self) -> int | None:
        """Return the bytes of the slice that are not read yet; None if they are not known."""
        if self._slice.file.compression or not self._slice.n_bytes:
            return None
        return max(0, self._slice.n_bytes - self._stream.consumed)

    def _owned(self) -> tuple[Iterator[bytes], RecordPlace]:
        """Return the chunks of this slice's records, and the place before its first record."""
        inside = self._stream.inside()
        if self._skip:
            return skip_bytes(inside, self._skip), RecordPlace(0, self._skip)
        if not self._slice.start:
            n_bom, own = without_bom(chain(inside, self._beyond()))
            return own, RecordPlace(0, n_bom)
        offset = 0
        try:
            for chunk in inside:
                stop = chunk.find(b"\n") + 1
                if stop:
                    head = (chunk[stop:],) if chunk[stop:] else ()
                    return chain(head, inside, self._beyond()), RecordPlace(0, offset + stop)
                offset += len(chunk)
        except BrokenInputError as error:
            return broken_off(error), RecordPlace(0, offset)
        return iter(()), RecordPlace(0, offset)

    def _beyond(self) -> Iterator[bytes]:
        """Yield the chunks after the slice, up to and including the first newline."""
        try:
            for chunk in self._stream.beyond():
                stop = chunk.find(b"\n") + 1
                yield chunk[:stop] if stop else chunk
                if stop:
                    return
        except BrokenInputError:
            self._broke_beyond = True
            raise

    def _with_unread_bytes(self, raw: RawBlock, unread: UnreadInput) -> RawBlock:
        """Return the block where input breaks off, with the stored bytes that are not read."""
        self._is_complete = False
        if self._broke_beyond and not unread.text_bytes:
            return replace(raw, unread=None)  # the next slice owns these bytes and reports them
        if unread.stored_byte < 0:
            return raw
        stop = self._slice.file.n_bytes if self._slice.stop < 0 else self._slice.stop
        stored_bytes = max(0, stop - unread.stored_byte)
        return replace(raw, unread=replace(unread, stored_bytes=stored_bytes))

    def origin(self) -> RecordPlace:
        """Return the lines before this slice's first, and the bytes before the slice."""
        return LINES_BEFORE.find(self._slice) if self._slice.start else RecordPlace(0, 0)

    def length(self) -> tuple[int, int]:
        """Return the lines and decompressed bytes of the slice, once all blocks were yielded."""
        return self._length

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class BlockCutter:
    """Collects chunks and yields them as blocks of about `batch_bytes`.

    A longer record makes a longer block. A record over `max_record_bytes` is skipped without being
    kept. `origin`: the place before the first record. `left_bytes`: returns how much is left to
    read, see `next_block_bytes`. Memory: a block, a chunk, and the start of the next block.

    It holds `n_bytes`: `whole` bytes are `n_whole` complete records, the rest starts another one.
    """

    def __init__(
        self,
        splitter: Splitter,
        batch_bytes: int,
        max_record_bytes: int,
        origin: RecordPlace,
        left_bytes: Callable[[], int | None] = lambda: None,
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

    def blocks(self, chunks: Iterator[bytes]) -> Iterator[RawBlock]:
        """Yield the blocks; if input breaks off, the last one has no records, but `unread`."""
        size = self.full_batch_bytes
        try:
            for chunk in chunks:
                for start in range(0, len(chunk), size):
                    yield from self._add(chunk[start : start + size])
            broken = self.splitter.unfinished()
            error = BrokenInputError("open quote", broken) if broken else None
        except BrokenInputError as caught:
            error = caught
        if error is None and self.skipped:
            yield self._too_large(self.skipped)
        if error is None:
            self.whole = self.n_bytes
        if self.whole:
            yield self._block()
        if error is not None:
            yield self._unread(error)

    def _add(self, chunk: bytes) -> Iterator[RawBlock]:
        """Add a chunk; yield what became whole, and what became too large."""
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

    def _block(self) -> RawBlock:
        """Return the whole records as a block, and keep the rest."""
        index, n_bytes = 0, self.whole
        while n_bytes > len(self.chunks[index]):
            n_bytes -= len(self.chunks[index])
            index += 1
        last = self.chunks[index]
        # All are `bytes`, not views: so joining a large block releases the GIL.
        data = b"".join([*self.chunks[:index], last[:n_bytes]])
        tail = [last[n_bytes:]] if n_bytes < len(last) else []
        tail += self.chunks[index + 1 :]
        block = RawBlock(data, self.origin)
        self.origin = RecordPlace(self.n_whole, len(data)).shifted(self.origin)
        self._replace(tail)
        self.whole = self.n_whole = 0
        self.batch_bytes = next_block_bytes(
            self.batch_bytes, self.full_batch_bytes, self.left_bytes()
        )
        return block

    def _too_large(self, n_bytes: int) -> RawBlock:
        """Return the record that was skipped as a reject after no records."""
        message = too_large_message(n_bytes, self.max_record_bytes, self.splitter.advice)
        place = RecordPlace(1, 0).shifted(self.origin)
        reject = Reject(place, "record too large", message, self._head()[:n_bytes])
        block = RawBlock(b"", self.origin, (reject,))
        self.origin = RecordPlace(1, self.skipped).shifted(self.origin)
        self._replace([])
        self.skipped = 0
        return block

    def _unread(self, error: BrokenInputError) -> RawBlock:
        place = RecordPlace(1, 0).shifted(self.origin)
        n_bytes = self.skipped or self.n_bytes
        unread = UnreadInput(place, error.reason, error.message, n_bytes, error.stored_byte)
        return RawBlock(b"", self.origin, unread=unread)

    def _hold(self, chunk: bytes) -> None:
        if chunk:
            self.chunks.append(chunk)
            self.n_bytes += len(chunk)

    def _replace(self, chunks: list[bytes]) -> None:
        self.chunks, self.n_bytes = chunks, sum(map(len, chunks))

    def _head(self) -> bytes:
        """Return the first `RAW_LIMIT_BYTES` bytes held."""
        return b"".join(chunk[:RAW_LIMIT_BYTES] for chunk in self.chunks)[:RAW_LIMIT_BYTES]


class _Counted(NamedTuple):
    """`place`: lines and bytes before a slice. `is_broken`: input breaks off before the slice."""

    place: RecordPlace
    is_broken: bool = False


class LinesBefore:
    """Counts the lines and bytes of a file before its slices, and keeps the counts.

    Only a report of a place needs them. A process reads each byte of a file at most once to count
    lines, however many places it reports. A count depends on the file alone, not on earlier counts
    or on where slices end.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: dict[SourceFile, dict[int, _Counted]] = {}

    def find(self, slice_: Slice) -> RecordPlace:
        """Return the lines and bytes before a slice.

        Cost: reads the file from the nearest earlier slice whose count is known.
        """
        with self._lock:
            counts = self._counts_of(slice_.file)
            if slice_.start not in counts:
                last = max(start for start in counts if start < slice_.start)
                counts[slice_.start] = _count(slice_.file, last, slice_.start, counts[last])
            return counts[slice_.start].place

    def learn(self, slice_: Slice, length: RecordPlace) -> None:
        """Record the lines and decompressed bytes of a slice that was read to its end."""
        with self._lock:
            counts = self._counts_of(slice_.file)
            before = counts.get(slice_.start)
            if before is not None and not before.is_broken:
                counts[slice_.stop] = _Counted(length.shifted(before.place))

    def _counts_of(self, file: SourceFile) -> dict[int, _Counted]:
        """Return the counts of a file by the start of a slice; forget the oldest file."""
        counts = self._files.pop(file, None) or {0: _Counted(RecordPlace(0, 0))}
        self._files[file] = counts
        if len(self._files) > _MOST_FILES:
            del self._files[next(iter(self._files))]
        return counts


def _count(file: SourceFile, start: int, stop: int, before: _Counted) -> _Counted:
    """Return the lines and bytes before `stop`, from those before `start`."""
    if before.is_broken:
        return before
    n_lines, is_broken = 0 if start else 1, False  # also count the line that continues at `stop`
    with closing(ByteStream(file.path, file.compression, start, stop)) as stream:
        try:
            for chunk in stream.inside():
                n_lines += _count_newlines(chunk)
        except BrokenInputError:  # reported by the slice that owns it
            is_broken = True
    return _Counted(RecordPlace(n_lines, stream.decompressed).shifted(before.place), is_broken)


LINES_BEFORE = LinesBefore()
"""The counts of this process."""
