"""Read slices of formats that are streams of bytes: JSON Lines, a JSON array, CSV, plain text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Self

from tokmill.sources.line_counts import LINE_COUNTS
from tokmill.sources.raw_blocks import (
    LineSplitter,
    Splitter,
    after_first_line,
    split_blocks,
    through_first_line,
)
from tokmill.sources.streams import BrokenInputError, ByteStream, skip_bytes, without_bom
from tokmill.values import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from tokmill.sources.blocks import Block
    from tokmill.sources.raw_blocks import RawBlock
    from tokmill.sources.slices import Slice

    ChangeChunks = Callable[[Iterator[bytes]], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class ByteFormat:
    """How the bytes of a format become blocks.

    `splitter` finds the ends of records. `make_block(raw, input_bytes)` makes a block from bytes
    and the number of stored bytes read for it. `rewrite` may change chunks, but not the offset of
    any byte. `convert` may change all bytes of a file; offsets count the changed ones.
    """

    splitter: Splitter
    make_block: Callable[[RawBlock, int], Block]
    rewrite: ChangeChunks | None = None
    convert: ChangeChunks | None = None


class ByteReader:
    """Reads the records of a slice as blocks of about `batch_bytes`.

    A slice owns the lines that start after its first byte, up to and including its end; the first
    slice also owns the line at the start of the file. So each line belongs to one slice, and no
    slice needs the byte before it, which is expensive to read in compressed data. `skip`: bytes at
    the start of the slice that are no record.
    """

    def __init__(
        self,
        slice_: Slice,
        data_format: ByteFormat,
        batch_bytes: int,
        max_record_bytes: int,
        *,
        skip: int = 0,
        opened: BinaryIO | None = None,
        max_ratio: int = 0,
    ) -> None:
        self._slice = slice_
        self._format = data_format
        self._batch_bytes = batch_bytes
        self._max_record_bytes = max_record_bytes
        self._skip = skip
        self._origin: Place | None = None
        self._length = (0, 0)
        self._is_complete = True  # until input breaks off
        self._broke_beyond = False
        file = slice_.file
        self._stream = ByteStream(
            file.path,
            file.compression,
            slice_.start,
            slice_.stop,
            opened=opened,
            convert=data_format.convert,
            max_ratio=max_ratio,
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order; to be called once."""
        chunks, origin = self._owned()
        if self._format.rewrite is not None:
            chunks = self._format.rewrite(chunks)
        counted = 0
        limits = (self._batch_bytes, self._max_record_bytes, origin, self._left_bytes)
        for raw in split_blocks(chunks, self._format.splitter, *limits):
            consumed = self._stream.consumed
            if self._slice.n_bytes:  # bytes read beyond the slice are counted by the next slice
                consumed = min(consumed, self._slice.n_bytes)
            yield self._format.make_block(self._with_unread_bytes(raw), consumed - counted)
            counted = consumed
        splitter = self._format.splitter
        if isinstance(splitter, LineSplitter):
            self._length = origin.line + splitter.n_newlines, self._stream.decompressed
            if self._is_complete and self._slice.stop >= 0:
                LINE_COUNTS.learn(self._slice, *self._length)

    def _left_bytes(self) -> int | None:
        """Return the bytes of the slice that are not read yet; None if they are not known."""
        if self._slice.file.compression or not self._slice.n_bytes:
            return None
        return max(0, self._slice.n_bytes - self._stream.consumed)

    def _owned(self) -> tuple[Iterator[bytes], Place]:
        """Return the chunks of this slice's records, and the place before its first record."""
        inside, beyond = self._stream.inside(), self._beyond()
        if self._skip:
            return skip_bytes(inside, self._skip), Place(0, self._skip)
        if self._slice.start:
            n_skipped, rest = after_first_line(inside)
            own = chain(rest, beyond) if rest is not None else iter(())
            return own, Place(0, n_skipped)
        n_bom, own = without_bom(chain(inside, beyond))
        return own, Place(0, n_bom)

    def _beyond(self) -> Iterator[bytes]:
        try:
            yield from through_first_line(self._stream.beyond())
        except BrokenInputError:
            self._broke_beyond = True
            raise

    def _with_unread_bytes(self, raw: RawBlock) -> RawBlock:
        """Return the block; if input breaks off there, with the stored bytes that are not read."""
        if raw.unread is None:
            return raw
        self._is_complete = False
        if self._broke_beyond and not raw.unread.text_bytes:
            return replace(raw, unread=None)  # the next slice owns these bytes and reports them
        if raw.unread.stored_byte < 0:
            return raw
        stop = self._slice.file.n_bytes if self._slice.stop < 0 else self._slice.stop
        stored_bytes = max(0, stop - raw.unread.stored_byte)
        return replace(raw, unread=replace(raw.unread, stored_bytes=stored_bytes))

    def origin(self) -> Place:
        """Return the lines before this slice's first, and the bytes before the slice."""
        if self._origin is None:
            self._origin = LINE_COUNTS.find(self._slice) if self._slice.start else Place(0, 0)
        return self._origin

    def length(self) -> tuple[int, int]:
        """Return the lines and decompressed bytes of the slice, once all blocks were yielded."""
        return self._length

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
