"""The encyclopedia renderer: `title:summary`, then `title:content。` for each section.

Example with the default separator and terminator:

    {"title": "猫", "summary": "哺乳动物", "sections": [{"title": "习性", "content": "夜行"}]}
    猫:哺乳动物习性:夜行。

The rule comes from baby-llama2-chinese (github.com/DLLXW/baby-llama2-chinese), where the separator
is the full-width colon. A field that is missing or null counts as empty, also inside a section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.offsets import offsets_of
from tokmill.render.renderer import documents, joined

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.settings.schema import RenderSettings
    from tokmill.values import DocumentBatch, Records


def encyclopedia_schema(settings: RenderSettings) -> pa.Schema:
    """Return the columns of a title, a summary and a list of sections."""
    names = (settings.key_of("section_title"), settings.key_of("section_content"))
    section = pa.struct([(name, pa.string()) for name in names])
    return pa.schema(
        [
            (settings.key_of("title"), pa.string()),
            (settings.key_of("summary"), pa.string()),
            (settings.key_of("sections"), pa.list_(section)),
        ]
    )


class Encyclopedia:
    """Renders the columns `title`, `summary` and `sections`; works on whole Arrow columns."""

    name = "encyclopedia"

    def __init__(self, settings: RenderSettings) -> None:
        self._separator = settings.separator
        self._terminator = settings.terminator
        self.schema = encyclopedia_schema(settings)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; rejects records without text."""
        title, summary, sections = records.batch.columns
        n_sections = pc.fill_null(pc.list_value_length(sections), 0).to_numpy()
        heads = joined(pc.fill_null(title, ""), self._separator, pc.fill_null(summary, ""))
        text = self._joined(heads, sections.flatten(), offsets_of(n_sections))
        # A document without text is as long as its separators and terminators.
        section_bytes = len((self._separator + self._terminator).encode())
        bare = n_sections * section_bytes + len(self._separator.encode())
        return documents(records, text, pc.binary_length(text).to_numpy() == bare)

    def _joined(
        self, heads: pa.StringArray, sections: pa.StructArray, first: npt.NDArray[np.int64]
    ) -> pa.StringArray:
        """Return each head with its sections; record i has those from `first[i]` on: (n + 1,).

        Joined texts stand end to end in their buffer, so a record's sections need other offsets,
        and no copy. If each record has a section, its head is joined to the first one.
        """
        all_have = len(heads) > 0 and bool((first[1:] > first[:-1]).all())
        before = [_before_first(heads, first)] if all_have else []
        texts = joined(
            *before,
            pc.fill_null(pc.struct_field(sections, [0]), ""),
            self._separator,
            pc.fill_null(pc.struct_field(sections, [1]), ""),
            self._terminator,
        )
        bodies = _strings(texts, _offsets(texts)[first])
        return bodies if all_have else joined(heads, bodies)


def _before_first(heads: pa.StringArray, first: npt.NDArray[np.int64]) -> pa.StringArray:
    """Return, for each section, the head of its record if it is the first one, else ''; no copy.

    Each of n records has a section; `first`: (n + 1,).
    """
    offsets = _offsets(heads)
    ends = np.repeat(offsets[1:], np.diff(first))
    starts = np.append(ends, offsets[-1])
    starts[first[:-1]] = offsets[:-1]
    return _strings(heads, starts)


def _offsets(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(texts.buffers()[1] or bytes(4), np.int32)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


def _strings(texts: pa.StringArray, offsets: npt.NDArray[np.int32]) -> pa.StringArray:
    """Return the bytes of a column as other texts, cut at `offsets` of its buffer; no copy."""
    data = texts.buffers()[2] or pa.py_buffer(b"")
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), data)
