"""Read plain text: one document per file, or the texts between separators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.sources.blocks import SpanLookup, refuse_unfit, span_rejects
from tokmill.sources.byte_reader import ByteReader, Cuts
from tokmill.sources.formats import Format
from tokmill.sources.record_json import json_text, wants_record_json
from tokmill.values import Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.sources.byte_reader import BytesBlock
    from tokmill.sources.formats import Reading
    from tokmill.sources.slices import Slice
    from tokmill.sources.utf8 import Bytes

TEXT_COLUMN = "text"

_WHOLE_FILE = ": the whole file is one document; set --text-separator, or raise --max-record-bytes"


class TextSplitter:
    """A record ends at the separator; without one, at the end of the stream."""

    def __init__(self, separator: bytes) -> None:
        self.advice = _advice(separator)
        self.mark_bytes = len(separator)
        self._separator = separator
        self._carried = b""

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk; separators never overlap."""
        if not self._separator:
            return Cuts(0, 0, 0)
        data = self._carried + chunk
        stops = list(_marks(data, self._separator))
        kept = stops[-1] if stops else 0
        self._carried = data[max(kept, len(data) - self.mark_bytes + 1) :]
        if not stops:
            return Cuts(0, 0, 0)
        shifted = len(data) - len(chunk)
        return Cuts(stops[0] - shifted, stops[-1] - shifted, len(stops))

    def unfinished(self) -> str:
        """Return '': text may end anywhere."""
        return ""


def _advice(separator: bytes) -> str:
    return "" if separator else _WHOLE_FILE


def _marks(data: Bytes, separator: bytes) -> Iterator[int]:
    """Yield where each separator ends."""
    at = data.find(separator)
    while at >= 0:
        stop = at + len(separator)
        yield stop
        at = data.find(separator, stop)


@dataclass(frozen=True, slots=True)
class TextParser:
    """Parses blocks of texts, each with the separator that ends it."""

    schema: pa.Schema
    separator: bytes
    max_record_bytes: int

    def parse(self, block: BytesBlock) -> Records:
        """Return the records of a block: the texts between separators that are not blank."""
        data = block.data
        mark = len(self.separator)
        ends = list(_marks(data, self.separator)) if mark else []
        starts = np.array([0, *ends], dtype=np.int64)
        stops = np.array([*(end - mark for end in ends), len(data)], dtype=np.int64)
        filled = np.array([not _is_blank(data, *span) for span in zip(starts, stops, strict=True)])
        rows = np.flatnonzero(filled)
        limits = (self.max_record_bytes, _advice(self.separator))
        unfit = refuse_unfit(data, starts[rows], stops[rows], *limits)
        refused = {int(rows[i]): why for i, why in unfit.items()}
        rejects = span_rejects(data, starts, stops, refused, block.origin)
        rows = np.delete(rows, sorted(unfit))
        starts, stops = starts[rows], stops[rows]
        lookup = SpanLookup(data, starts, stops, rows, block.origin, _record)
        batch = self._batch(data, starts, stops)
        return Records(batch, lookup, [*rejects, *block.after], block.unread)

    def _batch(
        self, data: bytes, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Return spans of a block as records, with the columns of the schema."""
        view = memoryview(data)
        texts = [view[start:stop] for start, stop in zip(starts, stops, strict=True)]
        # not by pa.array, which would first copy each text into a Python object
        offsets = np.zeros(len(texts) + 1, dtype=np.int32)
        np.cumsum(stops - starts, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
        text = pa.Array.from_buffers(pa.string(), len(texts), buffers)
        if wants_record_json(self.schema):
            return json_text(text, TEXT_COLUMN)
        columns = [
            text if field.name == TEXT_COLUMN else pa.nulls(len(texts), field.type)
            for field in self.schema
        ]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.nulls(len(texts), pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _is_blank(data: Bytes, start: int, stop: int) -> bool:
    head = bytes(memoryview(data)[start : min(stop, start + 64)])
    if head.strip():
        return False
    return not bytes(memoryview(data)[start:stop]).strip()


def _record(text: bytes) -> dict[str, Any]:
    return {TEXT_COLUMN: text.decode()}


def _open_text(slice_: Slice, reading: Reading) -> ByteReader:
    separator = reading.settings.text_separator.encode()
    parser = TextParser(reading.schema, separator, reading.settings.max_record_bytes)
    return ByteReader(slice_, reading, TextSplitter(separator), parser)


TEXT = Format(_open_text, (".txt", ".text", ".md"), "text")
