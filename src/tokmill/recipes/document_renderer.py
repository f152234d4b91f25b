"""Records to the documents of a run of pretraining: rendered, and without what may not be there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.offsets import byte_offsets
from tokmill.recipes.file_renderers import FileRenderers
from tokmill.recipes.memory_bounds import refuse_long_texts
from tokmill.rendering.by_script import Sections
from tokmill.rendering.renderer import make_renderer
from tokmill.tokenizer.control_tokens import contains_any
from tokmill.values import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.settings.schema import Config
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import Slice
    from tokmill.values import DocumentBatch, Records

_CONTROL_IN_TEXT = (
    "control token in text",
    "the text holds a control token's string and control_tokens_in_text is reject",
)


class DocumentRenderer:
    """Renders the records of files that are read by some settings; threads may share one.

    `config`: without `auto`. `control`: strings for which a document is rejected.
    """

    def __init__(self, config: Config, control: Sequence[str] = ()) -> None:
        self.renderer = make_renderer(config.render)
        self._control, self._strip_end = control, config.render.strip_end
        self._files: FileRenderers | None = None
        if isinstance(self.renderer, Sections):
            self._files = FileRenderers(self.renderer, config.input)

    def blocks_of(self, piece: Slice, blocks: Iterator[Block]) -> Iterator[Block]:
        """Return the blocks of a slice, with what its file decides; the first ones may be read."""
        return blocks if self._files is None else self._files.blocks_of(piece, blocks)

    def names_of(self, blocks: Sequence[Block], records: Records) -> list[str]:
        """Return the renderer of each block, whose records were parsed together.

        Nothing where all files have one.
        """
        return [] if self._files is None else self._files.names_of(blocks, records)

    def render(self, records: Records, names: Sequence[str]) -> DocumentBatch:
        """Return the documents, without those that cannot be encoded or hold what they may not.

        `names`: the renderer of each block, where each file has its own.
        """
        if self._files is None:
            documents = self.renderer.render(records)
        else:
            documents = self._files.render(records, names)
        if self._strip_end:
            if documents.pieces is not None:
                raise UsageError(
                    f"renderer {self.renderer.name} returns pieces: --strip-end works on text "
                    "alone: leave it out, and strip the end in the renderer"
                )
            documents = _without_end(documents, self._strip_end)
        sizes = np.diff(byte_offsets(documents.text))
        found = dict(refuse_long_texts(records, documents.rows, sizes))
        if self._control:
            has_control = contains_any(_own_text(documents), self._control)
            for row in documents.rows[has_control].tolist():
                found[row] = records.reject(row, *_CONTROL_IN_TEXT)
        if not found:
            return documents
        is_kept = ~np.isin(documents.rows, list(found))
        return documents.selected(is_kept, found)


def _without_end(documents: DocumentBatch, end: str) -> DocumentBatch:
    """Return documents without a string at their end, and white space behind it.

    A document of which nothing is left is a drop.
    """
    pattern = rf"{re.escape(end)}\s*\z"
    has_end = pc.match_substring_regex(documents.text, pattern).to_numpy(zero_copy_only=False)
    documents = replace(documents, stripped=documents.rows[has_end])
    text = pc.replace_substring_regex(documents.text, pattern, "")
    is_empty = np.diff(byte_offsets(text)) == 0
    if not is_empty.any():
        return replace(documents, text=text)
    empty = [*documents.drops.get(EMPTY, ()), *documents.rows[is_empty].tolist()]
    return replace(
        documents,
        text=text.filter(pa.array(~is_empty)),
        rows=documents.rows[~is_empty],
        drops={**documents.drops, EMPTY: np.array(sorted(empty), np.int64)},
    )


def _own_text(documents: DocumentBatch) -> pa.LargeStringArray:
    """Return the text of each document without the control tokens that the renderer has placed."""
    if documents.pieces is None:
        return documents.text
    texts = ["\0".join(p for p in pieces if isinstance(p, str)) for pieces in documents.pieces]
    return pa.array(texts, pa.large_string())
