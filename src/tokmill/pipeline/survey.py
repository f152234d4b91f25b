"""Reads a small, spread sample of the input: to see its keys, choose an engine, predict a run.

Windows at positions of a low-discrepancy sequence over all input bytes; from each, the records that
start inside it. So a record's chance does not depend on its length, and stopping early stays even.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tokmill.sources.open import open_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.config import InputSettings
    from tokmill.pipeline.spec import Part
    from tokmill.render.renderer import Renderer
    from tokmill.sources.files import Slice

_GOLDEN = (math.sqrt(5) - 1) / 2
_WINDOW_BYTES = 16 << 10
_MAX_WINDOWS = 4096
_HEAD_BATCH_BYTES = 64 << 10


@dataclass(slots=True)
class Survey:
    """A sample of the input, rendered.

    `input_bytes` is what the sampled records take in their files; `texts` are their documents.
    """

    texts: list[str] = field(default_factory=list)
    input_bytes: int = 0
    n_rejects: int = 0
    heads_only: bool = False

    @property
    def text_bytes(self) -> int:
        """Give the bytes of the rendered sample."""
        return sum(len(text.encode()) for text in self.texts)


def survey(
    parts: Sequence[Part], settings: InputSettings, renderer: Renderer, limit_bytes: int
) -> Survey:
    """Sample at most `limit_bytes` of the input, spread over it.

    Files that can only be read from their beginning are sampled at their heads.
    """
    result = Survey()
    for window in _windows([s for part in parts for s in part.slices], limit_bytes):
        if result.input_bytes >= limit_bytes:
            break
        _read(window, settings, renderer, limit_bytes, result)
    return result


def _windows(slices: Sequence[Slice], limit_bytes: int) -> Iterator[Slice]:
    total = sum(s.n_bytes for s in slices)
    if total <= limit_bytes:
        yield from slices
        return
    ends = []
    end = 0
    for piece in slices:
        end += piece.n_bytes
        ends.append(end)
    seen: set[int] = set()
    for i in range(1, _MAX_WINDOWS):
        position = int(i * _GOLDEN % 1 * total)
        index = next(k for k, end in enumerate(ends) if position < end)
        piece = slices[index]
        if _has_byte_ranges(piece):
            start = piece.start + position - (ends[index] - piece.n_bytes)
            stop = min(start + _WINDOW_BYTES, piece.start + piece.n_bytes)
            yield replace(piece, start=start, stop=stop, n_bytes=stop - start)
        elif index not in seen:
            seen.add(index)
            yield piece
        elif len(seen) == len(slices):
            return


def _has_byte_ranges(piece: Slice) -> bool:
    file = piece.file
    return file.format == "jsonl" and not file.compression and file.path != "-"


def _read(
    window: Slice, settings: InputSettings, renderer: Renderer, limit_bytes: int, into: Survey
) -> None:
    by_range = _has_byte_ranges(window)
    into.heads_only |= not by_range
    with open_slice(window, settings, renderer.schema, _HEAD_BATCH_BYTES) as reader:
        for block in reader.blocks():
            records = block.parse()
            documents = renderer.render(records)
            into.texts += documents.text.to_pylist()
            into.n_rejects += len(records.rejects) + len(documents.rejects)
            # A window's last record may be far longer than the window: count what was read.
            into.input_bytes += block.n_bytes if by_range else block.input_bytes
            if into.input_bytes >= limit_bytes:
                return
