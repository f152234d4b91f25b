"""A sample of the input: a few MiB of records, from places that are spread over all of it.

Lines that are not compressed are read in windows: all records that begin in a range of bytes, so
that the chance of a record does not depend on its length. Anything else can only be read from its
beginning; it is read up to a limit, and of the blocks that pass by every k-th is kept.

A sample is encoded as the run would, and the totals of the input are estimated with a band. It
comes from the differences between neighbouring pieces (the successive difference estimator of
systematic samples; Wolter, 1984, doi 10.1080/01621459.1984.10477095): input that is sorted by
length or by language has alike neighbours, and evenly spread pieces show all of its kinds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.dataset.counts import Counts
from tokmill.dataset.manifest import SourceEntry
from tokmill.interrupts import DelayedInterrupts
from tokmill.recipes.left_out import is_weighed_slice
from tokmill.recipes.table import Recipes
from tokmill.rendering.where import make_filter
from tokmill.run.part import count_block, encode_ahead
from tokmill.run.reject_limits import describe_unread
from tokmill.sources.formats import cut, format_named, open_slice
from tokmill.sources.slices import Slice
from tokmill.sources.streams import decompressed_bytes
from tokmill.values import SampleBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from tokmill.chat.render_pool import ChatRenderer
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.rendering.renderer import Renderer
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.formats import Block, SliceReader
    from tokmill.sources.slices import SourceFile

    Floats = npt.NDArray[np.float64]
    Renderers = Mapping[SourceFile, tuple[InputSettings, Renderer | ChatRenderer]]

_LEAST_WINDOW, _MOST_WINDOW = 16 << 10, 64 << 10
_WINDOWS, _MOST_WINDOWS = 128, 4096
"""Windows of a sample; if records are long, some hold none, and there are up to so many."""

_FILES_PER_WINDOW = 4
_FEWEST_PIECES = 8
_MOST_BYTES = 32 << 20
"""Long records may pass the limit of a sample up to this, until there are `_FEWEST_PIECES`."""

_WEIGHED = 32
"""The fields of the records of every so many windows are weighed: with short records
this takes longer than to encode them."""

_MOST_HEADS = 128
"""Slices that are read from their beginning; of more slices, these are chosen evenly."""

_PASSED, _LEAST_PASSED_BYTES, _MOST_PASSED_BYTES = 64, 4 << 20, 256 << 20
"""Bytes that are unpacked of a slice: as a multiple of the limit of its sample, at least, and at
most, which takes 1 s."""

_LEAST_UNREAD = 0.5
"""The least share of a slice that counts as unread, as its bytes are read ahead in large chunks."""

_COMPLETE_RATIO = 8
"""A complete input is unpacked to at most so many bytes for each that is stored."""

_TIGHTER, _LOOSER = 3, 1.2
"""Bounds of the compression of a file, as a multiple of that of its head."""

_DEVIATIONS = 3.0
"""Half the width of a band, in standard deviations."""

_LEAST_ERROR = 0.01

_FEWEST_UNITS = 4
"""Fewer pieces do not show how much they vary."""

_WIDER = 6
"""With n pieces a band is wider by this share of 1 / n: few show their deviation badly."""

UNREAD_ERROR = 1.0
"""Error of what is concluded from the head of a slice for the rest of it, measured: a long zstd
file is compressed 1.4 times as well as its head."""


@dataclass(slots=True)
class SampledPiece:
    """Records of one file that were read together.

    `n_bytes`: of the records, unpacked. `span`: the range of bytes in which they begin. `scale`,
    `record_scale`: the bytes and the records of the input for each byte and each record here.
    `unread`: the share of its slice that was not looked at. Pieces of one `unit` are not
    independent of each other. `counts`: of the records, once they are encoded.
    """

    file: SourceFile
    blocks: list[Block]
    unit: int
    n_bytes: int
    span: float
    scale: float = 1.0
    record_scale: float = 1.0
    unread: float = 0.0
    counts: Counts = field(default_factory=Counts)


class Estimate(NamedTuple):
    """A number and its band; an exact number equals both ends."""

    value: int
    low: int
    high: int


@dataclass(slots=True)
class InputSample:
    """Pieces of the input, in its order; all of it if `is_complete`.

    `read_bytes`: stored bytes of the pieces. Known once it is encoded: `lengths`, `is_val`: the
    tokens of each document, and whether it is validation; `first_rejects`: a line for the first
    reject of each file; `longest_text`: bytes of the longest document; `bytes_per_s`: of text, on
    all threads.
    """

    pieces: list[SampledPiece] = field(default_factory=list)
    read_bytes: int = 0
    is_complete: bool = False
    lengths: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    is_val: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    first_rejects: dict[str, str] = field(default_factory=dict)
    longest_text: int = 0
    bytes_per_s: float = 1.0

    @property
    def heads_only(self) -> bool:
        """Return whether only the beginning of some files was read."""
        return any(piece.unread for piece in self.pieces)

    def totals(self) -> Counts:
        """Return the counts of all pieces together."""
        totals = Counts()
        for piece in self.pieces:
            totals.add(piece.counts)
        return totals

    @property
    def unread(self) -> list[str]:
        """Return a line for each break of the input."""
        return [
            describe_unread(p.file.path, unread) for p in self.pieces for unread in p.counts.unread
        ]

    @property
    def first_reject(self) -> str:
        """Return a line for the first reject, '' if there is none."""
        return next(iter(self.first_rejects.values()), "")

    def first_reject_of(self, path: str) -> str:
        """Return a line for the first reject of a file, '' if there is none."""
        return self.first_rejects.get(path, "")

    @property
    def counted_files(self) -> list[SourceEntry]:
        """Return the sampled files with their counts."""
        counts: dict[str, Counts] = {}
        for piece in self.pieces:
            counts.setdefault(piece.file.path, Counts()).add(piece.counts)
        return list(starmap(SourceEntry, counts.items()))

    @property
    def sources(self) -> list[SourceEntry]:
        """Return the sampled files whose fields were weighed, by path."""
        weighed = [source for source in self.counted_files if source.counts.fields]
        return sorted(weighed, key=lambda source: source.path)

    def total(self, name: str) -> Estimate:
        """Return the sum over the input of a number of `Counts`."""
        pieces, of_records = self.pieces, name in ("documents", "records")
        amounts = np.array([getattr(piece.counts, name) for piece in pieces], np.float64)
        if self.is_complete:
            return Estimate(*[round(float(amounts.sum()))] * 3)
        scales = [piece.record_scale if of_records else piece.scale for piece in pieces]
        ranges = [piece.span if of_records else piece.n_bytes for piece in pieces]
        stands_for = np.array(scales) * np.array(ranges)
        expected = np.array(scales) * amounts
        value = float(expected.sum())
        if not value:
            return Estimate(0, 0, 0)
        unread = float(expected @ np.array([piece.unread for piece in pieces]))
        error = (_spread(expected, stands_for, pieces) + UNREAD_ERROR * unread) / value
        error = max(error, _LEAST_ERROR)
        return Estimate(round(value), round(value / (1 + error)), round(value * (1 + error)))


def _spread(expected: Floats, stands_for: Floats, pieces: list[SampledPiece]) -> float:
    """Return half the width of the band of the sum of `expected` (n,) amounts.

    `stands_for`: (n,) the bytes of input that each amount is for.
    """
    _, units = np.unique([piece.unit for piece in pieces], return_index=True)
    starts = np.sort(units)
    of_unit, bytes_of_unit = (np.add.reduceat(values, starts) for values in (expected, stands_for))
    n = len(starts)
    if n < _FEWEST_UNITS:
        return float(expected.sum())
    residuals = of_unit - of_unit.sum() / bytes_of_unit.sum() * bytes_of_unit
    variance = float((np.diff(residuals) ** 2).sum()) / 2 * n / (n - 1)
    return _DEVIATIONS * (1 + _WIDER / n) * math.sqrt(variance)


# Reading a sample


def read_sample(parts: Sequence[Part], renderers: Renderers, limit_bytes: int) -> InputSample:
    """Return a sample of about `limit_bytes` of the input; of a smaller input, all records.

    `renderers`: the settings of reading and the renderer of each file. The same in every call.
    """
    sample, slices = InputSample(), [piece for part in parts for piece in part.slices]
    total = sum(piece.n_bytes for piece in slices)
    if total <= limit_bytes and len(slices) <= _MOST_WINDOWS:
        return _complete_sample(slices, renderers, limit_bytes)
    # By their first slices: a file that is named twice is read twice.
    lines = [piece.file for piece in slices if not piece.start and _has_windows(piece.file)]
    n_bytes = sum(file.n_bytes for file in lines)
    if lines:
        _read_windows(lines, renderers, limit_bytes * n_bytes // max(1, total), sample)
    if sample.read_bytes >= total:  # the records are so long that the windows are all of it
        return _complete_sample(slices, renderers, total)
    others = _units([piece for piece in slices if not _has_windows(piece.file)])
    if others:
        sample.is_complete = not lines and len(others) <= _MOST_HEADS
        _read_heads(others, renderers, limit_bytes * (total - n_bytes) // max(1, total), sample)
    order = {file: number for number, file in enumerate(renderers)}
    sample.pieces.sort(key=lambda piece: order[piece.file])  # stable: in a file they are in order
    return sample


def _complete_sample(
    slices: Sequence[Slice], renderers: Renderers, limit_bytes: int
) -> InputSample:
    """Return all records of a small input."""
    sample = InputSample(is_complete=True)
    _read_heads(slices, renderers, limit_bytes * _COMPLETE_RATIO, sample)
    return sample


def _has_windows(file: SourceFile) -> bool:
    """Return whether reading can begin anywhere in a file."""
    return format_named(file.format).has_byte_ranges and not (file.compression or file.is_stream)


def _units(slices: list[Slice]) -> list[Slice]:
    """Return slices of single row groups for files of rows, so that all groups are sampled."""
    if len(slices) > _MOST_HEADS:
        return slices
    units = [
        cut(piece.file, 1)
        if piece.is_whole and format_named(piece.file.format).unit_bytes
        else [piece]
        for piece in slices
    ]
    return [piece for of_slice in units for piece in of_slice]


def _read_windows(
    files: list[SourceFile], renderers: Renderers, limit_bytes: int, sample: InputSample
) -> None:
    """Add windows at even distances; if few records begin in them, of more windows."""
    ends = list(accumulate(file.n_bytes for file in files))
    window_bytes = min(max(limit_bytes // _WINDOWS, _LEAST_WINDOW), _MOST_WINDOW)
    window_bytes = max(1, min(window_bytes, _FILES_PER_WINDOW * ends[-1] // len(files)))
    most = min(_MOST_WINDOWS, -(-ends[-1] // window_bytes))
    n_windows = min(max(_FEWEST_PIECES, limit_bytes // window_bytes), most)
    while True:
        pieces: list[SampledPiece] = []
        n_bytes = 0
        for window in range(n_windows):
            # In the middle of its share, as the first record may be like no other.
            place = (2 * window + (n_windows < most)) * ends[-1] // (2 * n_windows)
            for part in _window(files, ends, place, window_bytes):
                is_weighed = window % _WEIGHED == 0
                with _opened(part, renderers, is_weighed=is_weighed) as reader:
                    blocks: list[Block] = list(reader.blocks())
                read = sum(block.n_bytes for block in blocks)
                pieces.append(SampledPiece(part.file, blocks, place, read, part.n_bytes))
                n_bytes += read
        n_filled = len({piece.unit for piece in pieces if piece.n_bytes})
        is_enough = 2 * n_bytes >= limit_bytes and n_filled >= _FEWEST_PIECES
        if is_enough or n_bytes >= _MOST_BYTES or n_windows == most:
            break
        n_windows = min(2 * n_windows, most)
    sample.read_bytes += n_bytes
    span = sum(piece.span for piece in pieces)
    for piece in pieces:
        piece.scale, piece.record_scale = ends[-1] / max(1, n_bytes), ends[-1] / span
    sample.pieces += pieces


def _opened(
    piece: Slice, renderers: Renderers, *, is_weighed: bool
) -> AbstractContextManager[SliceReader]:
    settings, renderer = renderers[piece.file]
    return open_slice(piece, settings, renderer.schema, _LEAST_WINDOW, samples_head=is_weighed)


def _window(
    files: Sequence[SourceFile], ends: Sequence[int], place: int, n_bytes: int
) -> Iterator[Slice]:
    """Yield slices with `n_bytes` of input from a place on, across the ends of files.

    Small files with one record seldom begin where a window begins.
    """
    index = bisect_right(ends, place)
    while n_bytes and index < len(files):
        file = files[index]
        start = place - (ends[index] - file.n_bytes)
        stop = min(start + n_bytes, file.n_bytes)
        if stop > start:
            yield Slice(file, start, stop, stop - start)
        n_bytes, place, index = n_bytes - (stop - start), place + stop - start, index + 1


def _read_heads(
    slices: Sequence[Slice], renderers: Renderers, limit_bytes: int, sample: InputSample
) -> None:
    """Add blocks of slices that are read from their beginning, of some slices if there are many."""
    chosen = list(slices)
    if not sample.is_complete and len(slices) > _MOST_HEADS:
        chosen = [slices[i * len(slices) // _MOST_HEADS] for i in range(_MOST_HEADS)]
    total, n_bytes = (sum(piece.n_bytes for piece in some) for some in (slices, chosen))
    fewest = 2 * _FEWEST_PIECES // max(1, len(chosen))
    for number, piece in enumerate(chosen):
        share = piece.n_bytes / n_bytes if n_bytes else 1 / len(chosen)
        with _opened(piece, renderers, is_weighed=is_weighed_slice(number)) as reader:
            pieces = _head(piece, reader, round(limit_bytes * share), fewest, sample)
        for n_before, sampled in enumerate(pieces, len(sample.pieces)):
            sampled.unit = -1 - (number if len(chosen) < len(slices) else n_before)
            sampled.scale *= total / n_bytes if n_bytes else 1
            sampled.record_scale *= total / n_bytes if n_bytes else 1
        sample.pieces += pieces


def _head(
    piece: Slice, reader: SliceReader, limit_bytes: int, fewest: int, sample: InputSample
) -> list[SampledPiece]:
    """Return blocks of a slice, read from its beginning: about `limit_bytes`, at least `fewest`.

    Many more bytes than these are unpacked, and every k-th block is kept.
    """
    most_passed = min(max(_PASSED * limit_bytes, _LEAST_PASSED_BYTES), _MOST_PASSED_BYTES)
    blocks: list[Block] = []
    passed = stored = kept = n_read = 0
    every, is_read = 1, True
    for block in reader.blocks():
        if passed and passed >= most_passed:
            is_read = False
            break
        passed, stored = passed + block.n_bytes, stored + block.input_bytes
        n_read += 1
        if n_read % every == 0:
            blocks.append(block)
            kept += block.n_bytes
        if kept > 2 * limit_bytes and len(blocks) > max(1, fewest):
            every, blocks = 2 * every, blocks[1::2]
            kept = sum(block.n_bytes for block in blocks)
    sample.read_bytes += round(stored * kept / max(1, passed))
    sample.is_complete &= is_read and every == 1
    all_bytes = float(passed) if is_read else _unpacked_bytes(piece, passed, stored)
    # Of the blocks that were read: those that are kept can hold more long records.
    mean_bytes = passed / max(1, n_read)
    scale, record_scale = all_bytes / max(1, kept), all_bytes / max(1, mean_bytes * len(blocks))
    unread = 0.0 if is_read else max(1 - stored / max(1, piece.n_bytes), _LEAST_UNREAD)
    return [
        SampledPiece(piece.file, [block], 0, block.n_bytes, mean_bytes, scale, record_scale, unread)
        for block in blocks
    ]


def _unpacked_bytes(piece: Slice, passed: int, stored: int) -> float:
    """Return about the unpacked bytes of a slice, of which `stored` bytes gave `passed`.

    The size in a .gz can be that of its last member alone, and then looks too small.
    """
    expected = passed * piece.n_bytes / max(1, stored)
    file = piece.file
    stated = decompressed_bytes(file.path, file.compression, piece.start, piece.stop)
    is_sound = file.compression == "zst" or expected / _LOOSER <= stated <= expected * _TIGHTER
    return float(stated) if stated and is_sound else expected


def sampled_texts(
    parts: Sequence[Part], renderers: Renderers, limit_bytes: int
) -> tuple[list[str], int]:
    """Return the documents of a sample of about `limit_bytes`, and about the text in the input."""
    texts: list[str] = []
    corpus_bytes = 0.0
    for piece in read_sample(parts, renderers, limit_bytes).pieces:
        settings, renderer = renderers[piece.file]
        keep = make_filter(settings)
        for block in piece.blocks:
            records = block.parse()
            rendered = renderer.render(records if keep is None else keep(records).records)
            if isinstance(rendered, SampleBatch):
                of_block = rendered.texts()
            else:
                of_block = rendered.text.to_pylist()
            corpus_bytes += piece.scale * sum(len(text.encode()) for text in of_block)
            texts += of_block
    return texts, round(corpus_bytes)


def encoded_sample(
    spec: RunSpec, parts: Sequence[Part], renderers: Renderers, limit_bytes: int
) -> InputSample:
    """Read about `limit_bytes` of the input, and encode them as the run would, on threads."""
    sample = read_sample(parts, renderers, limit_bytes)
    recipes, pieces = Recipes(spec), sample.pieces
    part_of = {piece.file: part for part in parts for piece in part.slices}
    blocks = [
        (number, replace(block, renderer=renderers[piece.file][1].name))
        for number, piece in enumerate(pieces)
        for block in piece.blocks
    ]
    of_recipe = groupby(blocks, lambda numbered: recipes.of(part_of[pieces[numbered[0]].file]))
    lengths, is_val = [sample.lengths], [sample.is_val]
    rates: list[tuple[int, float]] = []
    with DelayedInterrupts() as interrupts:
        for recipe, numbered in of_recipe:
            own = list(numbered)
            if not rates:
                recipe.process([own[0][1]])  # what loads late is not speed
            for number, block in encode_ahead(spec, recipe, own, interrupts):
                if block is None:
                    continue
                piece = pieces[number]
                count_block(piece.counts, block)
                if block.unread is not None:
                    piece.counts.unread.append(block.unread)
                if block.rejects:
                    path, first = piece.file.path, block.rejects[0]
                    line = f"{path}: {first.reason}: {first.message}"
                    sample.first_rejects.setdefault(path, line)
                sample.longest_text = max([sample.longest_text, *block.text_bytes.tolist()])
                lengths.append(np.diff(block.offsets).astype(np.int64))
                is_val.append(block.is_val)
                if block.stage_s:  # the first of those that were encoded together
                    rates.append((0, sum(stage.wall_s for stage in block.stage_s.values())))
                n_bytes, taken_s = rates[-1]
                rates[-1] = (n_bytes + int(block.text_bytes.sum()), taken_s)
    # The median: few bundles weigh fields, which takes far longer for short records.
    if rates:
        speeds = [(n_bytes or 1) / (taken_s or 1e-9) for n_bytes, taken_s in rates]
        sample.bytes_per_s = spec.n_threads * float(np.median(speeds))
    sample.lengths, sample.is_val = np.concatenate(lengths), np.concatenate(is_val)
    return sample
