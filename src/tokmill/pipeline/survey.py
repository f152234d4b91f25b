"""Reads a small, spread sample of the input: to see its keys, choose an engine, predict a run.

Windows at positions of a low-discrepancy sequence over all input bytes; from each, the records that
start inside it. So a record's chance does not depend on its length, and stopping early stays even.
A few long records are most of such a sample's bytes, so a prediction also takes fragments: a
thousand pieces of raw input, which show the mix of languages and kinds far more evenly.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.batch import SampleBatch
from tokmill.pipeline.encoded import joined
from tokmill.sources.json_lines import JsonBlock
from tokmill.sources.open import open_slice
from tokmill.sources.slices import cut
from tokmill.sources.together import parse_together
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.config import InputSettings
    from tokmill.pipeline.spec import Part
    from tokmill.render.chat.renderer import ChatRenderer
    from tokmill.render.renderer import Renderer
    from tokmill.sources.blocks import Block
    from tokmill.sources.files import Slice

_GOLDEN = (math.sqrt(5) - 1) / 2
_WINDOW_BYTES = 16 << 10
_MAX_WINDOWS = 4096
_FILES_PER_WINDOW = 4
_HEAD_BATCH_BYTES = 64 << 10
_MOST_HELD = 64
_FRAGMENT_BYTES = 1 << 10
_FEWEST_TWINS = 3
"""Fewer documents met twice say nothing of how many there are."""


@dataclass(slots=True)
class Survey:
    """A sample of the input, rendered.

    `n_control`: control tokens that the template puts around each text; empty for pretraining.
    `input_bytes` is what the sampled records take in their files, `window_bytes` the ranges that
    they had to start in (0 where there were none); `texts` are their documents,
    `raw` the same records as they stand there, in pieces of the fragments' size. `fragments` are
    pieces from all over the input, of `fragment_bytes` in all; both are empty where files can be
    read only from their heads.
    """

    texts: list[str] = field(default_factory=list)
    input_bytes: int = 0
    window_bytes: int = 0
    n_rejects: int = 0
    heads_only: bool = False
    raw: list[str] = field(default_factory=list)
    fragments: list[str] = field(default_factory=list)
    fragment_bytes: int = 0
    n_control: list[int] = field(default_factory=list)

    @property
    def text_bytes(self) -> int:
        """Give the bytes of the rendered sample."""
        return sum(len(text.encode()) for text in self.texts)

    @property
    def records_per_byte(self) -> float:
        """Give how many records start in a byte of input.

        Counted in windows and fragments, whose sizes do not depend on the records in them.
        """
        n_records = len(self.texts) + self.n_rejects
        if not self.window_bytes:
            return n_records / self.input_bytes
        n_records += sum(text.count("\n") for text in self.fragments)
        return n_records / (self.window_bytes + self.fragment_bytes)

    def new_share(self, n_bytes: int) -> float:
        """Estimate which share of an input of `n_bytes` has not been seen before when it comes.

        From documents met once and twice in a sample at random (Chao, 1984, doi 10.2307/4615964).
        """
        met = Counter(self.texts)
        times = Counter(met.values())
        if times[2] < _FEWEST_TWINS:
            return 1.0
        n_different = len(met) + times[1] ** 2 / (2 * times[2])
        return min(1.0, n_different / (self.records_per_byte * n_bytes))

    @property
    def read_bytes(self) -> int:
        """Give the bytes of input that the sample read."""
        return self.input_bytes + self.fragment_bytes


def survey(
    parts: Sequence[Part],
    settings: InputSettings,
    renderer: Renderer | ChatRenderer,
    limit_bytes: int,
    *,
    at_random: bool = False,
) -> Survey:
    """Sample at most `limit_bytes` of the input in records, spread over it.

    Files that can only be read from their beginning are sampled at their heads. `at_random`: less
    evenly, so that two copies of a text are as likely to be met as any two.
    """
    result = Survey()
    slices = _finest(_slices(parts))
    share = max(1, limit_bytes // len(slices)) if slices else 0
    held: list[Block] = []
    for window in _windows(slices, limit_bytes, at_random=at_random):
        if result.input_bytes >= limit_bytes:
            break
        left = limit_bytes - result.input_bytes
        limit = left if _has_byte_ranges(window) else share
        held += _read(window, settings, renderer, limit, result)
        if len(held) >= _MOST_HELD:
            _render(held, renderer, result)
            held = []
    if held:
        _render(held, renderer, result)
    return result


def add_fragments(parts: Sequence[Part], found: Survey, limit_bytes: int) -> None:
    """Add pieces of raw input to a survey until it has read about `limit_bytes`."""
    if found.heads_only or not found.raw:
        return
    slices = _slices(parts)
    n_fragments = max(0, limit_bytes - found.input_bytes) // _FRAGMENT_BYTES
    for index, start in _places(slices, _golden(slices, n_fragments)):
        data = bytearray()
        for piece in _stretch(slices, index, start, _FRAGMENT_BYTES):
            found.fragment_bytes += piece.n_bytes
            data += _raw(piece)
        found.fragments.append(data.decode(errors="ignore"))


def _raw(piece: Slice) -> bytes:
    """Give the bytes of a piece; a file's last line ends, so that ends count records."""
    with storage_errors(piece.file.path), Path(piece.file.path).open("rb") as file:
        file.seek(piece.start)
        data = file.read(piece.n_bytes)
    ends = piece.stop == piece.file.n_bytes and not data.endswith(b"\n")
    return data + b"\n" if ends else data


def _slices(parts: Sequence[Part]) -> list[Slice]:
    return [piece for part in parts for piece in part.slices]


def _finest(slices: list[Slice]) -> list[Slice]:
    """Take files of rows apart into their row groups, so that not only the first is sampled."""
    if len(slices) > _MAX_WINDOWS:
        return slices
    return [
        finer
        for piece in slices
        for finer in (
            cut(piece.file, 1)
            if piece.is_whole and piece.file.format in ("parquet", "arrow")
            else [piece]
        )
    ]


def _golden(slices: Sequence[Slice], n: int) -> Iterator[int]:
    """Give `n` positions in the bytes of all slices, spread as evenly as can be."""
    n_bytes = sum(piece.n_bytes for piece in slices)
    return (int(i * _GOLDEN % 1 * n_bytes) for i in range(1, n + 1))


def _random(slices: Sequence[Slice], n: int, window_bytes: int) -> Iterator[int]:
    """Give up to `n` positions at random, always the same, of windows that share no byte."""
    n_windows = sum(piece.n_bytes for piece in slices) // window_bytes
    picked = random.Random(0).sample(range(n_windows), min(n, n_windows))  # noqa: S311 no secret
    return (index * window_bytes for index in picked)


def _places(slices: Sequence[Slice], positions: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Give for each position the slice's number and the byte in its file."""
    ends = list(accumulate(piece.n_bytes for piece in slices))
    for position in positions:
        index = bisect_right(ends, position)
        piece = slices[index]
        yield index, piece.start + position - (ends[index] - piece.n_bytes)


def _stretch(slices: Sequence[Slice], index: int, start: int, n_bytes: int) -> Iterator[Slice]:
    """Give `n_bytes` of input from a position on.

    Over the ends of files: else a file of one record, which seldom starts where a window does,
    would never be seen.
    """
    while n_bytes and index < len(slices) and _has_byte_ranges(slices[index]):
        piece = slices[index]
        start = max(start, piece.start)
        stop = min(start + n_bytes, piece.start + piece.n_bytes)
        if stop > start:
            yield replace(piece, start=start, stop=stop, n_bytes=stop - start)
        n_bytes -= stop - start
        index, start = index + 1, 0


def _windows(slices: Sequence[Slice], limit_bytes: int, *, at_random: bool) -> Iterator[Slice]:
    if len(slices) <= _MAX_WINDOWS and sum(piece.n_bytes for piece in slices) <= limit_bytes:
        yield from slices
    else:
        yield from islice(_spread(slices, at_random=at_random), _MAX_WINDOWS)


def _spread(slices: Sequence[Slice], *, at_random: bool) -> Iterator[Slice]:
    """Give windows; of small files, each takes a few."""
    mean_bytes = sum(piece.n_bytes for piece in slices) // len(slices)
    if mean_bytes <= _WINDOW_BYTES and not any(map(_has_byte_ranges, slices)):
        # Read whole: each file must have the same chance, whatever its size.
        picked = (int(i * _GOLDEN % 1 * len(slices)) for i in range(1, _MAX_WINDOWS + 1))
        yield from (slices[index] for index in dict.fromkeys(picked))
        return
    window_bytes = max(1, min(_WINDOW_BYTES, _FILES_PER_WINDOW * mean_bytes))
    seen: set[int] = set()
    positions = (
        _random(slices, _MAX_WINDOWS, window_bytes) if at_random else _golden(slices, _MAX_WINDOWS)
    )
    for index, start in _places(slices, positions):
        if _has_byte_ranges(slices[index]):
            yield from _stretch(slices, index, start, window_bytes)
        elif index not in seen:
            seen.add(index)
            yield slices[index]
        elif len(seen) == len(slices):
            return


def _has_byte_ranges(piece: Slice) -> bool:
    file = piece.file
    return file.format == "jsonl" and not file.compression and file.path != "-"


def _read(
    window: Slice,
    settings: InputSettings,
    renderer: Renderer | ChatRenderer,
    limit_bytes: int,
    into: Survey,
) -> Iterator[Block]:
    """Give the blocks of a window, counted."""
    stop = into.input_bytes + limit_bytes
    by_range = _has_byte_ranges(window)
    into.heads_only |= not by_range
    into.window_bytes += window.n_bytes if by_range else 0
    with open_slice(window, settings, renderer.schema, _HEAD_BATCH_BYTES) as reader:
        for block in reader.blocks():
            # One read may feed several blocks, and is charged to the first of them.
            if block.input_bytes and into.input_bytes >= stop:
                return
            # A window's last record may be far longer than the window: count what was read.
            into.input_bytes += block.n_bytes if by_range else block.input_bytes
            if isinstance(block, JsonBlock) and by_range:
                into.raw += _pieces(block.raw.data)
            yield block


def _render(blocks: Sequence[Block], renderer: Renderer | ChatRenderer, into: Survey) -> None:
    """Add the documents of blocks, of 16 KiB mostly: together, since each costs 1 ms alone."""
    parsed = parse_together(blocks)
    rendered = renderer.render(joined(parsed))
    into.n_rejects += sum(len(records.rejects) for records in parsed)
    if isinstance(rendered, SampleBatch):
        into.texts += rendered.texts()
        into.n_control += np.add.reduceat(
            rendered.control >= 0, rendered.offsets[:-1], dtype=np.int64
        ).tolist()
        into.n_rejects += len(rendered.refused)
    else:
        into.texts += rendered.text.to_pylist()
        into.n_rejects += len(rendered.rejects)


def _pieces(data: bytes) -> Iterator[str]:
    """Cut raw bytes as fragments are cut, characters at the cuts lost alike."""
    for start in range(0, len(data), _FRAGMENT_BYTES):
        yield data[start : start + _FRAGMENT_BYTES].decode(errors="ignore")
