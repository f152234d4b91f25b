"""The article renderer: title, summary and sections as paragraphs, for text that is not Chinese.

Example:
    {"title": "Cat", "summary": "A mammal.", "sections": [{"title": "Habits", "content": "Hunts."}]}
    Cat

    A mammal.

    Habits
    Hunts.

A blank line stands between the pieces, a line end between a section's title and its content. A
field that is missing, null or empty leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.offsets import offsets_of
from tokmill.render.encyclopedia import encyclopedia_schema
from tokmill.render.renderer import documents, joined

if TYPE_CHECKING:
    from tokmill.settings.schema import RenderSettings
    from tokmill.values import DocumentBatch, Records


class Article:
    """Renders the columns `title`, `summary` and `sections`; works on whole Arrow columns."""

    name = "article"

    def __init__(self, settings: RenderSettings) -> None:
        self.schema = encyclopedia_schema(settings)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; rejects records without text."""
        title, summary, sections = records.batch.columns
        n_sections = pc.fill_null(pc.list_value_length(sections), 0).to_numpy()
        n_records = len(title)
        items = sections.flatten()
        heading, content = (pc.fill_null(pc.struct_field(items, [i]), "") for i in (0, 1))
        has_both = pc.and_(pc.not_equal(heading, ""), pc.not_equal(content, ""))
        bodies = joined(heading, pc.if_else(has_both, "\n", ""), content)
        # The columns end to end; a record's pieces are its title, its summary, its sections.
        pieces = pa.concat_arrays([title, summary, bodies])
        starts = offsets_of(n_sections + 2)
        order = np.empty(starts[-1], np.int64)
        is_section = np.ones(starts[-1], bool)
        for index in (0, 1):
            at = starts[:-1] + index
            order[at] = np.arange(n_records) + index * n_records
            is_section[at] = False
        order[is_section] = np.arange(len(bodies)) + 2 * n_records
        ordered = pieces.take(pa.array(order))
        is_filled = pc.fill_null(pc.not_equal(ordered, ""), False)
        ends = offsets_of(is_filled.to_numpy(zero_copy_only=False))[starts].astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), ordered.filter(is_filled))
        return documents(records, pc.binary_join(lists, "\n\n"), np.diff(ends) == 0)
