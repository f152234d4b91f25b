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

from tokmill.render.renderer import documents, joined

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.settings.schema import RenderSettings
    from tokmill.values import DocumentBatch, Records


class Encyclopedia:
    """Renders the columns `title`, `summary` and `sections`; works on whole Arrow columns."""

    name = "encyclopedia"

    def __init__(self, settings: RenderSettings) -> None:
        self._separator = settings.separator
        self._terminator = settings.terminator
        section = pa.struct(
            [
                (settings.section_title_field, pa.string()),
                (settings.section_content_field, pa.string()),
            ]
        )
        self.schema = pa.schema(
            [
                (settings.title_field, pa.string()),
                (settings.summary_field, pa.string()),
                (settings.sections_field, pa.list_(section)),
            ]
        )

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; rejects records without text."""
        title, summary, sections = records.batch.columns
        n_sections = pc.fill_null(pc.list_value_length(sections), 0).to_numpy()
        text = joined(
            pc.fill_null(title, ""),
            self._separator,
            pc.fill_null(summary, ""),
            self._body(sections, n_sections),
        )
        # A document without text is as long as its separators and terminators.
        section_bytes = len((self._separator + self._terminator).encode())
        bare = n_sections * section_bytes + len(self._separator.encode())
        return documents(records, text, pc.binary_length(text).to_numpy() == bare)

    def _body(self, sections: pa.ListArray, n_sections: npt.NDArray[np.int32]) -> pa.StringArray:
        parts = sections.flatten()
        texts = joined(
            pc.fill_null(pc.struct_field(parts, [0]), ""),
            self._separator,
            pc.fill_null(pc.struct_field(parts, [1]), ""),
            self._terminator,
        )
        offsets = np.zeros(len(n_sections) + 1, np.int32)
        np.cumsum(n_sections, out=offsets[1:])
        return pc.binary_join(
            pa.ListArray.from_arrays(pa.array(offsets), texts), pa.scalar("", pa.string())
        )
