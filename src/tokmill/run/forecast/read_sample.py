"""Reads a small, spread sample of the input: to see its keys, choose an engine, predict a run.

Windows at positions of a low-discrepancy sequence over all input bytes; from each, the records that
start inside it. So a record's chance does not depend on its length, and stopping early stays even.
A few long records are most of such a sample's bytes, so a prediction also takes fragments: a
thousand pieces of raw input, which show the mix of languages and kinds far more evenly.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.fields import add_fields, used_paths
from tokmill.recipes.encoded import join_records
from tokmill.recipes.left_out import weigh_records
from tokmill.run.forecast.sample import InputSample
from tokmill.run.forecast.windows import (
    are_few,
    finest,
    golden,
    has_byte_ranges,
    places,
    stretch,
    windows,
)
from tokmill.run.unread_input import describe_unread
from tokmill.sources.compressed import decompressed_bytes
from tokmill.sources.formats import open_slice
from tokmill.sources.json_lines import JsonBlock
from tokmill.sources.parse_blocks import parse_blocks
from tokmill.storage import storage_errors
from tokmill.values import SampleBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.chat.renderer import ChatRenderer
    from tokmill.recipes.left_out import Weighed
    from tokmill.recipes.spec import Part
    from tokmill.render.renderer import Renderer
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.blocks import Block
    from tokmill.sources.files import Slice
    from tokmill.values import Records

_HEAD_BATCH_BYTES = 64 << 10
_MOST_HELD = 64
_FRAGMENT_BYTES = 1 << 10
_TIGHTER, _LOOSER = 3, 1.2
"""A file is packed at most so many times tighter, or looser, than its head."""

_MOST_DECODED = 16
"""What is sampled of a file decodes to at most so many times the limit: 290 MB of one text, again
and again, are a .gz of 1 MB."""


def read_sample(
    parts: Sequence[Part],
    settings: InputSettings,
    renderer: Renderer | ChatRenderer,
    limit_bytes: int,
    *,
    at_random: bool = False,
    labels: frozenset[str] | None = None,
    keep_blocks: bool = False,
) -> InputSample:
    """Sample at most `limit_bytes` of the input in records, spread over it; read less whole.

    Files that can only be read from their beginning are sampled at their heads. `at_random`: less
    evenly, so that two copies of a text are as likely to be met as any two. `labels`: the fields of
    the sampled records are weighed, and these hold no text. `keep_blocks`: their blocks stay in
    memory.
    """
    result = InputSample()
    slices = finest(_slices(parts))
    share = max(1, limit_bytes // len(slices)) if slices else 0
    result.is_whole = are_few(slices, limit_bytes)
    held: list[tuple[str, Block]] = []
    for window in windows(slices, limit_bytes, at_random=at_random):
        left = limit_bytes - result.stored_bytes
        if left <= 0 and not result.is_whole:
            break
        limit = left if has_byte_ranges(window) else share
        limit = limit_bytes if result.is_whole else limit
        blocks = _read(window, settings, renderer, limit, result, weighs=labels is not None)
        held += [(window.file.path, block) for block in blocks]
        if keep_blocks:
            result.blocks += [(len(result.window_read) - 1, block) for block in blocks]
        if len(held) >= _MOST_HELD:
            _render(held, renderer, result, labels)
            held = []
    if held:
        _render(held, renderer, result, labels)
    result.heads_only &= not result.is_whole
    return result


def add_fragments(parts: Sequence[Part], found: InputSample, limit_bytes: int) -> None:
    """Add pieces of raw input to a survey until it has read about `limit_bytes`."""
    if found.is_whole or found.heads_only or not found.raw:
        return
    slices = _slices(parts)
    n_fragments = max(0, limit_bytes - found.stored_bytes) // _FRAGMENT_BYTES
    for index, start in places(slices, golden(slices, n_fragments)):
        data = bytearray()
        for piece in stretch(slices, index, start, _FRAGMENT_BYTES):
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


def _read(
    window: Slice,
    settings: InputSettings,
    renderer: Renderer | ChatRenderer,
    limit_bytes: int,
    into: InputSample,
    *,
    weighs: bool,
) -> list[Block]:
    """Return the blocks of a window, and count them in `into`."""
    by_range = has_byte_ranges(window)
    found: list[Block] = []
    stored = decoded = 0
    options = (settings, renderer.schema, _HEAD_BATCH_BYTES)
    with open_slice(window, *options, samples_head=weighs) as reader:
        for block in reader.blocks():
            # One read may feed several blocks, and is charged to the first of them.
            if block.input_bytes and stored >= limit_bytes and not into.is_whole:
                break
            if decoded >= _MOST_DECODED * limit_bytes:
                into.is_whole = False
                break
            decoded += block.n_bytes
            # A window's last record may be far longer than the window: count what was read.
            stored += block.n_bytes if by_range else block.input_bytes
            if isinstance(block, JsonBlock) and by_range:
                pieces = list(_pieces(block.raw.data))
                into.raw += pieces
                into.raw_windows += [len(into.window_read)] * len(pieces)
            found.append(block)
    into.heads_only |= not by_range
    into.window_bytes += window.n_bytes if by_range else 0
    into.window_ranges.append(window.n_bytes if by_range else 0)
    into.window_read.append(stored)
    into.stored_bytes += stored
    into.input_bytes += _share_of_file(window, decoded, stored)
    return found


def _share_of_file(window: Slice, n_bytes: int, stored: int) -> int:
    """Give the stored bytes that `n_bytes` of a window's content make up, of which `stored` read.

    If the file is as tightly packed everywhere, `stored`; of a compressed one its own size says
    better. What gzip says may be the size of a last member alone, which then seems too small.
    """
    source = window.file
    unpacked = decompressed_bytes(source.path, source.compression, window.start, window.stop)
    if not unpacked:
        return stored
    share = round(window.n_bytes * n_bytes / unpacked)
    is_known = source.compression == "zst" or stored / _TIGHTER <= share <= stored * _LOOSER
    return share if is_known else stored


def _render(
    held: Sequence[tuple[str, Block]],
    renderer: Renderer | ChatRenderer,
    into: InputSample,
    labels: frozenset[str] | None,
) -> None:
    """Add the documents of blocks, of 16 KiB mostly: together, since each costs 1 ms alone."""
    parsed = parse_blocks([block for _, block in held])
    joined = join_records(parsed)
    rendered = renderer.render(joined)
    rejects = [reject for records in parsed for reject in records.rejects]
    for (path, _), records in zip(held, parsed, strict=True):
        if records.unread is not None:
            into.unread.append(describe_unread(path, records.unread))
    if isinstance(rendered, SampleBatch):
        into.texts += rendered.texts()
        into.n_control += np.add.reduceat(
            rendered.control >= 0, rendered.offsets[:-1], dtype=np.int64
        ).tolist()
        rejects += [reject for _, reject in rendered.refused]
    else:
        into.texts += rendered.text.to_pylist()
        if labels is not None:
            used = used_paths(renderer.schema)
            _weigh(held, parsed, weigh_records(joined, rendered.rows, used, labels), into)
        rejects += rendered.rejects
    if rejects and not into.rejects:
        into.first_reject = f"{rejects[0].reason}: {rejects[0].message}"
    into.rejects.update(reject.reason for reject in rejects)


def _weigh(
    held: Sequence[tuple[str, Block]],
    parsed: Sequence[Records],
    weighed: Sequence[Weighed],
    into: InputSample,
) -> None:
    """Add what the fields of the records hold, by file."""
    starts = np.cumsum([records.batch.num_rows for records in parsed])
    for row, found in weighed:
        path = held[int(np.searchsorted(starts, row, "right"))][0]
        add_fields(into.fields.setdefault(path, Counter()), found)


def _pieces(data: bytes) -> Iterator[str]:
    """Cut raw bytes as fragments are cut, characters at the cuts lost alike."""
    for start in range(0, len(data), _FRAGMENT_BYTES):
        yield data[start : start + _FRAGMENT_BYTES].decode(errors="ignore")
