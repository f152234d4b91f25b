"""The renderer of each file of sections, decided when a slice of it is first opened.

A file that is one small block decides by its rows when they are parsed, among those of others:
alone, its first records take longer to parse than the rest of its work.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from tokmill.rendering.by_script import FORMULA, Head, RowTexts, Sections, is_behind_head
from tokmill.sources.blocks import BytesBlock, ParsedBlock
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import SourceFile
    from tokmill.values import DocumentBatch, Records

_HEAD_BLOCK_BYTES = 64 << 10


class FileRenderers:
    """The renderers of the files of a process, by the renderer `sections`.

    The head of a file in several slices is read once for all that the process opens.
    """

    def __init__(self, sections: Sections, settings: InputSettings) -> None:
        self._sections, self._settings = sections, settings
        self._known: dict[SourceFile, str] = {}

    def blocks_of(self, piece: Slice, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield the blocks of a slice with the renderer of its file; without, if they are one."""
        if piece.is_whole:
            first = list(islice(blocks, 2))
            if len(first) < 2:
                yield from first
                return
            name, parsed, rest = self._decided(chain(first, blocks))
            blocks = chain(parsed, rest)
        else:
            if piece.file not in self._known:
                self._known[piece.file] = self._of_head(piece.file)
            name = self._known[piece.file]
        for block in blocks:
            yield replace(block, renderer=name)

    def _of_head(self, file: SourceFile) -> str:
        """Return the renderer of a file, of which only the head is read."""
        whole = Slice(file, 0, -1, file.n_bytes)
        schema = self._sections.schema
        with open_slice(whole, self._settings, schema, _HEAD_BLOCK_BYTES) as reader:
            return self._decided(reader.blocks())[0]

    def _decided(self, blocks: Iterable[Block]) -> tuple[str, list[ParsedBlock], Iterator[Block]]:
        """Return the renderer of a file, the blocks that were parsed to find it, and the others."""
        head, parsed, rest = Head(), [], iter(blocks)
        for block in rest:
            records = block.parse()
            parsed.append(ParsedBlock(records, block.n_bytes, block.input_bytes))
            head.add(RowTexts(records.batch), records.places, 0, records.batch.num_rows)
            if head.is_enough or _ends_behind_head(block, records):
                break
        return self._sections.renderer_of(head), parsed, rest

    def names_of(self, blocks: Sequence[Block], records: Records) -> list[str]:
        """Return the renderer of each block, whose records were parsed together."""
        names: list[str] = []
        texts, start = None, 0
        for block, (stop, _, _) in zip(blocks, records.ends, strict=True):
            name = block.renderer
            if not name:  # the block is a whole file
                texts, head = texts or RowTexts(records.batch), Head()
                head.add(texts, records.places, start, stop)
                name = self._sections.renderer_of(head)
            names.append(name)
            start = stop
        return names

    def render(self, records: Records, names: Sequence[str]) -> DocumentBatch:
        """Return a document for each record; `names`: the renderers of their blocks."""
        n_rows = np.diff([0, *(end.n_rows for end in records.ends)])
        by_formula = np.repeat([name == FORMULA for name in names], n_rows)
        return self._sections.render_each(records, by_formula)


def _ends_behind_head(block: Block, records: Records) -> bool:
    """Return whether no record after a block counts any more."""
    places = [(reject.place.line, reject.place.byte_offset) for reject in records.rejects[-1:]]
    places += [(line, byte_offset) for line, byte_offset in records.places[-1:].tolist()]
    if isinstance(block, BytesBlock):  # it may be empty lines
        places.append((0, block.origin.byte_offset + block.n_bytes))
    return any(is_behind_head(*place) for place in places)
