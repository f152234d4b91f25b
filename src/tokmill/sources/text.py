"""Reads plain text: a document per file, or the pieces between separators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.sources.blocks import SpanLookup, first_bytes
from tokmill.sources.json_lines import shift
from tokmill.sources.raw_blocks import Cuts, too_large_message
from tokmill.sources.record_json import is_whole, json_text
from tokmill.sources.utf8 import invalid_spans, utf8_message
from tokmill.values import Place, Records, Reject

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.sources.blocks import Bytes
    from tokmill.sources.raw_blocks import RawBlock

TEXT_COLUMN = "text"

_WHOLE_FILE = ": the file is one document; name a --text-separator, or raise --max-record-bytes"


class TextSplitter:
    """A record ends at the separator; without one, at the end of the stream."""

    def __init__(self, separator: bytes) -> None:
        self.advice = _advice(separator)
        self.mark_bytes = len(separator)
        self._separator = separator
        self._carried = b""

    def feed(self, chunk: bytes) -> Cuts:
        """Give the cuts of the next chunk; separators do not overlap, the first one counts."""
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
        """Say ''."""
        return ""


def _advice(separator: bytes) -> str:
    return "" if separator else _WHOLE_FILE


def _marks(data: Bytes, separator: bytes) -> Iterator[int]:
    """Give where each separator ends."""
    at = data.find(separator)
    while at >= 0:
        stop = at + len(separator)
        yield stop
        at = data.find(separator, stop)


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Pieces of text with the separators behind them."""

    raw: RawBlock
    schema: pa.Schema
    separator: bytes
    max_record_bytes: int
    input_bytes: int

    @property
    def n_bytes(self) -> int:
        """Give the weight of the block in memory."""
        return len(self.raw.data)

    def parse(self) -> Records:
        """Give the records of the block: one for each piece that is not blank."""
        data, origin = self.raw.data, self.raw.origin
        starts, stops = self._spans()
        filled = np.array([not _is_blank(data, *span) for span in zip(starts, stops, strict=True)])
        rows = np.flatnonzero(filled)
        refused = self._refused(starts[rows], stops[rows])
        rows_refused = {int(rows[i]): why for i, why in refused.items()}
        rejects = [
            Reject(
                Place(row + 1, int(starts[row])),
                *why,
                first_bytes(data, int(starts[row]), int(stops[row])),
            )
            for row, why in sorted(rows_refused.items())
        ]
        rows = np.delete(rows, sorted(refused))
        lookup = SpanLookup(data, starts[rows], stops[rows], rows, origin, _keys)
        batch = self._batch(starts[rows], stops[rows])
        found = [*(shift(r, origin) for r in rejects), *self.raw.after]
        return Records(batch, lookup, found, self.raw.unread)

    def _spans(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        data, mark = self.raw.data, len(self.separator)
        ends = list(_marks(data, self.separator)) if mark else []
        starts = np.array([0, *ends], dtype=np.int64)
        stops = np.array([*(end - mark for end in ends), len(data)], dtype=np.int64)
        return starts, stops

    def _refused(
        self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
    ) -> dict[int, tuple[str, str]]:
        limit, advice = self.max_record_bytes, _advice(self.separator)
        sizes = stops - starts
        refused = {}
        for i in invalid_spans(self.raw.data, starts, stops):
            piece = bytes(memoryview(self.raw.data)[starts[i] : stops[i]])
            refused[i] = "invalid UTF-8", utf8_message(piece)
        for i in np.flatnonzero(sizes > limit).tolist():
            refused[i] = "record too large", too_large_message(int(sizes[i]), limit, advice)
        return refused

    def _batch(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> pa.RecordBatch:
        view = memoryview(self.raw.data)
        pieces = [view[start:stop] for start, stop in zip(starts, stops, strict=True)]
        # joined, not made by pa.array: that would copy each piece into a Python object first
        offsets = np.zeros(len(pieces) + 1, dtype=np.int32)
        np.cumsum(stops - starts, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
        text = pa.Array.from_buffers(pa.string(), len(pieces), buffers)
        if is_whole(self.schema):
            return json_text(text, TEXT_COLUMN)
        columns = [
            text if field.name == TEXT_COLUMN else pa.nulls(len(pieces), field.type)
            for field in self.schema
        ]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.nulls(len(pieces), pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _is_blank(data: Bytes, start: int, stop: int) -> bool:
    head = bytes(memoryview(data)[start : min(stop, start + 64)])
    if head.strip():
        return False
    return not bytes(memoryview(data)[start:stop]).strip()


def _keys(_: bytes) -> list[str]:
    return [TEXT_COLUMN]
