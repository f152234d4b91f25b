"""Reads a slice of a format that is bytes: lines, a JSON array, CSV, plain text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Self

from tokmill.sources.line_counts import LINE_COUNTS
from tokmill.sources.raw_blocks import (
    LineSplitter,
    Splitter,
    after_first_line,
    cut_blocks,
    through_first_line,
)
from tokmill.sources.streams import BrokenInputError, ByteStream, without_bom
from tokmill.values import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from tokmill.sources.blocks import Block
    from tokmill.sources.raw_blocks import RawBlock
    from tokmill.sources.slices import Slice

_FIRST = Place(1, 0)


@dataclass(frozen=True, slots=True)
class ByteFormat:
    """How a format's bytes become blocks.

    `rewrite` may turn the chunks into others of the same offsets; it is told whether they begin
    inside the file. `make_block` gets the bytes and the input bytes read for them.
    """

    splitter: Splitter
    make_block: Callable[[RawBlock, int], Block]
    rewrite: Callable[[Iterator[bytes], bool], Iterator[bytes]] | None = None


class ByteReader:
    """Reads the records of a slice as blocks of about `batch_bytes`.

    A slice that does not begin its file leaves the line that runs into it, and the line that begins
    exactly with it, to the slice before: so nobody has to look at the byte before, which in
    compressed data is dear. A slice that does not end its file reads on to the next newline. Cut
    anywhere, each line is read by one slice.
    """

    def __init__(
        self,
        piece: Slice,
        data_format: ByteFormat,
        batch_bytes: int,
        max_record_bytes: int,
        start: Place | None = None,
        *,
        opened: BinaryIO | None = None,
    ) -> None:
        self._slice = piece
        self._format = data_format
        self._batch_bytes = batch_bytes
        self._max_record_bytes = max_record_bytes
        self._start = start
        self._origin: Place | None = None
        self._is_whole = True  # nothing broke off so far
        self._broke_beyond = False
        file = piece.file
        self._stream = ByteStream(
            file.path, file.compression, piece.start, piece.stop, opened=opened
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order; to be called once."""
        chunks, origin = self._owned()
        if self._format.rewrite is not None:
            resumed = self._start is not None and self._start.byte_offset > 0
            chunks = self._format.rewrite(chunks, resumed)
        told = 0
        cut = (self._batch_bytes, self._max_record_bytes, origin)
        for raw in cut_blocks(chunks, self._format.splitter, *cut):
            consumed = self._stream.consumed
            if self._slice.n_bytes:  # what is read beyond the slice is the next one's
                consumed = min(consumed, self._slice.n_bytes)
            yield self._format.make_block(self._told(raw), consumed - told)
            told = consumed
        if self._is_whole:
            self._learn(origin)

    def _owned(self) -> tuple[Iterator[bytes], Place]:
        """Return the bytes of this slice's records, and the place before the first of them."""
        start = self._start or _FIRST
        inside, beyond = self._stream.inside(start.byte_offset), self._beyond()
        origin = Place(start.line - 1, start.byte_offset)
        if start.byte_offset:
            return chain(inside, beyond), origin
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

    def _told(self, raw: RawBlock) -> RawBlock:
        """Return a block that says what of the file stands behind a break, if there is one."""
        if raw.unread is None:
            return raw
        self._is_whole = False
        if self._broke_beyond and not raw.unread.text_bytes:
            return replace(raw, unread=None)  # no byte of it is this slice's: the next one says so
        if raw.unread.stored_byte < 0:
            return raw
        stop = self._slice.file.n_bytes if self._slice.stop < 0 else self._slice.stop
        stored_bytes = max(0, stop - raw.unread.stored_byte)
        return replace(raw, unread=replace(raw.unread, stored_bytes=stored_bytes))

    def _learn(self, origin: Place) -> None:
        """Keep where the next slice begins, since this one has been read to its end."""
        splitter = self._format.splitter
        if self._slice.stop >= 0 and isinstance(splitter, LineSplitter):
            n_lines = origin.line + splitter.n_newlines
            LINE_COUNTS.learn(self._slice, n_lines, self._stream.unpacked)

    def origin(self) -> Place:
        """Return the lines before this slice's first, and the bytes before the slice."""
        if self._origin is None:
            self._origin = LINE_COUNTS.find(self._slice) if self._slice.start else Place(0, 0)
        return self._origin

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> Self:
        """Give the reader itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""
        self.close()
