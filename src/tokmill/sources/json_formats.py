"""JSON Lines, and what becomes that: one array, one object, files that a function reads."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tokmill.errors import UsageError
from tokmill.extensions import one_line
from tokmill.sources.bad_text import by_row
from tokmill.sources.blocks import (
    BytesBlock,
    exact_record,
    join_records,
    json_record,
    span_records,
)
from tokmill.sources.byte_reader import ByteReader, LineSplitter
from tokmill.sources.formats import Format
from tokmill.sources.json_lines import parse_lines
from tokmill.sources.streams import CHUNK_BYTES, BrokenInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from tokmill.sources.blocks import Reading
    from tokmill.sources.byte_reader import ChangeChunks
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import Slice
    from tokmill.values import Records

    Read = Callable[[BinaryIO], Iterator[Mapping[str, Any]]]

_FIRST_BLACK = re.compile(rb"[^ \t\r\n\xef\xbb\xbf]")  # behind a byte order mark
_QUOTE, _COMMA, _NEWLINE, _RETURN = (ord(c) for c in '",\n\r')
_END = ord("]")
_OPEN, _CLOSE = ord("{"), ord("}")  # with bit 0x20 set, [ and ] look the same
_SCAN_BYTES = 128 << 10  # the work arrays of one step stay in the cache
_LEAST_WINDOW = 256
_BETWEEN = re.compile(rb"[ \t\r\n\]]*,?")  # behind a closing bracket; a comma: it was too many
_TO_LINES = bytes.maketrans(b"\r\n]", b"  \n")


def parse_blocks(blocks: Sequence[Block]) -> Records:
    """Return the records of blocks of one schema; thread safe.

    Blocks of JSON Lines are parsed in one call. Alone, a block of three lines takes 0.34 ms, among
    600 such blocks 0.02 ms (2026-11), and small files give small blocks.
    """
    lines = [b for b in blocks if isinstance(b, BytesBlock) and b.parser is _parse_block]
    if len(lines) < len(blocks):
        return join_records([block.parse() for block in blocks])
    pieces = [b.data if b is lines[-1] else b.data.removesuffix(b"\n") + b"\n" for b in lines]
    data, reading = b"".join(pieces), lines[0].reading
    settings = reading.settings
    parsed = parse_lines(
        data,
        reading.schema,
        settings.max_record_bytes,
        replaces_bad_text=settings.replaces_bad_text,
    )
    before = [0, *accumulate(map(len, pieces[:-1]))]
    spans = parsed.line_starts, parsed.line_stops
    records = span_records(
        lines,
        before,
        data,
        spans,
        parsed.batch,
        parsed.rows,
        parsed.refused,
        json_record,
        exact_record,
    )
    return replace(
        records,
        replaced=by_row(parsed.replaced, parsed.rows),
        doubtful=by_row(parsed.doubtful, parsed.rows),
    )


def _parse_block(block: BytesBlock) -> Records:
    return parse_blocks([block])


def open_lines(slice_: Slice, reading: Reading, convert: ChangeChunks | None = None) -> ByteReader:
    """Open a slice whose bytes are JSON Lines, or become that by `convert`; see `ByteReader`."""
    return ByteReader(slice_, reading, LineSplitter(), _parse_block, convert=convert)


JSONL = Format(open_lines, (".jsonl", ".ndjson"), has_byte_ranges=True)


def array_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    r"""Yield the chunks of an array as lines: one element per line, every byte at its old offset.

    Commas between elements and the closing bracket become newlines; the opening bracket and line
    breaks between tokens become blanks. So `[{"a": 1},\n {"b": 2}]` becomes ` {"a": 1}` and
    `  {"b": 2}`. JSON forbids a line break inside a string: it becomes byte 1, which the parser
    refuses, so that only one record is lost.

    Brackets are counted, not matched. A `}` too many stays in its line, which the parser refuses,
    and so does a comma behind a `]` too many: such a `]` between elements is followed by a comma or
    another one. After an extra opening bracket or a missing closing one, the rest of the stream is
    one element without an end.

    Raises:
        BrokenInputError: no array, an array that does not end, or text after it. The whole stream
            was yielded before, without a newline after the last complete element.
    """
    scanner, lost, window = _Scanner(), "", _SCAN_BYTES
    for chunk in chunks:
        for start in range(0, len(chunk), _SCAN_BYTES):
            rest = chunk[start : start + _SCAN_BYTES]
            if not (scanner.depth or scanner.is_closed or lost):
                bracket = _FIRST_BLACK.search(rest)
                if bracket is None or bracket[0] == b"[":
                    stop = len(rest) if bracket is None else bracket.end()
                    scanner.depth = int(bracket is not None)
                    yield b" " * stop
                    rest = rest[stop:]
                else:
                    lost = f"expected [ at the start of a JSON array, found {bracket[0]!r}"
            while rest:
                if scanner.depth:
                    lines = scanner.lines(rest[:window])
                    window = min(2 * window, _SCAN_BYTES)
                    yield lines
                    rest = rest[len(lines) :]
                    continue
                window = _LEAST_WINDOW  # a bracket may close it again at once
                if lost:
                    yield rest.replace(b"\n", b" ")
                    break
                between = cast("re.Match[bytes]", _BETWEEN.match(rest))
                yield between[0].translate(_TO_LINES)
                rest = rest[between.end() :]
                scanner.depth = int(between[0].endswith(b","))
                if rest and not scanner.depth:
                    lost = f"text after the closing bracket of the array: found {rest[:1]!r}"
    if lost or scanner.depth:
        raise BrokenInputError("lost array", lost or "the JSON array has no closing bracket")


class _Scanner:
    """Keeps the state between chunks: depth, inside a string or not, after a backslash or not."""

    def __init__(self) -> None:
        self.depth = 0
        self.is_closed = False
        self.in_string = 0
        self.escaping = False

    def lines(self, chunk: bytes) -> bytes:
        """Return the chunk as lines, up to the bracket that closes the array if it is there."""
        view = np.frombuffer(chunk, dtype=np.uint8)
        bare = np.frombuffer(self._without_escapes(chunk), dtype=np.uint8)
        folded = bare | 0x20
        is_token = (folded == _OPEN) | (folded == _CLOSE) | (bare == _QUOTE) | (bare == _COMMA)
        at = np.flatnonzero(is_token | (bare == _NEWLINE) | (bare == _RETURN))
        if not len(at):
            return chunk
        kinds = view[at]
        quotes = kinds == _QUOTE
        in_string = (np.cumsum(quotes) + self.in_string) & 1  # after the byte; quotes are neither
        outside = ~quotes & (in_string == 0)
        closes = outside & (kinds | 0x20 == _CLOSE)
        opens = outside & (kinds | 0x20 == _OPEN)
        depth = self.depth + np.cumsum(opens.astype(np.int64) - closes)
        lowest = np.minimum.accumulate(np.minimum(depth, 1))
        ends = at[(np.diff(lowest, prepend=1) < 0) & (kinds == _END)]
        depth -= lowest - 1
        out = view.copy()
        out[at[outside & (kinds == _COMMA) & (depth == 1)]] = _NEWLINE
        breaks = (kinds == _NEWLINE) | (kinds == _RETURN)
        out[at[outside & breaks]] = ord(" ")
        out[at[~outside & (kinds == _NEWLINE)]] = 1
        self.in_string, self.depth = int(in_string[-1]), int(depth[-1])
        if len(ends):
            self.is_closed, self.depth, self.in_string, self.escaping = True, 0, 0, False
            out[ends[0]] = _NEWLINE
            out = out[: ends[0] + 1]
        return out.tobytes()

    def _without_escapes(self, chunk: bytes) -> bytes:
        r"""Return the chunk with blanks for `\\` and `\"`; a pair may span chunks."""
        if self.escaping and chunk[0] in b'"\\':
            chunk = b" " + chunk[1:]
        chunk = chunk.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        self.escaping = chunk.endswith(b"\\")
        return chunk


def _object_as_line(chunks: Iterator[bytes]) -> Iterator[bytes]:
    # JSON has no line break inside a string, so all of them stand between tokens.
    return (chunk.replace(b"\n", b" ") for chunk in chunks)


ARRAY = Format(partial(open_lines, convert=array_lines))
OBJECT = Format(partial(open_lines, convert=_object_as_line))


def records_format(read: Read, *suffixes: str) -> Format:
    """Return a format of files that a function reads as records, one slice for each file.

    `read(file)` yields each record as a dict of JSON values; the file is open for reading bytes,
    not compressed, and cannot seek. It raises where the file is broken or cut off: the rest is
    unread input then. Places count bytes of the JSON Lines that the records become, so `read` must
    yield the same for the same file.
    """
    convert = partial(_records_as_lines, read=read)
    return Format(partial(open_lines, convert=convert), suffixes, is_utf8=False)


def _records_as_lines(chunks: Iterator[bytes], read: Read) -> Iterator[bytes]:
    """Yield the records of a file as lines; after an error, blanks for the bytes that are lost."""
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
            text = json.dumps(record, ensure_ascii=False)
            line = text.encode("utf-8", "backslashreplace")  # half of a surrogate pair, as JSON
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
