"""Read plain text: one document per file, or the texts between separators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    from tokmill.sources.byte_reader import RawBlock
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
class TextBlock:
    """A block of texts, each with the separator that ends it."""

    raw: RawBlock
    schema: pa.Schema
    separator: bytes
    max_record_bytes: int
    input_bytes: int

    @property
    def n_bytes(self) -> int:
        """Return the memory that the block takes."""
        return len(self.raw.data)

    def parse(self) -> Records:
        """Return the records of the block: the texts between separators that are not blank."""
        data, origin = self.raw.data, self.raw.origin
        starts, stops = self._spans()
        filled = np.array([not _is_blank(data, *span) for span in zip(starts, stops, strict=True)])
        rows = np.flatnonzero(filled)
        limits = (self.max_record_bytes, _advice(self.separator))
        unfit = refuse_unfit(data, starts[rows], stops[rows], *limits)
        refused = {int(rows[i]): why for i, why in unfit.items()}
        rejects = span_rejects(data, starts, stops, refused, origin)
        rows = np.delete(rows, sorted(unfit))
        lookup = SpanLookup(data, starts[rows], stops[rows], rows, origin, _keys)
        batch = self._batch(starts[rows], stops[rows])
        return Records(batch, lookup, [*rejects, *self.raw.after], self.raw.unread)

    def _spans(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        data, mark = self.raw.data, len(self.separator)
        ends = list(_marks(data, self.separator)) if mark else []
        starts = np.array([0, *ends], dtype=np.int64)
        stops = np.array([*(end - mark for end in ends), len(data)], dtype=np.int64)
        return starts, stops

    def _batch(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return spans of the block as records, with the columns of the schema."""
        view = memoryview(self.raw.data)
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


def _keys(_: bytes) -> list[str]:
    return [TEXT_COLUMN]


def _open_text(slice_: Slice, reading: Reading) -> ByteReader:
    limit = reading.settings.max_record_bytes
    separator = reading.settings.text_separator.encode()
    return ByteReader(
        slice_,
        reading,
        TextSplitter(separator),
        lambda raw, input_bytes: TextBlock(raw, reading.schema, separator, limit, input_bytes),
    )


TEXT = Format(_open_text, (".txt", ".text", ".md"), "text")
