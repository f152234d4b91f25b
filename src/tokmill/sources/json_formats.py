"""The formats that are JSON: lines, one array, one object; and files that become JSON Lines."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.extensions import one_line
from tokmill.sources.byte_reader import ByteFormat, ByteReader
from tokmill.sources.formats import Format
from tokmill.sources.json_array import array_lines
from tokmill.sources.json_lines import JsonBlock
from tokmill.sources.raw_blocks import LineSplitter
from tokmill.sources.streams import CHUNK_BYTES, BrokenInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from tokmill.sources.blocks import Block
    from tokmill.sources.byte_reader import ChangeChunks
    from tokmill.sources.formats import Reading
    from tokmill.sources.raw_blocks import RawBlock
    from tokmill.sources.slices import Slice

    Read = Callable[[BinaryIO], Iterator[Mapping[str, Any]]]


def _opener(
    rewrite: ChangeChunks | None = None, convert: ChangeChunks | None = None
) -> Callable[[Slice, Reading], ByteReader]:
    def open_lines(slice_: Slice, reading: Reading) -> ByteReader:
        limit = reading.settings.max_record_bytes

        def make_block(raw: RawBlock, input_bytes: int) -> Block:
            return JsonBlock(raw, reading.schema, limit, input_bytes, reading.samples_head)

        lines = ByteFormat(LineSplitter(), make_block, rewrite, convert)
        return ByteReader(
            slice_,
            lines,
            reading.batch_bytes,
            limit,
            opened=reading.opened,
            max_ratio=reading.settings.max_decompression_ratio,
        )

    return open_lines


def _object_as_line(chunks: Iterator[bytes]) -> Iterator[bytes]:
    # JSON has no line break inside a string, so all of them stand between tokens.
    return (chunk.replace(b"\n", b" ") for chunk in chunks)


JSONL = Format(_opener(), (".jsonl", ".ndjson"), has_byte_ranges=True)
ARRAY = Format(_opener(array_lines))
OBJECT = Format(_opener(_object_as_line))


def records_format(read: Read, *suffixes: str) -> Format:
    """Return a format of files that a function reads as records, one slice for each file.

    `read(file)` yields each record as a dict of JSON values; the file is open for reading bytes,
    not compressed, and cannot seek. It raises where the file is broken or cut off: the rest is
    unread input then. Places count bytes of the JSON Lines that the records become, so `read` must
    yield the same for the same file.
    """
    convert = partial(_records_as_lines, read=read)
    return Format(_opener(convert=convert), suffixes, is_utf8=False)


def _records_as_lines(chunks: Iterator[bytes], read: Read) -> Iterator[bytes]:
    raw = _ChunkFile(chunks)
    file = io.BufferedReader(raw, CHUNK_BYTES)
    held: list[bytes] = []
    n_held = n_read = 0
    try:
        for record in read(file):
            if not isinstance(record, Mapping):
                raise UsageError(
                    f"{read.__module__}:{read.__qualname__}: expected dicts of JSON values, one "
                    f"for each record; found {type(record).__name__}"
                )
            line = json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")
            held.append(line + b"\n")
            n_held += len(line) + 1
            n_read = file.tell()
            if n_held >= CHUNK_BYTES:
                yield b"".join(held)
                held, n_held = [], 0
    except (UsageError, GeneratorExit):
        raise
    except Exception as error:  # whatever a reader raises for a broken file
        yield b"".join(held)
        if raw.error is not None:
            raise raw.error from None
        lost = raw.n_bytes - n_read  # written as blanks, without a newline
        yield from (b" " * min(CHUNK_BYTES, lost - i) for i in range(0, lost, CHUNK_BYTES))
        yield from (b" " * len(chunk) for chunk in chunks)
        message = f"{read.__module__}:{read.__qualname__} stopped: {one_line(error)}"
        raise BrokenInputError("broken records", message) from error
    yield b"".join(held)


class _ChunkFile(io.RawIOBase):
    """Chunks of bytes as a file.

    `n_bytes`: all chunks taken so far. `error`: raised by reading them, even if a reader hides it.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.error: Exception | None = None
        self.n_bytes = 0
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.n_bytes - len(self._rest)

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._rest:
                self._rest = next(self._chunks)
                self.n_bytes += len(self._rest)
        except StopIteration:
            return 0
        except Exception as error:
            self.error = error
            raise
        n_bytes = min(len(buffer), len(self._rest))
        buffer[:n_bytes] = self._rest[:n_bytes]
        self._rest = self._rest[n_bytes:]
        return n_bytes
