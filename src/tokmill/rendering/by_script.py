"""The renderer `sections`: each file by `encyclopedia` or `article`, as its own script asks.

The first letters of a file decide for all of its slices: whoever opens one looks at the head of the
file, not at the slice. So workers, resumed runs and other machines decide alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.rendering.built_in import Article, Encyclopedia
from tokmill.rendering.detect import HEAD_LETTERS, sections_renderer
from tokmill.rendering.fields import NO_LETTERS, count_letters
from tokmill.rendering.renderer import documents

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.settings.schema import RenderSettings
    from tokmill.values import DocumentBatch, Records

FORMULA = "encyclopedia"

_MOST_RECORDS, _MOST_BYTES = 256, 4 << 20
"""The head of a file ends here, even if it has few letters: readers keep it in memory."""

_MOST_OF_FIELD = 16 << 10
"""Bytes that count of a record's title, summary, headings, and contents: no record decides alone,
and the work for a small file is small."""


class Sections:
    """Renders each record as its file asks."""

    name = "sections"

    def __init__(self, settings: RenderSettings) -> None:
        self._unclear = settings.unclear
        self._formula, self._article = Encyclopedia(settings), Article(settings)
        self.schema = self._formula.schema

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; the records are the first ones of a file."""
        head = Head()
        head.add(RowTexts(records.batch), records.places, 0, records.batch.num_rows)
        by_formula = self.renderer_of(head) == FORMULA
        return self.render_each(records, np.full(records.batch.num_rows, by_formula))

    def render_each(self, records: Records, by_formula: npt.NDArray[np.bool_]) -> DocumentBatch:
        """Return a document for each of n records: of an encyclopedia if `by_formula`, (n,)."""
        if by_formula.all():
            return self._formula.render(records)
        if not by_formula.any():
            return self._article.render(records)
        formula, formula_empty = self._formula.texts(records.batch)
        article, article_empty = self._article.texts(records.batch)
        text = pc.if_else(pa.array(by_formula), formula, article)
        return documents(records, text, np.where(by_formula, formula_empty, article_empty))

    def renderer_of(self, head: Head) -> str:
        """Return the name of the renderer of a file."""
        return sections_renderer(head.letters, self._unclear)


class Head:
    """The letters of the first records of a file, up to the one that makes them enough.

    It depends on the file alone, not on the blocks that its records come in.
    """

    def __init__(self) -> None:
        self.letters = NO_LETTERS
        self._n_bytes = 0

    @property
    def is_enough(self) -> bool:
        """Return whether later records change nothing."""
        return self.letters.n >= HEAD_LETTERS or self._n_bytes >= _MOST_BYTES

    def add(self, texts: RowTexts, places: npt.NDArray[np.int64], start: int, stop: int) -> None:
        """Add the next records, some rows of a batch; `places`: of all of its rows."""
        for row in range(start, stop):
            line, byte_offset = places[row].tolist()
            if self.is_enough or is_behind_head(line, byte_offset):
                return
            text = texts.of_row(row)
            self._n_bytes += len(text)
            self.letters = self.letters.plus(count_letters(text))


def is_behind_head(line: int, byte_offset: int) -> bool:
    """Return whether a record at this place of a file counts no more."""
    return line > _MOST_RECORDS or byte_offset >= _MOST_BYTES


class RowTexts:
    """The texts of rows with title, summary and sections, as bytes.

    By the buffers of Arrow, of which a call costs as much as a small file takes.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        title, summary, sections = batch.columns
        rows = np.arange(batch.num_rows + 1)
        firsts = _offsets_in(sections.buffers()[1], sections.offset, len(sections))
        items = sections.values
        self._columns = [
            _strings_of_rows(title, rows),
            _strings_of_rows(summary, rows),
            _strings_of_rows(items.field(0), firsts + items.offset),
            _strings_of_rows(items.field(1), firsts + items.offset),
        ]

    def of_row(self, row: int) -> bytes:
        """Return the beginnings of all texts of a row, in no order."""
        texts = [data[ends[row] : ends[row + 1]] for ends, data in self._columns]
        return b"".join([text[:_MOST_OF_FIELD] for text in texts])


def _strings_of_rows(
    text: pa.StringArray, firsts: npt.NDArray[np.integer[Any]]
) -> tuple[list[int], memoryview]:
    """Return where the strings of each row end, and the bytes of all strings.

    `firsts`: (n + 1,), the first string of each row; those of a row stand one after the other.
    """
    _, offsets, data = text.buffers()
    ends = _offsets_in(offsets, text.offset, len(text))
    return ends[firsts].tolist(), memoryview(data or b"")


def _offsets_in(buffer: pa.Buffer | None, offset: int, n: int) -> npt.NDArray[np.int32]:
    """Return the offsets of n entries of an array: (n + 1,); an empty one may have no buffer."""
    if not n or buffer is None:
        return np.zeros(n + 1, np.int32)
    return np.frombuffer(buffer, np.int32)[offset : offset + n + 1]
