"""Reads a slice of a format that is bytes: lines, a JSON array, CSV, plain text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Self

from tokmill.batch import Place
from tokmill.sources.lines import Splitter, after_first_line, cut_blocks, through_first_line
from tokmill.sources.streams import BrokenInputError, ByteStream, without_bom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from tokmill.sources.blocks import Block
    from tokmill.sources.lines import RawBlock
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
        file = piece.file
        self._stream = ByteStream(
            file.path, file.compression, piece.start, piece.stop, opened=opened
        )

    def blocks(self) -> Iterator[Block]:
        """Give the blocks in order; to be called once."""
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
            yield self._format.make_block(raw, consumed - told)
            told = consumed

    def _owned(self) -> tuple[Iterator[bytes], Place]:
        """Give the bytes of this slice's records, and the place before the first of them."""
        start = self._start or _FIRST
        inside = self._stream.inside(start.byte_offset)
        beyond = through_first_line(self._stream.beyond())
        origin = Place(start.line - 1, start.byte_offset)
        if start.byte_offset:
            return chain(inside, beyond), origin
        if self._slice.start:
            n_skipped, rest = after_first_line(inside)
            own = chain(rest, beyond) if rest is not None else iter(())
            return own, Place(0, n_skipped)
        n_bom, own = without_bom(chain(inside, beyond))
        return own, Place(0, n_bom)

    def origin(self) -> Place:
        """Give the lines before this slice's first, and the bytes before the slice."""
        if not self._slice.start:
            return Place(0, 0)
        file = self._slice.file
        before = ByteStream(file.path, file.compression, 0, self._slice.start)
        n_lines, n_bytes = 1, 0  # the line that runs into the slice is the one before's
        try:
            for chunk in before.inside():
                n_lines += chunk.count(b"\n")
                n_bytes += len(chunk)
        except BrokenInputError:  # reported by the slice that owns it
            pass
        finally:
            before.close()
        return Place(n_lines, n_bytes)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> Self:
        """Give the reader itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""
        self.close()
