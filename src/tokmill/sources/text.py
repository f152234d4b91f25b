"""Read plain text: one document per file, or the texts between separators."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.sources.bad_text import replaced_rows, with_halves
from tokmill.sources.blocks import (
    batch_of,
    not_utf8,
    span_records,
    span_texts,
    too_large,
    wants_record_json,
    whole_batch,
)
from tokmill.sources.byte_reader import ByteReader, Cuts
from tokmill.sources.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.sources.blocks import BytesBlock, Reading
    from tokmill.sources.slices import Slice
    from tokmill.sources.utf8 import Bytes
    from tokmill.values import Records

TEXT_COLUMN = "text"
_BLACK = re.compile(rb"\S")

_WHOLE_FILE = ": the whole file is one document; set --text-separator, or raise --max-record-bytes"


class TextSplitter:
    """A record ends at the separator; without one, at the end of the stream."""

    unfinished = ""

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

    def cut_off(self, record: bytes) -> str:
        """Return '': nobody can tell of a text whether its end is missing."""
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


def parse_text(block: BytesBlock) -> Records:
    """Return the records of a block: the texts between separators that are not blank."""
    data, settings = block.data, block.reading.settings
    separator = settings.text_separator.encode()
    ends = list(_marks(data, separator)) if separator else []
    starts = np.array([0, *ends], dtype=np.int64)
    stops = np.array([*(end - len(separator) for end in ends), len(data)], dtype=np.int64)
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    rows = np.flatnonzero([_BLACK.search(data, *span) is not None for span in spans])
    unfit = not_utf8(data, starts[rows], stops[rows])
    bad: list[int] = []
    if settings.replaces_bad_text:
        bad, unfit = rows[list(unfit)].tolist(), {}
    unfit |= too_large((stops - starts)[rows], settings.max_record_bytes, _advice(separator))
    refused = {int(rows[i]): why for i, why in unfit.items()}
    rows = np.delete(rows, sorted(unfit))
    schema, replaced = block.reading.schema, Counter[int]()
    texts = span_texts(data, starts[rows], stops[rows])
    if bad:
        texts = replaced_rows(texts, np.flatnonzero(np.isin(rows, bad)).tolist(), replaced)
    if wants_record_json(schema):
        lines = [json.dumps({TEXT_COLUMN: text}, ensure_ascii=False) for text in texts.to_pylist()]
        batch = whole_batch(pa.array(lines, pa.large_string()))
    else:
        columns = [
            (texts if field.name == TEXT_COLUMN else pa.nulls(len(texts))).cast(field.type)
            for field in schema
        ]
        batch = batch_of(columns, schema, len(texts))
    records = span_records(
        [block], [0], data, (starts, stops), batch, rows, refused, _record, _record
    )
    # A text has no other field.
    return replace(records, samples=(), replaced=replaced)


def _record(text: bytes) -> dict[str, Any]:
    return {TEXT_COLUMN: with_halves(text)}


def _open_text(slice_: Slice, reading: Reading) -> ByteReader:
    separator = reading.settings.text_separator.encode()
    return ByteReader(slice_, reading, TextSplitter(separator), parse_text)


TEXT = Format(_open_text, (".txt", ".text", ".md"), "text")
