"""Read slices of formats that are streams of bytes, as blocks that end where a record ends."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokmill.dataset.counts import SliceLength
from tokmill.sources.blocks import BytesBlock, next_block_bytes, too_large
from tokmill.sources.streams import BrokenInputError, ByteStream
from tokmill.values import RAW_LIMIT_BYTES, RecordPlace, Reject, UnreadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.sources.blocks import Reading
    from tokmill.sources.slices import Slice, SourceFile
    from tokmill.values import Records

    ChangeChunks = Callable[[Iterator[bytes]], Iterator[bytes]]

_NEWLINE = ord("\n")


class Cuts(NamedTuple):
    """Where records end in a chunk: just after the first and the last end mark; 0 if none."""

    first: int
    last: int
    n_records: int


class Splitter(Protocol):
    """Finds the ends of records in a stream that comes in chunks.

    `mark_bytes`: length of an end mark; it does not count in the size of a record. `advice`: at the
    end of the message about a record that is too large; may be empty.
    """

    mark_bytes: int
    advice: str

    @property
    def unfinished(self) -> str:
        """Return why the stream must not end here, or '' if it may."""

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk; a mark is in the chunk of its last byte."""

    def cut_off(self, record: bytes) -> str:
        """Return why a record without an end mark, at the end of the stream, was cut off, or ''."""


class LineSplitter:
    """A record, a JSON object, ends at a newline or at the end of the stream."""

    mark_bytes = 1
    advice = unfinished = ""

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk."""
        last = chunk.rfind(b"\n") + 1
        return Cuts(chunk.find(b"\n") + 1, last, _count_newlines(chunk) if last else 0)

    def cut_off(self, record: bytes) -> str:
        """Return why the last record was cut off: an object begins and does not end."""
        # Bad bytes alone make a whole record a reject.
        text = record.decode(errors="replace").strip()
        if not text.startswith("{"):
            return ""
        try:
            json.loads(text)
        except RecursionError:
            return ""
        except ValueError as error:
            is_closed = text.endswith("}")
            lacks_more = isinstance(error, json.JSONDecodeError) and error.pos >= len(text)
            if lacks_more or not is_closed:
                return "the last record was cut off: a JSON object without its end"
        return ""


def _count_newlines(chunk: bytes) -> int:
    # four times as fast as bytes.count(), which looks at one byte at a time
    return int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE))


class ByteReader:
    """Reads the records of a slice as blocks of about `batch_bytes`.

    A slice owns the lines that start after its first byte, up to and including its end; the first
    slice also owns the line at the start of the file. So each line belongs to one slice, and no
    slice needs the byte before it, which is expensive to read in compressed data.

    A longer record makes a longer block. A record over `max_record_bytes` is skipped without being
    kept. Memory: a block, a chunk, and the start of the next block.

    `splitter` finds the ends of records, `parser` parses a block on a thread. `skip`: bytes at the
    start of the slice, after a byte order mark, that are no record. `convert` may change all bytes
    of a file; offsets count the changed ones.
    """

    def __init__(
        self,
        slice_: Slice,
        reading: Reading,
        splitter: Splitter,
        parser: Callable[[BytesBlock], Records],
        *,
        skip: int = 0,
        convert: ChangeChunks | None = None,
    ) -> None:
        self._slice = slice_
        self._splitter = splitter
        self._parser = parser
        self._reading = reading
        self._stream = ByteStream(
            slice_.file.path,
            slice_.file.compression,
            slice_.start,
            slice_.stop,
            skip=skip,
            opened=reading.opened,
            convert=convert,
            max_ratio=reading.settings.max_decompression_ratio,
        )
        self._broke_beyond = False
        self._counted_bytes = 0  # stored bytes that blocks were made from
        self._place = RecordPlace(0, 0)  # before the bytes that are held
        self._block_bytes = next_block_bytes(0, reading.batch_bytes)
        # What is held: `_n_whole` records of `_whole_bytes`, and the start of another one.
        self._held: list[bytes] = []
        self._held_bytes = self._whole_bytes = self._n_whole = 0
        self._skipped_bytes = 0  # of a record that is too large, of which only the head is held

    def blocks(self) -> Iterator[BytesBlock]:
        """Yield the blocks in order; where input breaks off, the last one has only `unread`.

        To be called once.
        """
        broken = None
        try:
            for chunk in self._owned():
                for start in range(0, len(chunk), self._reading.batch_bytes):
                    yield from self._add(chunk[start : start + self._reading.batch_bytes])
            self._check_end()
        except BrokenInputError as error:
            broken = error
        if broken is None and self._skipped_bytes:
            yield self._too_large(0)
        elif broken is None:
            self._whole_bytes = self._held_bytes
        if self._whole_bytes:
            yield self._whole_records()
        if broken is not None:
            yield self._made(b"", self._place, unread=self._unread(broken))

    def _check_end(self) -> None:
        """Check that the stream may end here, and that its last record was not cut off.

        Raises:
            BrokenInputError: it may not, or the record was.
        """
        if why := self._splitter.unfinished:
            raise BrokenInputError("open quote", why)
        if self._skipped_bytes:  # too large, whether it was cut off or not
            return
        record = b"".join(self._held)[self._whole_bytes :]
        if why := self._splitter.cut_off(record):
            raise BrokenInputError("cut off", why)

    def _owned(self) -> Iterator[bytes]:
        """Yield the chunks of this slice's records, and set the place before the first."""
        inside = self._stream.inside()
        if self._slice.start:
            for chunk in inside:
                stop = chunk.find(b"\n") + 1
                self._place = RecordPlace(0, self._place.byte_offset + (stop or len(chunk)))
                if stop:
                    yield chunk[stop:]
                    break
            else:
                return
        else:
            try:
                head = next(inside, b"")
            finally:  # also where input breaks behind what is left out
                self._place = RecordPlace(0, self._stream.n_left_out)
            yield head
        yield from inside
        try:
            for chunk in self._stream.beyond():  # up to and including the first newline
                stop = chunk.find(b"\n") + 1
                yield chunk[:stop] if stop else chunk
                if stop:
                    return
        except BrokenInputError:
            self._broke_beyond = True
            raise

    def _add(self, chunk: bytes) -> Iterator[BytesBlock]:
        """Add a chunk; yield what became whole, and what became too large."""
        cuts = self._splitter.feed(chunk)
        if self._skipped_bytes:
            stop = cuts.first or len(chunk)
            self._skipped_bytes += stop
            self._held.append(chunk[: min(stop, RAW_LIMIT_BYTES)])
            self._held = [self._head()]
            if not cuts.first:
                return
            yield self._too_large(self._splitter.mark_bytes)
            chunk = chunk[stop:]
            cuts = Cuts(0, cuts.last - stop, cuts.n_records - 1)
        if cuts.last:
            self._whole_bytes = self._held_bytes + cuts.last
            self._n_whole += cuts.n_records
        self._held.append(chunk)
        self._held_bytes += len(chunk)
        # The last bytes may be the start of an end mark, and no part of the record.
        n_bytes = self._held_bytes - self._whole_bytes - (self._splitter.mark_bytes - 1)
        is_too_large = n_bytes > self._reading.settings.max_record_bytes
        if self._whole_bytes and (is_too_large or self._held_bytes >= self._block_bytes):
            yield self._whole_records()
        if is_too_large:
            self._held, self._skipped_bytes, self._held_bytes = [self._head()], self._held_bytes, 0

    def _whole_records(self) -> BytesBlock:
        """Return the whole records as a block."""
        data, origin = b"".join(self._held), self._place
        self._place = RecordPlace(self._n_whole, self._whole_bytes).shifted(origin)
        self._held = [data[self._whole_bytes :]]
        data = data[: self._whole_bytes]
        self._held_bytes -= self._whole_bytes
        self._whole_bytes = self._n_whole = 0
        left_bytes = None
        if self._slice.n_bytes and not self._slice.file.compression:
            left_bytes = max(0, self._slice.n_bytes - self._stream.consumed)
        self._block_bytes = next_block_bytes(
            self._block_bytes, self._reading.batch_bytes, left_bytes
        )
        return self._made(data, origin)

    def _too_large(self, mark_bytes: int) -> BytesBlock:
        """Return the record that was skipped, with its end mark, as a reject after no records."""
        origin, n_bytes = self._place, self._skipped_bytes - mark_bytes
        limits = self._reading.settings.max_record_bytes, self._splitter.advice
        (why,) = too_large(np.array([n_bytes]), *limits).values()
        reject = Reject(RecordPlace(1, 0).shifted(origin), *why, self._head()[:n_bytes])
        self._place = RecordPlace(1, self._skipped_bytes).shifted(origin)
        self._held, self._skipped_bytes = [], 0
        return self._made(b"", origin, after=(reject,))

    def _head(self) -> bytes:
        """Return the first `RAW_LIMIT_BYTES` bytes of what is held."""
        return b"".join(chunk[:RAW_LIMIT_BYTES] for chunk in self._held)[:RAW_LIMIT_BYTES]

    def _unread(self, error: BrokenInputError) -> UnreadInput | None:
        """Return where input breaks off; None if the next slice owns the break and reports it."""
        n_bytes = self._skipped_bytes or self._held_bytes
        if self._broke_beyond and not n_bytes:
            return None
        stored_bytes = 0
        if error.stored_byte >= 0:
            stop = self._slice.file.n_bytes if self._slice.stop < 0 else self._slice.stop
            stored_bytes = max(0, stop - error.stored_byte)
        place = RecordPlace(1, 0).shifted(self._place)
        return UnreadInput(
            place, error.reason, error.message, n_bytes, error.stored_byte, stored_bytes
        )

    def _made(
        self,
        data: bytes,
        origin: RecordPlace,
        after: tuple[Reject, ...] = (),
        unread: UnreadInput | None = None,
    ) -> BytesBlock:
        """Return a block, with the stored bytes that were read since the block before."""
        consumed = self._stream.consumed
        if self._slice.n_bytes:  # bytes read beyond the slice are counted by the next slice
            consumed = min(consumed, self._slice.n_bytes)
        input_bytes = consumed - self._counted_bytes
        self._counted_bytes = consumed
        return BytesBlock(data, origin, self._reading, self._parser, input_bytes, after, unread)

    def origin(self) -> RecordPlace:
        """Return the lines before this slice's first, and the bytes before the slice."""
        return lines_before(self._slice) if self._slice.start else RecordPlace(0, 0)

    def length(self) -> SliceLength:
        """Return the lines and decompressed bytes of the slice, once all blocks were yielded."""
        return SliceLength(self._place.line, self._stream.decompressed)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


_counted: dict[SourceFile, tuple[int, RecordPlace, bool]] = {}
"""Where counting lines has come to in the last file: the byte, the place there, is it broken."""


def lines_before(slice_: Slice) -> RecordPlace:
    """Return the lines and bytes of a file before a slice of it.

    Only a report of a place needs them. A process that reports places in order reads each byte of
    a file once for it. The result depends on the file alone, not on what was counted before.
    """
    file = slice_.file
    start, place, is_broken = _counted.get(file, (0, RecordPlace(0, 0), False))
    if start > slice_.start:
        start, place, is_broken = 0, RecordPlace(0, 0), False
    if start < slice_.start and not is_broken:  # nothing can be counted behind a break
        n_lines = 0 if start else 1  # also count the line that continues at the end
        path, compression = file.path, file.compression
        with closing(ByteStream(path, compression, start, slice_.start)) as stream:
            try:
                for chunk in stream.inside():
                    n_lines += _count_newlines(chunk)
            except BrokenInputError:  # reported by the slice that owns it
                is_broken = True
        place = RecordPlace(n_lines, stream.decompressed).shifted(place)
    _counted.clear()
    _counted[file] = max(start, slice_.start), place, is_broken
    return place
